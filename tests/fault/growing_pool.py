"""A pool that scales, and Karpenter's double: nodes come and go in a run while everything else fails.

Its pods are made like any others; the oracle judges their units too. When nothing happens any more, nothing of a
request is left: no signal, no gate of ours, no startup taint.
"""

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final, final

from tests.cluster.environment import binaries, client
from tests.cluster.system import installation
from tests.cluster.system.objects import POOLS
from tests.fault.observations import PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.cluster.environment import control_plane as control_planes
    from tests.cluster.environment import processes

    Insist = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]

NODE_POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
NODE_CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
NODE_POOL_LABEL: Final = "karpenter.sh/nodepool"
TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
TYPE: Final = "gpu-2x"
DEVICES: Final = 2
GATE: Final = f"{PREFIX}capacity"
STARTUP_TAINT: Final = f"{PREFIX}agent-not-ready"


@final
class GrowingPool:
    """Pool and NodePool are both called `name`."""

    def __init__(
        self, api: client.ApiClient, control_plane: "control_planes.ControlPlane", name: str
    ) -> None:
        self.name = name
        self._api = api
        self._cloud: processes.ChildProcess = control_plane.run.child(
            f"{name}-cloud",
            [
                sys.executable,
                *("-m", "tests.fault.cloud"),
                *("--kubeconfig", str(control_plane.kubeconfig())),
            ],
            env={"PYTHONPATH": str(binaries.ROOT)},
        )

    @contextlib.contextmanager
    def played(self) -> "Iterator[None]":
        """Run Karpenter and what runs on its nodes."""
        self._cloud.start()
        try:
            yield
        finally:
            self._cloud.kill9()

    async def kill_karpenter(self) -> None:
        """Kill Karpenter and the agents of its nodes, and start them again: they remember nothing."""
        self._cloud.kill9()
        self._cloud.start()

    async def take_node(self) -> None:
        """Delete a NodeClaim whose node serves pods: Karpenter drains the node and ends it."""
        with contextlib.suppress(client.ApiRefusedError, TimeoutError):
            for claim in (await self._api.get(NODE_CLAIMS, labelSelector=self._label))["items"]:
                conditions = claim.get("status", {}).get("conditions", ())
                is_ready = any(
                    (condition["type"], condition["status"]) == ("Ready", "True")
                    for condition in conditions
                )
                if is_ready and "deletionTimestamp" not in claim["metadata"]:
                    await self._api.delete(f"{NODE_CLAIMS}/{claim['metadata']['name']}")
                    return

    async def build(self, insist: "Insist") -> None:
        await insist(lambda: self._api.create(NODE_POOLS, self._node_pool()))
        await insist(lambda: self._api.create(POOLS, self._pool()))

    async def release(self) -> list[str]:
        """Let what is left of nodes go without Karpenter; return the paths of what is to be deleted."""
        freed = {"metadata": {"finalizers": None}}
        paths = [f"{POOLS}/{self.name}", f"{NODE_POOLS}/{self.name}"]
        for collection in (NODE_CLAIMS, "/api/v1/nodes"):
            with contextlib.suppress(client.ApiRefusedError):
                found = await self._api.get(collection, labelSelector=self._label)
                for item in found["items"]:
                    paths.append(f"{collection}/{item['metadata']['name']}")
                    with contextlib.suppress(client.ApiRefusedError):
                        await self._api.patch(paths[-1], freed)
        return paths

    async def left_over(self, pods: str) -> "list[str]":
        """Return what is left of requests for nodes; `pods` is the path of the run's pods."""
        signals = await self._api.get(
            f"/api/v1/namespaces/{installation.NAMESPACE}/pods",
            labelSelector=f"{PREFIX}scaling-pool={self.name}",
        )
        gated = [
            pod
            for pod in (await self._api.get(pods))["items"]
            if any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())
        ]
        nodes = (await self._api.get("/api/v1/nodes", labelSelector=self._label))["items"]
        tainted = [
            node
            for node in nodes
            if any(taint["key"] == STARTUP_TAINT for taint in node["spec"].get("taints") or ())
        ]
        return [
            f"{what} {entry['metadata']['name']}"
            for what, item in (
                ("signal", signals["items"]),
                ("gated pod", gated),
                ("node with the startup taint", tainted),
            )
            for entry in item
        ]

    @property
    def _label(self) -> str:
        return f"{NODE_POOL_LABEL}={self.name}"

    def _node_pool(self) -> dict[str, Any]:
        requirements = [
            {"key": f"{PREFIX}scale-request", "operator": "Exists"},
            {"key": TYPE_LABEL, "operator": "In", "values": [TYPE]},
        ]
        spec = {
            "nodeClassRef": {"group": "cloud.example", "kind": "NodeClass", "name": "any"},
            "requirements": requirements,
            "startupTaints": [{"key": STARTUP_TAINT, "effect": "NoSchedule"}],
        }
        disruption = {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "5s",
            "budgets": [{"nodes": "100%"}],
        }
        return {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": self.name},
            "spec": {"template": {"spec": spec}, "disruption": disruption},
        }

    def _pool(self) -> dict[str, Any]:
        requirement = {"key": TYPE_LABEL, "operator": "In", "values": [TYPE]}
        shape = {
            "name": "two",
            "devices": DEVICES,
            "nodePool": self.name,
            "requirements": [requirement],
        }
        return {
            "apiVersion": "gpu.deckhouse.io/v1alpha1",
            "kind": "GPUPool",
            "metadata": {"name": self.name},
            "spec": {
                "allocation": {"mode": "Exclusive"},
                "assignment": {"requireAnnotation": False},
                "nodeSelector": {"matchLabels": {NODE_POOL_LABEL: self.name}},
                "reservation": {"ttl": "15s"},
                # A run makes and ends pods all the time, each with a node.
                "autoscaling": {"shapes": [shape], "maxNodesPerHour": 600},
            },
        }
