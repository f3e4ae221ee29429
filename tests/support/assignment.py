"""GPUDevices and GPUPools of one node, and the world that carries decisions out as the API server would."""

from collections.abc import Iterable
from typing import Any

import msgspec

from api.kinds.gpudevice import GPUDevice, PoolRef
from api.kinds.gpupool import GPUPool
from api.meta import Condition
from api.names import ASSIGNMENT_ANNOTATION, IGNORE_LABEL, DeviceName, NodeName
from inventory.assignment.candidates import PoolCandidates
from inventory.assignment.decide import Action, Decision, NodeView, decide
from inventory.pools.validation import VALID_POOL, PoolFault, PoolFaultReason, PoolValidity

NODE = NodeName("n1")
UNSUPPORTED = PoolValidity(
    unsupported=PoolFault(PoolFaultReason.UNSUPPORTED_VENDOR, "devices of AMD only")
)
MISCONFIGURED = PoolValidity(misconfigured=(PoolFault(PoolFaultReason.BAD_SPEC, "ttl is none"),))


def a_device(
    number: int = 0,
    *,
    annotated: str | None = None,
    owner: str | None = None,
    is_ignored: bool = False,
    labels: dict[str, str] | None = None,
    **status: Any,
) -> GPUDevice:
    """A complete device of node n1; `draining` and `faulted` make the conditions."""
    conditions = []
    if status.pop("draining", False):
        conditions.append({"type": "Draining", "status": "True"})
    if status.pop("faulted", False):
        conditions.append({"type": "Healthy", "status": "False"})
    labels = {**(labels or {}), **({IGNORE_LABEL: "true"} if is_ignored else {})}
    raw = {
        "metadata": {
            "name": f"n1-{number}",
            "uid": f"uid-n1-{number}",
            "labels": labels,
            "annotations": {} if annotated is None else {ASSIGNMENT_ANNOTATION: annotated},
        },
        "status": {
            "nodeName": "n1",
            "inventoryID": f"n1-0000:{number:02x}:00.0",
            "uuid": f"GPU-{number}",
            "product": "NVIDIA A100-SXM4-80GB",
            "memoryMiB": 81920,
            "pci": {"vendor": "10de", "device": "20b2", "address": f"0000:{number:02x}:00.0"},
            "mig": {"capable": True},
            **({} if owner is None else {"poolRef": {"name": owner}}),
            "conditions": conditions,
            **status,
        },
    }
    return msgspec.convert(raw, GPUDevice)


def a_gpupool(
    name: str = "a",
    *,
    by_itself: bool = False,
    cap: int | None = None,
    is_terminating: bool = False,
    created: int = 0,
    **spec: Any,
) -> GPUPool:
    """A pool that takes annotated devices, or with `by_itself` every device that it selects."""
    assignment = {"requireAnnotation": not by_itself, **spec.pop("assignment", {})}
    allocation = {} if cap is None else {"maxDevicesPerNode": cap}
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "generation": 1,
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
    }
    if is_terminating:
        metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    raw = {
        "metadata": metadata,
        "spec": {"assignment": assignment, "allocation": allocation, **spec},
    }
    return msgspec.convert(raw, GPUPool)


def some_candidates(
    *pools: GPUPool, validity: dict[str, PoolValidity] | None = None
) -> PoolCandidates:
    return PoolCandidates(pools, lambda name: (validity or {}).get(name, VALID_POOL))


def decided(
    devices: Iterable[GPUDevice], candidates: PoolCandidates, **view: Any
) -> dict[str, Decision]:
    """Decide on the devices of n1; by name."""
    given: dict[str, Any] = {"node": NODE, "labels": {}, **view}
    return {
        item.device: item for item in decide(NodeView(devices=list(devices), **given), candidates)
    }


def decided_one(device: GPUDevice, candidates: PoolCandidates, **view: Any) -> Decision:
    return decided([device], candidates, **view)[device.name]


def carried_out(device: GPUDevice, decision: Decision) -> GPUDevice:
    """The device once the API server has what was decided: poolRef, and whether it says that it drains."""
    conditions = [
        condition for condition in device.status.conditions or () if condition.type != "Draining"
    ]
    if decision.action in {Action.DRAIN, Action.RELEASE}:
        conditions.append(Condition(type="Draining", status="True"))
    ref = PoolRef(name=decision.owner) if decision.owner is not None else None
    status = msgspec.structs.replace(device.status, pool_ref=ref, conditions=conditions)
    return msgspec.structs.replace(device, status=status)


def users(*devices: DeviceName | str, resource: str = "gpu.deckhouse.io/a") -> dict[Any, Any]:
    return dict.fromkeys(devices, frozenset({resource}))
