"""ClusterPolicies and NVIDIADrivers at an API server in memory, nodes with a GPU, and the leader's controllers of both.

Nothing runs by itself: `observe` shows the world to the process, `until_stable` reconciles until nothing is written. The
DaemonSet controller is played by `roll_out`, which makes the status that it would.
"""

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from api.foreign.core import Node
from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from api.names import (
    DRIVER_OWNER_LABEL,
    NVIDIA_PRESENT_LABEL,
    OPERAND_LABEL,
    NodeName,
)
from api.vendor import NFD_PREFIX
from kube.client import KubeClient
from kube.errors import KubeError
from kube.resources import (
    CLUSTER_POLICIES,
    DAEMON_SETS,
    NODES,
    NVIDIA_DRIVERS,
    PODS,
    RUNTIME_CLASSES,
    Resource,
)
from manifests.nvidia.operator_crds import build_operator_crds
from operands.nvidia.node_software import HostSoftware
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_states import POLICY_STATES
from operands.operand_state import OperandState
from pool.allocation_state import AllocationState
from pool.facts import node_facts
from reconciler.node_software.driver_controller import DriverController
from reconciler.node_software.gpu_nodes import GpuNodes
from reconciler.node_software.objects import RESOURCES
from reconciler.node_software.policy_controller import KEY, PolicyController
from reconciler.settings import NodeSoftwareParameters
from reconciler.sinks.node import NodeSink
from reconciler.sinks.operator_objects import OperatorObjects
from simulator.apiserver.server import InMemoryApiServer
from tests.support.client_of_api import an_api_with_client
from tests.support.listings import replace_listed
from tests.support.loop_clock import ServerClock
from tests.support.recorded_events import RecordedEvents
from tests.unit.operands.operand_cases import EXTERNAL

Json = dict[str, Any]

NAMESPACE: Final = "gpu"
UBUNTU: Final = HostSoftware(os_tag="ubuntu24.04", kernel="6.8.0-60-generic", runtime="containerd")
RHEL: Final = HostSoftware(os_tag="rhel9", kernel="5.14.0-570.el9.x86_64", runtime="cri-o")
IMAGES: Final = {
    f"{name}_IMAGE": f"registry.example.com/{name.lower()}:1"
    for name in (
        "CC_MANAGER",
        "CONTAINER_TOOLKIT",
        "DCGM",
        "DCGM_EXPORTER",
        "DEVICE_PLUGIN",
        "DRIVER",
        "DRIVER_MANAGER",
        "GDRCOPY",
        "GDS",
        "GFD",
        "KATA_SANDBOX_DEVICE_PLUGIN",
        "MIG_MANAGER",
        "NODE_STATUS_EXPORTER",
        "SANDBOX_DEVICE_PLUGIN",
        "VALIDATOR",
        "VFIO_MANAGER",
        "VGPU_DEVICE_MANAGER",
        "VGPU_MANAGER",
    )
}
REQUIRED: Final = (
    "operator",
    "daemonsets",
    "driver",
    "toolkit",
    "devicePlugin",
    "dcgmExporter",
    "dcgm",
    "nodeStatusExporter",
    "gfd",
)
MOST_PASSES: Final = 12


@dataclass
class OperatorWorld:
    """The cluster, and what one process knows of it."""

    api: InMemoryApiServer
    client: KubeClient
    environment: dict[str, str] = field(default_factory=lambda: dict(IMAGES))
    states: Sequence[OperandState[PolicyOperands]] = POLICY_STATES
    built_in: PolicyOperands = EXTERNAL

    def __post_init__(self) -> None:
        self.clock = ServerClock()
        self.recorder = RecordedEvents()
        self._created = itertools.count()
        self.begin_term()

    def begin_term(self) -> None:
        """Let a new leader take over, which remembers nothing."""
        index = AllocationState().index
        self.objects = OperatorObjects()
        self.node_sink = NodeSink(index)
        self.nodes = GpuNodes(index)
        self.labelled: list[NodeName] = []
        parameters = NodeSoftwareParameters(
            is_enabled=True, namespace=NAMESPACE, environment=self.environment
        )
        self.policy = PolicyController(
            self.client,
            self.objects,
            self.nodes,
            parameters=parameters,
            built_in=self.built_in,
            recorder=self.recorder,
            now=self.clock.instant,
            labelled_nodes=lambda: self.labelled,
            states=self.states,
        )
        self.drivers = DriverController(
            self.client,
            self.objects,
            self.nodes,
            parameters=parameters,
            recorder=self.recorder,
            now=self.clock.instant,
        )

    async def observe(self) -> None:
        """Let the process see the world as it is now."""
        policies = await self.client.list_(CLUSTER_POLICIES, ClusterPolicy)
        replace_listed(self.objects.policy_store, policies)
        drivers = await self.client.list_(NVIDIA_DRIVERS, NVIDIADriver)
        replace_listed(self.objects.driver_store, drivers)
        nodes = await self.client.list_as(NODES, Node, node_facts)
        self.node_sink.replace_all(nodes.items)

    async def step(self) -> float | None:
        """Observe, and reconcile every key once; return when the policy's is due again."""
        await self.observe()
        pause = await self.policy.reconcile(KEY)
        for name in sorted(self.objects.drivers):
            await self.drivers.reconcile(name)
        return pause

    async def until_stable(self) -> int:
        """Step until nothing is written; return the number of writes."""
        total = 0
        for _ in range(MOST_PASSES):
            self.writes()
            await self.step()
            if not (found := len(self.writes())):
                return total
            total += found
        raise AssertionError(f"still writing after {MOST_PASSES} passes")

    async def until_stable_in_trouble(self) -> None:
        """Step until nothing is written, whatever fails meanwhile."""
        for _ in range(MOST_PASSES):
            self.writes()
            try:
                await self.step()
            except KubeError:
                continue
            if not self.writes():
                return
        raise AssertionError(f"still writing after {MOST_PASSES} passes")

    def writes(self) -> list[tuple[str, str]]:
        """Return method and path of every write since the last call."""
        found = [(write.method, write.path) for write in self.api.requests.writes()]
        self.api.requests.clear()
        return found

    # --- what is there ---------------------------------------------------------------------------

    async def found(
        self, resource: Resource, *, selector: str | None = OPERAND_LABEL
    ) -> list[Json]:
        listing = await self.client.list_(
            resource,
            dict[str, Any],
            namespace=NAMESPACE if resource.namespaced else None,
            label_selector=selector,
        )
        return list(listing.items)

    async def names(self) -> set[tuple[str, str]]:
        """Return kind and name of every object of the node software."""
        return {
            (kind, object_["metadata"]["name"])
            for kind, resource in RESOURCES.items()
            for object_ in await self.objects_of(resource)
        }

    async def objects_of(self, resource: Resource) -> list[Json]:
        try:
            return await self.found(resource)
        except KubeError:
            return []  # a kind that is not served

    async def daemon_set(self, name: str) -> Json:
        return await self.client.get(DAEMON_SETS, dict[str, Any], name, namespace=NAMESPACE)

    async def status_of(self, name: str = "gpus") -> Json:
        return await self._status(CLUSTER_POLICIES, name)

    async def driver_status(self, name: str) -> Json:
        return await self._status(NVIDIA_DRIVERS, name)

    async def _status(self, resource: Resource, name: str) -> Json:
        found = await self.client.get(resource, dict[str, Any], name)
        status: Json = found.get("status", {})
        return status

    async def state_of(self, state: str, policy: str = "gpus") -> Json:
        """Return the status of a state."""
        status = await self.status_of(policy)
        (found,) = [item for item in status["states"] if item["name"] == state]
        return dict(found)

    async def conditions_of(self, name: str = "gpus") -> dict[str, tuple[str, str]]:
        """Return status and reason of each condition."""
        return conditions_in(await self.status_of(name))

    # --- what others do --------------------------------------------------------------------------

    async def add_policy(self, name: str = "gpus", **spec: Any) -> None:
        body = {
            "apiVersion": CLUSTER_POLICIES.api_version,
            "kind": "ClusterPolicy",
            "metadata": {"name": name},
            "spec": {key: {} for key in REQUIRED} | spec,
        }
        await self.client.create(CLUSTER_POLICIES, body)

    async def change_policy(self, name: str = "gpus", **spec: Any) -> None:
        await self.client.merge_patch(CLUSTER_POLICIES, {"spec": spec}, name=name)

    async def add_driver(self, name: str, **spec: Any) -> None:
        body = {
            "apiVersion": NVIDIA_DRIVERS.api_version,
            "kind": "NVIDIADriver",
            "metadata": {"name": name},
            "spec": {
                "driverType": "gpu",
                "repository": "registry.example.com",
                "image": "driver",
                "version": "580.95",
                **spec,
            },
        }
        await self.client.create(NVIDIA_DRIVERS, body)

    async def add_node(
        self,
        name: str = "n1",
        *,
        software: HostSoftware | None = UBUNTU,
        has_nfd: bool = True,
        owner: str = "",
        **labels: str,
    ) -> None:
        """Add a node as `node.deploy-labels` leaves it; without software it has no GPU."""
        found: dict[str, str] = {**labels}
        if has_nfd:
            found[f"{NFD_PREFIX}kernel-version.full"] = "6.8.0"
        if software is not None:
            gates = {
                f"nvidia.com/gpu.deploy.{gate}": "true"
                for gate in (
                    "driver",
                    "gpu-feature-discovery",
                    "container-toolkit",
                    "device-plugin",
                    "dcgm",
                    "dcgm-exporter",
                    "node-status-exporter",
                    "operator-validator",
                )
            }
            found |= {NVIDIA_PRESENT_LABEL: "true", **software.labels(), **gates}
        if owner:
            found[DRIVER_OWNER_LABEL] = owner
        await self.client.create(
            NODES,
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": found}},
        )
        await self.set_ready(name)

    async def set_ready(self, name: str, status: str = "True") -> None:
        body = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        await self.client.merge_patch(NODES, body, name=name, subresource="status")

    async def label_node(self, name: str, **labels: str | None) -> None:
        await self.label(name, labels)

    async def label(self, name: str, labels: Mapping[str, str | None]) -> None:
        await self.client.merge_patch(NODES, {"metadata": {"labels": dict(labels)}}, name=name)

    async def roll_out(self, *, missing: Mapping[str, int] = {}) -> None:
        """Give every DaemonSet the status of pods that are ready, but for some nodes of those named."""
        await self.observe()
        labels = [node.labels for node in self.node_sink._index.nodes.values()]
        for item in await self.found(DAEMON_SETS):
            meta, pod = item["metadata"], item["spec"]["template"]["spec"]
            selector = pod.get("nodeSelector") or {}
            total = sum(
                all(label.get(key) == value for key, value in selector.items()) for label in labels
            )
            ready = total - missing.get(meta["name"], 0)
            status = {
                "observedGeneration": meta["generation"],
                "currentNumberScheduled": total,
                "desiredNumberScheduled": total,
                "numberMisscheduled": 0,
                "updatedNumberScheduled": total,
                "numberReady": ready,
                "numberAvailable": ready,
                "numberUnavailable": total - ready,
            }
            await self.client.merge_patch(
                DAEMON_SETS,
                {"status": status},
                name=meta["name"],
                namespace=NAMESPACE,
                subresource="status",
            )

    async def add_waiting_pod(
        self, daemon_set: Json, node: str, *, reason: str, message: str
    ) -> None:
        """Add a pod of a DaemonSet whose container cannot start."""
        waiting = {"reason": reason, "message": message}
        status = {
            "phase": "Pending",
            "containerStatuses": [{"name": "c", "ready": False, "state": {"waiting": waiting}}],
        }
        await self.add_daemon_pod(daemon_set, node, status)

    async def add_daemon_pod(self, daemon_set: Json, node: str, status: Json) -> None:
        """Add a pod of a DaemonSet."""
        meta = daemon_set["metadata"]
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        name = f"{meta['name']}-{node}".replace(".", "-")
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": daemon_set["spec"]["selector"]["matchLabels"],
                "ownerReferences": [owner],
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "image": "registry.example.com/c:1"}],
            },
        }
        await self.client.create(PODS, body)
        await self.client.merge_patch(
            PODS, {"status": status}, name=name, namespace=NAMESPACE, subresource="status"
        )

    async def ready(self) -> None:
        """Bring everything up: applied, pods ready, and the status says so."""
        await self.until_stable()
        await self.roll_out()
        await self.until_stable()
        self.writes()


def conditions_in(status: Json) -> dict[str, tuple[str, str]]:
    return {
        condition["type"]: (condition["status"], condition["reason"])
        for condition in status["conditions"]
    }


@asynccontextmanager
async def an_operator_world(
    states: Sequence[OperandState[PolicyOperands]] = POLICY_STATES,
) -> AsyncIterator[OperatorWorld]:
    """Yield a cluster with both kinds."""
    async with an_api_with_client(namespace=NAMESPACE, definitions=build_operator_crds()) as (
        api,
        client,
    ):
        yield OperatorWorld(api, client, states=states)


def a_foreign(resource: Resource, name: str, **metadata: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, **metadata},
    }
    if resource.namespaced:
        body["metadata"]["namespace"] = NAMESPACE
    if resource == DAEMON_SETS:
        body["spec"] = {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "registry.example.com/dcgm:1"}]},
            },
        }
    if resource == RUNTIME_CLASSES:
        body["handler"] = "runc"
    return body
