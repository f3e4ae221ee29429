"""The port of `tests.support.scaling_stories` on the real Kubernetes: our server as installed, Karpenter, kube-scheduler."""

from typing import TYPE_CHECKING, Any, final

from simulator.node.joining_nodes import NodeBehaviour
from tests.cluster.environment import karpenter, karpenter_capacity, pods
from tests.cluster.environment.client import ApiRefusedError
from tests.cluster.system.objects import API, DEVICES, POOLS

if TYPE_CHECKING:
    from kube.client import KubeClient
    from tests.cluster.environment.client import ApiClient
    from tests.cluster.system.installation import GpuSystem

MIG_SLICES = 7
"""Instances of a device at the most."""
NODE_CLASS = "stories"
"""Of all NodePools of stories: its nodes register at once."""


@final
class RealScalingCluster:
    """One for each story; processes are those of the package."""

    def __init__(  # the parts of a cluster
        self,
        api: "ApiClient",
        client: "KubeClient",
        *,
        namespace: str,
        system: "GpuSystem",
        autoscaler: karpenter.Karpenter,
        behaviour: dict[str, NodeBehaviour],
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.api = api
        self._behaviour = behaviour
        self._system = system
        self._autoscaler = autoscaler

    def node_class(self, _node_pool: str) -> dict[str, Any]:
        return {**karpenter.NODE_CLASS_KIND, "name": NODE_CLASS}

    async def set_capacity(self, node_pool: str, *, is_available: bool) -> None:
        change = (
            karpenter_capacity.give_capacity if is_available else karpenter_capacity.take_capacity
        )
        await change(self.api, node_pool)

    async def set_nodes(
        self, node_pool: str, *, devices_after_s: float | None, mig_profile: str = ""
    ) -> None:
        self._behaviour[node_pool] = NodeBehaviour(
            devices_after_s=devices_after_s,
            mig_profile=mig_profile,
            mig_instances=MIG_SLICES // int(mig_profile[0]) if mig_profile else 0,
        )

    async def finish(self, name: str) -> None:
        await pods.finish_pod(self.api, self.namespace, name)

    async def clear(self) -> None:
        """Delete what a story that failed has left: pools, NodePools and the nodes of these."""
        for path in (POOLS, pods.collection(self.namespace)):
            for item in (await self.api.get(path))["items"]:
                try:
                    await self.api.delete(f"{path}/{item['metadata']['name']}")
                except ApiRefusedError as refused:
                    if refused.status != 404:  # it is going already
                        raise
        await karpenter.remove_node_pools(self.api)

    async def devices(self) -> str:
        """Describe how devices and their nodes stand, for a story that failed."""
        lines = []
        for path in (DEVICES, f"{API}/gpunodeinventories"):
            for entry in (await self.api.get(path))["items"]:
                current = [
                    f"{item['type']}={item['status']}/{item['reason']}: {item.get('message', '')}"
                    for item in entry.get("status", {}).get("conditions") or []
                ]
                lines.append(f"{entry['metadata']['name']}: {'; '.join(current)}")
        return "\n".join(lines)

    async def kill_server(self) -> None:
        await self._system.crash_server()
        await self._system.server.start()

    async def kill_karpenter(self) -> None:
        self._autoscaler.process.kill9()
        await self._autoscaler.start()
