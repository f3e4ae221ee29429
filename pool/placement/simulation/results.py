"""What a simulation found: curves over its events, refusals, and the devices that stayed idle and why."""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array


class Mode(Enum):
    """What becomes of a pod that no node can take."""

    DROP = "Drop"
    """It is counted and forgotten, as in the published experiment."""
    WAIT = "Wait"
    """It waits in the order of arrival and is tried again when a pod has ended."""


class RefusalCause(Enum):
    """The first requirement, in this order, that no node met together with those before it."""

    EXCLUDED = "Excluded"
    """No node of the pool is open to the pod: by readiness, labels or taints."""
    MODEL = "Model"
    DEVICES = "Devices"
    TOPOLOGY = "Topology"
    """Nodes have enough free units, and not on devices that the pod may have together."""
    CPU = "Cpu"
    MEMORY = "Memory"
    PODS = "Pods"
    DENIED = "Denied"
    """Admission denies the pod: it never waits."""


class IdleCause(Enum):
    """Why free units stayed free, by the pods that were refused or still wait."""

    NOT_ASKED = "NotAsked"
    """Every pod of the pool was placed."""
    EXCLUDED = "Excluded"
    """The node is not open to such a pod: by readiness, labels or taints."""
    MODEL = "Model"
    """No such pod takes this model."""
    HOLE = "HoleTooSmall"
    """Every such pod asks for more than is free on the device, or for more whole devices than the node has free."""
    TOPOLOGY = "NotTogether"
    """Enough is free on the node, and not on devices that such a pod may have together."""
    CPU = "CpuGone"
    MEMORY = "MemoryGone"
    PODS = "PodsGone"


@dataclass(frozen=True, slots=True)
class Refused:
    """Pods of one size: how many were asked for, and how many were never placed."""

    asked: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Figures after each event, in the order of events; all arrays have one length."""

    time_s: "array[float]"
    arrived_milli: "array[int]"
    """Thousandths of devices, asked for by all pods that have arrived."""
    allocated_milli: "array[int]"
    """Thousandths of devices, that pods of the workload or others before it have."""
    fragmentation_milli: "array[float]"
    """FGD's: expected milli that the next pod of the target workload cannot use."""
    waiting: "array[int]"
    """Pods that wait; 0 with Mode.DROP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of one run."""

    strategy: str
    seed: int
    capacity_milli: int
    """Thousandths of all devices."""
    curve: Curve
    nodes: "array[int]"
    """Nodes by pod: index of its node in the cluster; -1 where it was never placed."""
    devices: tuple[tuple[int, ...], ...]
    """Devices by pod: positions of its devices on that node."""
    waited_s: "array[float]"
    """Seconds of waiting by pod: from arrival to placement; not a number where it was never placed."""
    refused: dict[str, Refused]
    """Refused pods by size of the demand: "cpu only", "share", "1", "2", "4", "8" or another number of devices."""
    refusal_causes: dict[RefusalCause, int]
    """Pods by the cause of their (first) refusal."""
    first_refusal: float | None
    """Arrived demand as a share of the capacity when a pod was refused first; None: never."""
    idle_milli: dict[IdleCause, int]
    """Free at the end, by cause."""

    @property
    def allocation(self) -> float:
        """Allocated share of the devices at the end."""
        allocated = self.curve.allocated_milli
        return allocated[-1] / self.capacity_milli if allocated and self.capacity_milli else 0.0
