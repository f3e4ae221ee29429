"""A fake node agent: publishes the node's devices by its NodeFeature (`api.foreign.nodefeature`)."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.foreign.nodefeature import (
    AGENT_ATTRIBUTES,
    AGENT_INSTANCES,
    HEARTBEAT_ANNOTATION,
    NODE_NAME_LABEL,
    AgentDevice,
    AgentNode,
)
from api.kinds.gpudevice import LastXid
from api.status_conditions import format_time
from api.vendor import ACCELERATOR, NVIDIA
from inventory.health.recovery import RecoveryAction
from kube.resources import NODE_FEATURES
from simulator.node.nfd import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.clock import Clock
    from kube.client import KubeClient

FIELD_MANAGER: Final = "gpu-control-plane/agent"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FakeDevice:
    """A device as its driver reports it."""

    uuid: str
    address: str
    product: str
    pci_device: str
    memory_mib: int
    compute_capability: str
    numa_node: int = -1
    """-1: the machine has none, or does not say."""
    fault: str = ""
    """What is wrong with it, such as `Xid 79`; empty for a healthy one."""
    last_xid: LastXid | None = None
    action: RecoveryAction = RecoveryAction.NODE_REBOOT
    """What it needs while something is wrong with it."""
    mig_profile: str = ""
    """Profile of its MIG instances; empty for a device that is not partitioned."""
    mig_instances: int = 0

    def attributes(self) -> dict[str, str]:
        """Return the agent's attributes of the device."""
        return {
            AgentDevice.UUID: self.uuid,
            AgentDevice.ADDRESS: self.address,
            AgentDevice.VENDOR: NVIDIA,
            AgentDevice.DEVICE: self.pci_device,
            AgentDevice.CLASS: ACCELERATOR,
            AgentDevice.PRODUCT: self.product,
            AgentDevice.MEMORY: str(self.memory_mib),
            AgentDevice.COMPUTE_CAPABILITY: self.compute_capability,
            AgentDevice.NUMA_NODE: str(self.numa_node),
            AgentDevice.HEALTH: "Unhealthy" if self.fault else "Healthy",
            AgentDevice.HEALTH_REASON: self.fault,
            AgentDevice.RECOVERY_ACTION: self.action.value if self.fault else "None",
            AgentDevice.LAST_XID: msgspec.json.encode(self.last_xid).decode()
            if self.last_xid
            else "",
            **(self._mig() if self.mig_profile else {}),
        }

    def _mig(self) -> dict[str, str]:
        instances = [
            {"profile": self.mig_profile, "uuid": f"MIG-{self.uuid}-{number}"}
            for number in range(self.mig_instances)
        ]
        return {
            AgentDevice.MIG_CAPABLE: "true",
            AgentDevice.MIG_MODE: "Enabled",
            AgentDevice.MIG_PROFILES: self.mig_profile,
            AgentDevice.MIG_INSTANCES: msgspec.json.encode(instances).decode(),
        }


@final
class FakeNodeAgent:
    """The agent of one node. It writes on request only: a heartbeat stays fresh for two minutes."""

    def __init__(
        self, client: "KubeClient", clock: "Clock", *, node: str, devices: "Sequence[FakeDevice]"
    ) -> None:
        self._client = client
        self._clock = clock
        self._node = node
        self._devices = {device.uuid: device for device in devices}

    async def report(self) -> None:
        """Publish all devices of the node."""
        await self._client.apply(NODE_FEATURES, self._feature(), field_manager=FIELD_MANAGER)

    async def report_fault(self, uuid: str, fault: str) -> None:
        """Publish a fault of a device, such as `Xid 79`; an empty text publishes its recovery."""
        device = replace(self._devices[uuid], fault=fault)
        if fault.startswith("Xid "):
            time = format_time(self._clock.utc_now())
            device = replace(device, last_xid=LastXid(code=int(fault.split()[1]), time=time))
        self._devices[uuid] = device
        await self.report()

    def _feature(self) -> dict[str, Any]:
        versions = {AgentNode.DRIVER_VERSION: "570.86.15", AgentNode.CUDA_VERSION: "12.8"}
        devices = [{"attributes": device.attributes()} for device in self._devices.values()]
        return {
            "apiVersion": NODE_FEATURES.api_version,
            "kind": NODE_FEATURES.kind,
            "metadata": {
                "name": f"gpu-control-plane-agent-{self._node}",
                "namespace": NAMESPACE,
                "labels": {NODE_NAME_LABEL: self._node},
                "annotations": {HEARTBEAT_ANNOTATION: self._clock.utc_now().isoformat()},
            },
            "spec": {
                "labels": {},
                "features": {
                    "flags": {},
                    "attributes": {AGENT_ATTRIBUTES: {"elements": versions}},
                    "instances": {AGENT_INSTANCES: {"elements": devices}},
                },
            },
        }
