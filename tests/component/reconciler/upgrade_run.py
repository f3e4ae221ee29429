"""A leader that upgrades the driver of nodes, and what its tests do to it.

An observer on the API server's watch counts the nodes that are away, whatever the leader has in its memory.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from api.clock import Instant
from api.csi.names import DRIVER_NAME
from api.driver_upgrade import (
    PAUSED_FOR_UPGRADE,
    UNITS_WITHHELD_ANNOTATION,
    UPGRADE_STATE_LABEL,
)
from api.foreign.core import Taint
from api.kinds.gpunodeinventory import DriverProcess
from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from kube.client import KubeClient
from kube.resources import (
    CLUSTER_POLICIES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    RESOURCE_CLAIMS,
)
from manifests.nvidia.operator_crds import build_operator_crds
from reconciler.driver_upgrade.reports import UpgradeReports
from reconciler.driver_upgrade.upgrade_pass import KEY, DriverUpgrades, UpgradeTools
from reconciler.sinks.operator_objects import OperatorObjects
from tests.component.reconciler.upgraded_nodes import (
    AGENT_AFFINITY,
    NAMESPACE,
    STEP_S,
    TEAM,
    Json,
    UpgradedNodes,
    is_driver,
)
from tests.support.client_of_api import an_api_with_client
from tests.support.recorded_events import RecordedEvents


@dataclass
class Observer:
    """Counts nodes that are away after every single change that the API server tells."""

    away: set[str] = field(default_factory=set)
    most_away: int = 0
    order: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Node -> `withheld`, `cordoned` and states, in the order in which they came."""

    async def watch(self, client: KubeClient, version: str) -> None:
        async with client.watch(
            NODES, resource_version=version, timeout_s=10**6, idle_timeout_s=10**6
        ) as lines:
            async for line in lines:
                event = msgspec.json.decode(line)
                if event["type"] in {"ADDED", "MODIFIED", "DELETED"}:
                    self._see(event["type"], event["object"])

    def _see(self, kind: str, node: Json) -> None:
        meta = node["metadata"]
        name, annotations = meta["name"], meta.get("annotations") or {}
        conditions = (node.get("status") or {}).get("conditions") or ()
        is_ready = any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in conditions
        )
        is_cordoned = bool(node.get("spec", {}).get("unschedulable"))
        is_withheld = UNITS_WITHHELD_ANNOTATION in annotations
        is_away = kind != "DELETED" and (is_cordoned or is_withheld or not is_ready)
        (self.away.add if is_away else self.away.discard)(name)
        self.most_away = max(self.most_away, len(self.away))
        seen = [(meta.get("labels") or {}).get(UPGRADE_STATE_LABEL, "")]
        seen += ["withheld"] * is_withheld + ["cordoned"] * is_cordoned
        self.order[name] += [item for item in seen if item and item not in self.order[name]]


@dataclass
class UpgradeRun(UpgradedNodes):
    """The nodes, and the process that leads."""

    objects: OperatorObjects = field(default_factory=OperatorObjects)
    recorder: RecordedEvents = field(default_factory=RecordedEvents)
    observer: Observer = field(default_factory=Observer)
    pools: set[str] = field(default_factory=lambda: {"whole"})
    pool_taints: list[Taint] = field(default_factory=list)
    """What the pools give every node."""
    found: dict[str, list[DriverProcess]] = field(default_factory=dict)
    """What the agents find with the driver open, by node."""
    policy_uid: str = ""
    """Where the API server has a ClusterPolicy."""

    def __post_init__(self) -> None:
        self.lead()

    # The leader

    def lead(self) -> None:
        """Let another process lead, which remembers nothing."""
        self.reports = UpgradeReports()
        self.upgrades = DriverUpgrades(
            self.client,
            self.recorder,
            objects=self.objects,
            reports=self.reports,
            tools=UpgradeTools(
                namespace=NAMESPACE,
                pools=lambda: self.pools,
                pool_taints=lambda _node: self.pool_taints,
                now=lambda: Instant(self.clock.monotonic(), self.clock.utc_now()),
                found=lambda node: self.found.get(node, ()),
            ),
        )

    async def run_pass(self) -> float | None:
        return await self.upgrades.reconcile(KEY)

    async def step(self) -> None:
        """Let a moment pass, in which all others act, and then the leader."""
        await asyncio.sleep(STEP_S)
        await self.tick()
        await self.run_pass()

    async def until(self, *states: str, node: str = "", steps: int = 400) -> None:
        """Go on until the node, or every node, is in one of the states."""
        for _ in range(steps):
            found = await self.states()
            current = {found.get(node, "")} if node else set(found.values())
            if current <= set(states):
                return
            await self.step()
        raise AssertionError(await self.states(), self.reports.by_node())

    def policy(
        self,
        *,
        annotations: "dict[str, str] | None" = None,
        status: "Json | None" = None,
        **fields: Any,
    ) -> None:
        """Write the ClusterPolicy with an upgrade policy of these fields."""
        defaults = {"autoUpgrade": True, "maxParallelUpgrades": 0, "podDeletion": {}}
        spec = {"driver": {"upgradePolicy": defaults | fields}}
        self.put_policy(spec, annotations=annotations, status=status)

    def put_policy(
        self,
        spec: Json,
        *,
        annotations: "dict[str, str] | None" = None,
        status: "Json | None" = None,
    ) -> None:
        meta = {"name": "policy", "uid": self.policy_uid, "annotations": annotations or {}}
        self.objects.policy_store.upsert(
            msgspec.convert({"metadata": meta, "spec": spec, "status": status or {}}, ClusterPolicy)
        )

    def driver(self, name: str, **fields: Any) -> None:
        spec = {"upgradePolicy": {"maxParallelUpgrades": 0} | fields}
        self.objects.driver_store.upsert(
            msgspec.convert({"metadata": {"name": name}, "spec": spec}, NVIDIADriver)
        )

    # What is there

    async def node(self, name: str) -> Json:
        return await self.client.get(NODES, Json, name)

    async def states(self) -> dict[str, str]:
        return {
            name: (node["metadata"].get("labels") or {}).get(UPGRADE_STATE_LABEL, "")
            for name, node in (await self.nodes()).items()
        }

    async def driver_revisions(self) -> dict[str, str]:
        return {
            pod["spec"]["nodeName"]: pod["metadata"]["labels"]["controller-revision-hash"]
            for pod in await self.pods(NAMESPACE)
            if is_driver(pod)
        }

    def writes(self) -> int:
        found = len(self.api.requests.writes())
        self.api.requests.clear()
        return found

    async def marks(self, name: str) -> set[str]:
        """Return what upgrades have left on the node, but for the record and a state of rest."""
        node = await self.node(name)
        meta, labels = node["metadata"], node["metadata"].get("labels") or {}
        found = {"cordoned"} if node.get("spec", {}).get("unschedulable") else set()
        found |= {"withheld"} & {
            "withheld" if UNITS_WITHHELD_ANNOTATION in meta.get("annotations", {}) else ""
        }
        return found | {key for key, value in labels.items() if value == PAUSED_FOR_UPGRADE}

    # What others do

    async def begin(self, nodes: int) -> None:
        for name in (NAMESPACE, TEAM):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            with contextlib.suppress(Exception):
                await self.client.create(NAMESPACES, body)
        await self.roll_out(1)
        body = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": {"app": "agent"}},
                "template": {
                    "metadata": {"labels": {"app": "agent"}},
                    "spec": {
                        "affinity": AGENT_AFFINITY,
                        "containers": [{"name": "agent", "image": "agent"}],
                    },
                },
            },
        }
        written = await self.client.apply(DAEMON_SETS, body, field_manager="test")
        self.agent_uid = written.decode(Json)["metadata"]["uid"]
        for number in range(nodes):
            await self.add_node(f"n{number}")
        for _ in range(3):
            await self.tick()

    async def cordon(self, name: str, *, is_cordoned: bool = True) -> None:
        """What `kubectl cordon` writes."""
        await self.client.merge_patch(
            NODES, {"spec": {"unschedulable": is_cordoned or None}}, name=name
        )

    async def add_pod(
        self,
        node: str,
        *,
        owner: str = "ReplicaSet",
        resource: str = "gpu.deckhouse.io/whole",
        has_cache: bool = False,
        **labels: str,
    ) -> str:
        """Let a pod of a GPUPool, or that requests another resource, run on the node."""
        name = f"train-{next(self._numbers)}"
        resources = {"limits": {resource: "1"}}
        container = {"name": "c", "image": "cuda", "resources": resources}
        meta: Json = {"name": name, "namespace": TEAM, "labels": {"app": "train"} | labels}
        if owner:
            meta["ownerReferences"] = [self._owner(owner, "train", "owner-uid")]
        volumes = [{"name": "cache", "csi": {"driver": DRIVER_NAME}}] if has_cache else []
        await self._create(meta, {"nodeName": node, "containers": [container], "volumes": volumes})
        await self._set_ready(TEAM, name)
        return name

    async def serve_policy(self) -> None:
        """Let the API server have the ClusterPolicy, whose status shows upgrades."""
        await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_operator_crds()[0])
        meta = {"name": "policy"}
        blocks = "operator daemonsets driver toolkit devicePlugin dcgmExporter dcgm nodeStatusExporter gfd"
        body = {
            "apiVersion": CLUSTER_POLICIES.api_version,
            "kind": CLUSTER_POLICIES.kind,
            "metadata": meta,
            "spec": {name: {} for name in blocks.split()},
        }
        written = await self.client.create(CLUSTER_POLICIES, body)
        self.policy_uid = written.decode(Json)["metadata"]["uid"]
        await self.client.merge_patch(
            CLUSTER_POLICIES,
            {"status": {"state": "notReady", "namespace": NAMESPACE}},
            name="policy",
            subresource="status",
        )

    async def serve_claims(self) -> None:
        """Let the API server have Dynamic Resource Allocation."""
        kinds = {"plural": "resourceclaims", "singular": "resourceclaim", "kind": "ResourceClaim"}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "resourceclaims.resource.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
            },
            "spec": {
                "group": "resource.k8s.io",
                "scope": "Namespaced",
                "names": kinds | {"listKind": "ResourceClaimList"},
                "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
            },
        }
        await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)

    async def add_claiming_pod(self, node: str, *, driver: str) -> str:
        """Let a pod run on the node that has a device by a claim."""
        name = f"claiming-{next(self._numbers)}"
        results = [{"driver": driver, "pool": "p", "device": "d", "request": "r"}]
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": TEAM},
            "status": {"allocation": {"devices": {"results": results}}},
        }
        await self.client.create(RESOURCE_CLAIMS, body)
        owners = [self._owner("ReplicaSet", "web", "web-uid")]
        meta = {"name": name, "namespace": TEAM, "ownerReferences": owners}
        spec = {
            "nodeName": node,
            "containers": [{"name": "c", "image": "cuda"}],
            "resourceClaims": [{"name": "device", "resourceClaimName": name}],
        }
        await self._create(meta, spec)
        await self._set_ready(TEAM, name)
        return name

    async def add_budget(self, *, allowed: int) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "train", "namespace": TEAM},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}},
        }
        await self.client.create(POD_DISRUPTION_BUDGETS, body)
        await self.allow(allowed)

    async def allow(self, allowed: int) -> None:
        status = {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 1 + allowed,
            "observedGeneration": 1,
        }
        await self.client.merge_patch(
            POD_DISRUPTION_BUDGETS,
            {"status": status},
            name="train",
            namespace=TEAM,
            subresource="status",
        )


@asynccontextmanager
async def an_upgrade_run(nodes: int = 1, **policy: Any) -> AsyncIterator[UpgradeRun]:
    """Nodes with a driver of revision 1 that is up to date, and a policy with autoUpgrade."""
    async with an_api_with_client() as (api, client):
        run = UpgradeRun(api, client)
        await run.begin(nodes)
        run.policy(**policy)
        await run.until("upgrade-done")
        run.recorder.taken()
        listing = await client.list_(NODES, Json)
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(run.observer.watch(client, listing.resource_version))
            yield run
            watch.cancel()
