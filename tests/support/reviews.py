"""Admission reviews as the API server sends them, and a context to answer them with."""

import base64
import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jsonpatch
import msgspec

from admission.context import AdmissionContext
from admission.review import AdmissionResult
from admission.workload_rules import BUILT_IN_RULES, WorkloadRules
from api.clock import Instant
from api.kinds.gpupool import EffectiveAllocation, GPUPool
from api.names import PoolName, ReservationId
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from pool.facts import pool_facts
from tests.support.builders import a_device, a_node, at

POD = {"group": "", "version": "v1", "kind": "Pod"}
GPUPOOL = {"group": "gpu.deckhouse.io", "version": "v1alpha1", "kind": "GPUPool"}
NODE = {"group": "", "version": "v1", "kind": "Node"}
GPUDEVICE = {"group": "gpu.deckhouse.io", "version": "v1alpha1", "kind": "GPUDevice"}


@dataclass
class AdmissionSetup:
    """Caches and allocation state of a control plane, with a clock that stands still."""

    allocation_state: AllocationState = field(default_factory=AllocationState)
    catalog: Catalog = field(default_factory=Catalog)
    scheduler_name: str | None = "gpu-scheduler"
    is_ready: bool = True
    may_reserve: bool = True
    callers_are_known: bool = False
    workloads: WorkloadRules = BUILT_IN_RULES
    key: bytes = b"a key of all replicas"
    now: Instant = field(default_factory=lambda: at(0))
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def context(self) -> AdmissionContext:
        return AdmissionContext(
            index=self.allocation_state.index,
            reader=self.allocation_state.reader,
            allocation_state=self.allocation_state,
            catalog=self.catalog,
            scheduler_name=self.scheduler_name,
            new_id=lambda: ReservationId(f"r{next(self._numbers)}"),
            now=lambda: self.now,
            is_ready=lambda: self.is_ready,
            may_reserve=lambda: self.may_reserve,
            callers_are_known=self.callers_are_known,
            workloads=self.workloads,
            sign=lambda content: hashlib.sha256(self.key + content).hexdigest()[:8],
        )

    def add_pool(self, name: str = "whole", **spec: Any) -> GPUPool:
        pool = msgspec.convert(a_pool_object(name, **spec), GPUPool)
        self.catalog.pools[pool.name] = pool
        self.allocation_state.index.replace_pool(pool_facts(pool))
        return pool

    def terminate(self, name: str) -> None:
        pool = self.catalog.pools[PoolName(name)]
        meta = msgspec.structs.replace(pool.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        pool = msgspec.structs.replace(pool, metadata=meta)
        self.catalog.pools[pool.name] = pool
        self.allocation_state.index.replace_pool(pool_facts(pool))

    def allocate(self, name: str, **allocation: Any) -> None:
        """Record the pool's present allocation."""
        pool = self.catalog.pools[PoolName(name)]
        present = msgspec.convert(allocation, EffectiveAllocation)
        status = msgspec.structs.replace(pool.status, allocation=present)
        pool = msgspec.structs.replace(pool, status=status)
        self.catalog.pools[pool.name] = pool
        self.allocation_state.index.replace_pool(pool_facts(pool))

    def add_node(
        self, name: str = "n1", devices: int = 2, pool: str = "whole", **facts: Any
    ) -> None:
        self.allocation_state.index.replace_node(a_node(name, **facts))
        for index in range(devices):
            self.allocation_state.index.replace_device(a_device(name, index, pool))

    def ask(
        self, webhook: Callable[[bytes, AdmissionContext], AdmissionResult], obj: Any, **review: Any
    ) -> "Reply":
        return Reply(webhook(a_review(obj, **review), self.context()))


@dataclass
class Reply:
    """An answer as the API server reads it."""

    answer: AdmissionResult

    @property
    def response(self) -> dict[str, Any]:
        review = msgspec.json.decode(self.answer.body)
        assert (review["apiVersion"], review["kind"]) == (
            "admission.k8s.io/v1",
            "AdmissionReview",
        )
        response: dict[str, Any] = review["response"]
        return response

    @property
    def allowed(self) -> bool:
        return bool(self.response["allowed"])

    @property
    def message(self) -> str:
        return str(self.response["status"]["message"])

    @property
    def code(self) -> int:
        return int(self.response["status"]["code"])

    @property
    def warnings(self) -> list[str]:
        return list(self.response.get("warnings", []))

    @property
    def patch(self) -> list[dict[str, Any]]:
        response = self.response
        if "patch" not in response:
            assert "patchType" not in response
            return []
        assert response["patchType"] == "JSONPatch"
        operations: list[dict[str, Any]] = msgspec.json.decode(base64.b64decode(response["patch"]))
        return operations

    def applied_to(self, obj: dict[str, Any]) -> dict[str, Any]:
        assert self.allowed, self.message
        changed: dict[str, Any] = jsonpatch.JsonPatch(self.patch).apply(obj)
        return changed


def a_review(
    obj: Any,
    *,
    kind: dict[str, str] = POD,
    operation: str = "CREATE",
    old: Any = None,
    user: str = "alice",
    groups: tuple[str, ...] = ("system:authenticated",),
    **request: Any,
) -> bytes:
    found = obj.get("metadata") if isinstance(obj, dict) else None
    meta = found if isinstance(found, dict) else {}
    fields = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": {"group": kind["group"], "version": kind["version"], "resource": "things"},
        "requestKind": kind,
        "name": meta.get("name") or "",
        "namespace": meta.get("namespace") or "",
        "operation": operation,
        "userInfo": {"username": user, "uid": "u", "groups": list(groups)},
        "object": obj,
        "oldObject": old,
        "dryRun": False,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        **request,
    }
    return msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields}
    )


def a_pod_object(
    gpus: int | str | None = 1, pool: str = "whole", name: str = "p", **changes: Any
) -> dict[str, Any]:
    """A pod as it reaches the mutating webhook: defaulted, with requests copied from limits."""
    resources = {"cpu": "1"}
    if gpus is not None:
        resources[f"gpu.deckhouse.io/{pool}"] = str(gpus)
    spec = {
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "resources": {"limits": dict(resources), "requests": dict(resources)},
                "terminationMessagePath": "/dev/termination-log",
            }
        ],
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
        ],
        "priority": 0,
        **changes.pop("spec", {}),
    }
    metadata = {"name": name, "namespace": "team-a", **changes.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **changes}


def stored(pod: dict[str, Any], uid: str = "uid-1", name: str = "p") -> dict[str, Any]:
    """The pod as validation sees it: with its final name and uid."""
    return {**pod, "metadata": {**pod["metadata"], "name": name, "uid": uid}}


def a_pool_object(name: str = "whole", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1},
        "spec": spec,
    }


def a_node_object(*evicting: str, name: str = "n1") -> dict[str, Any]:
    """Return a Node with a taint NoExecute of each key."""
    taints = [{"key": key, "effect": "NoExecute"} for key in evicting]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": taints},
    }


def a_device_object(
    assignment: str | None = "whole", *, name: str = "n1-0", **changes: Any
) -> dict[str, Any]:
    status = {
        "nodeName": "n1",
        "inventoryID": "n1-0000:17:00.0",
        "uuid": "GPU-1",
        "product": "NVIDIA A100-SXM4-80GB",
        "memoryMiB": 81920,
        "computeCapability": "8.0",
        "pci": {"vendor": "10de", "device": "20b2", "class": "0302", "address": "0000:17:00.0"},
        "mig": {"capable": True, "profiles": ["1g.10gb", "2g.20gb"]},
        "managed": True,
        **changes.pop("status", {}),
    }
    annotations = {} if assignment is None else {"gpu.deckhouse.io/assignment": assignment}
    metadata = {"name": name, "annotations": annotations, **changes.pop("metadata", {})}
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUDevice",
        "metadata": metadata,
        "spec": {},
        "status": status,
        **changes,
    }
