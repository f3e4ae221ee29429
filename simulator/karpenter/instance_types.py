"""Instance types of a cloud that has GPUs, with their offerings: zone, capacity type and price.

Names, sizes and prices are made up; those of the tests' real Karpenter are the same.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from api.foreign.karpenter import CAPACITY_TYPE_LABEL
from api.quantity import parse_milli
from api.vendor import GPU_RESOURCE
from api.well_known_labels import ARCH_LABEL, INSTANCE_TYPE_LABEL, OS_LABEL, ZONE_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """An instance type in one zone under one capacity type."""

    zone: str
    capacity_type: str
    price_milli: int
    """Price of an hour, in thousandths."""

    @property
    def labels(self) -> dict[str, str]:
        return {ZONE_LABEL: self.zone, CAPACITY_TYPE_LABEL: self.capacity_type}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """A kind of machine."""

    name: str
    resources: "Mapping[str, str]"
    """Quantities that pods can request of a node."""
    offerings: tuple[Offering, ...]
    gpus: int = 0
    """GPUs that a node has; a node reports them by its agent, or by the resource nvidia.com/gpu."""
    labels: "Mapping[str, str]" = field(default_factory=dict)

    @property
    def all_labels(self) -> dict[str, str]:
        fixed = {INSTANCE_TYPE_LABEL: self.name, ARCH_LABEL: "amd64", OS_LABEL: "linux"}
        return fixed | dict(self.labels)

    @property
    def allocatable_milli(self) -> dict[str, int]:
        return {name: parse_milli(text) for name, text in self.resources.items()}


def _gpu_instance_type(gpus: int) -> InstanceType:
    """Return `gpu-<gpus>x`: 16 CPUs, 128 GiB and 2.00 an hour for each GPU, in two zones; a spot node costs a third."""
    resources = {
        "cpu": str(16 * gpus),
        "memory": f"{128 * gpus}Gi",
        "pods": "110",
        GPU_RESOURCE: str(gpus),
    }
    offerings = tuple(
        Offering(zone=zone, capacity_type=kind, price_milli=cost)
        for zone in ("zone-a", "zone-b")
        for kind, cost in (("on-demand", gpus * 2000), ("spot", gpus * 2000 // 3))
    )
    return InstanceType(name=f"gpu-{gpus}x", resources=resources, offerings=offerings, gpus=gpus)


INSTANCE_TYPES: Final = tuple(map(_gpu_instance_type, (1, 2, 4, 8)))
