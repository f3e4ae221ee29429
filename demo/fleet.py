"""Machines of a demo's cluster: nodes, their devices as drivers report them, and what the cluster has beside them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

from api.names import NodeName
from api.vendor import NFD_KERNEL_LABEL, NFD_PRESENT_LABELS, NFD_SYSTEM_PREFIX
from inventory.identity import device_name
from simulator.node.node_agent import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIRST_BUS: Final = 0x17
"""PCI bus of a node's first device."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSystem:
    """What a node runs, as Node Feature Discovery and kubelet tell it."""

    os: str
    """ID and VERSION_ID of its os-release, such as `ubuntu 22.04`."""
    kernel: str
    runtime: str
    """Such as `containerd://2.1.4`."""

    def labels(self) -> dict[str, str]:
        """Return the labels of Node Feature Discovery."""
        name, version = self.os.split()
        return {
            NFD_PRESENT_LABELS[0]: "true",
            NFD_KERNEL_LABEL: self.kernel,
            f"{NFD_SYSTEM_PREFIX}ID": name,
            f"{NFD_SYSTEM_PREFIX}VERSION_ID": version,
            f"{NFD_SYSTEM_PREFIX}VERSION_ID.major": version.partition(".")[0],
        }

    def node_info(self) -> dict[str, str]:
        return {"kernelVersion": self.kernel, "containerRuntimeVersion": self.runtime}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What a cluster is made of."""

    nodes: tuple[str, ...]
    """They are prepared from the start, and join when they are told to."""
    devices_of: "Callable[[str], list[FakeDevice]]"
    """Devices by the node's name, also of nodes that an autoscaler adds."""
    namespaces: tuple[str, ...]
    """Namespaces of users, besides `default`."""
    has_caches: bool
    """Whether nodes serve kernel caches from a registry."""
    elastic: str = ""
    """NodePool from which Karpenter adds nodes; empty without Karpenter."""
    systems: "Mapping[str, MachineSystem]" = field(default_factory=dict)
    """Systems of nodes whose software a ClusterPolicy brings; empty: every node has its software."""


class DeviceModel(NamedTuple):
    product: str
    pci_device: str
    memory_mib: int
    compute_capability: str


H200: Final = DeviceModel("NVIDIA H200", "2335", 143771, "9.0")
H100: Final = DeviceModel("NVIDIA H100", "2330", 81559, "9.0")
L40S: Final = DeviceModel("NVIDIA L40S", "26b9", 46068, "8.9")
A10: Final = DeviceModel("NVIDIA A10", "2236", 23028, "8.6")
L4: Final = DeviceModel("NVIDIA L4", "27b8", 23034, "8.9")


def a_device(
    model: DeviceModel,
    node: str,
    number: int,
    *,
    numa_node: int = -1,
    mig: tuple[str, int] = ("", 0),
) -> FakeDevice:
    """Return a device of a node; `mig` has the profile and the number of its instances."""
    return FakeDevice(
        uuid=f"GPU-{node}-{number}",
        address=f"0000:{FIRST_BUS + number:02x}:00.0",
        product=model.product,
        pci_device=model.pci_device,
        memory_mib=model.memory_mib,
        compute_capability=model.compute_capability,
        numa_node=numa_node,
        mig_profile=mig[0],
        mig_instances=mig[1],
    )


def name_of(device: FakeDevice, node: str) -> str:
    """Return the name of the GPUDevice that the inventory creates for a device."""
    return device_name(NodeName(node), device.address)
