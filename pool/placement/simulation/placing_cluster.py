"""What the engine asks of a cluster: place a pod, take its end, and tell figures.

A copy of a live allocation state answers with the server's own decisions; it is the command's
(`cli.simulation.workload.snapshot_cluster`), since those decisions are above this package. The bench has another one,
for the nodes of a trace.
"""

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from pool.placement.simulation.model import PoolSize
    from pool.placement.simulation.results import IdleCause, RefusalCause


class PlacedPod(msgspec.Struct, frozen=True, gc=False):
    """Where a pod is."""

    node: int
    """Index in the cluster."""
    devices: tuple[int, ...] = ()
    """Positions on the node."""


class PodDemand(msgspec.Struct, frozen=True):
    """A pod's demand in terms of the cluster."""

    kind: "Hashable"
    """Pods of one kind fit the same nodes at any time."""
    size: str
    """Name of the size, by which refusals are counted."""
    pool: str = ""
    """Empty: it asks for no devices."""
    milli: int = 0
    """Thousandths of all devices."""
    priority: int = 0
    """Priority; the waiting pod with the highest is tried first."""


class PlacingCluster(Protocol):
    """A cluster and the pods of one workload, which are known by their number in it."""

    @property
    def strategy(self) -> str:
        """Name of the strategy by which pods are placed."""

    @property
    def demands(self) -> "Sequence[PodDemand]":
        """What each pod asks for."""

    @property
    def node_count(self) -> int:
        """How many nodes there are."""

    @property
    def sizes(self) -> "Sequence[PoolSize]":
        """The pools at the start."""

    @property
    def capacity_milli(self) -> int:
        """Return the thousandths of all devices."""

    @property
    def taken_milli(self) -> int:
        """Return the thousandths of devices that others than the pods of the workload have."""

    @property
    def fragmentation_milli(self) -> float:
        """FGD's measure now: expected milli that the next pod of the workload cannot use."""

    def place(self, number: int) -> "PlacedPod | RefusalCause":
        """Place a pod that arrives, or say why no node takes it."""

    def place_on(self, number: int, node: int) -> PlacedPod | None:
        """Place a waiting pod on a node where another one has ended; None where it does not fit even now."""

    def release(self, number: int) -> None:
        """Take the end of a pod, or that a refused one does not wait."""

    def notes(self) -> "Sequence[str]":
        """Say what of the cluster is left out, and what was found beside the figures."""

    def idle(self, unplaced: "Sequence[int]") -> "dict[IdleCause, int]":
        """Return the free milli of all devices by cause, given the pods that were never placed."""
