"""How a new driver reaches the nodes: how many at once, and what becomes of their pods."""

from typing import Final

from api.kinds.nvidia.operand_block import Count
from api.meta import SparseModel

DEFAULT_MAX_UNAVAILABLE: Final = "25%"


class PodDeletion(SparseModel, frozen=True):
    """Eviction of the pods that use devices of the node."""

    force: bool = False
    """Whether pods without a controller are deleted too."""
    timeout_seconds: Count = 300
    """How long the node waits for its pods to go; 0: for ever."""
    delete_empty_dir: bool = False
    """Whether pods with an emptyDir volume are deleted too, whose content is lost."""


class WaitForCompletion(SparseModel, frozen=True):
    """Pods whose end a node awaits before anything happens to it."""

    pod_selector: str = ""
    """Label selector of the pods; empty: none is awaited."""
    timeout_seconds: Count = 0
    """How long they are awaited; 0: for ever."""


class Drain(SparseModel, frozen=True):
    """Drain of the node, where the eviction of its GPU pods does not suffice."""

    enable: bool = False
    """Whether the node is drained."""
    force: bool = False
    """Whether pods without a controller are deleted too."""
    pod_selector: str = ""
    """Label selector of the pods that are evicted; empty: all."""
    timeout_seconds: Count = 300
    """How long the drain may take; 0: for ever."""
    delete_empty_dir: bool = False
    """Whether pods with an emptyDir volume are deleted too, whose content is lost."""


class ClusterUpgradePolicy(SparseModel, frozen=True):
    """Upgrade of the driver of a ClusterPolicy; without `podDeletion` no pod is evicted for it."""

    auto_upgrade: bool = False
    """Whether nodes get a new driver by themselves; otherwise the other fields have no effect."""
    max_parallel_upgrades: Count = 1
    """Nodes that are upgraded at a time; 0: no limit."""
    max_unavailable: int | str = DEFAULT_MAX_UNAVAILABLE
    """Nodes with the driver that may be unavailable at a time: a number, or a percentage, rounded up. With 0 no
    node is upgraded."""
    pod_deletion: PodDeletion | None = None
    """Eviction of the pods that use devices of the node."""
    wait_for_completion: WaitForCompletion | None = None
    """Pods whose end the node awaits first."""
    drain: Drain | None = None
    """Drain of the node."""


class DriverUpgradePolicy(ClusterUpgradePolicy, frozen=True):
    """Upgrade of the driver of an NVIDIADriver."""

    auto_upgrade: bool = True
    """Whether nodes get a new driver by themselves; otherwise the other fields have no effect."""
    pod_deletion: PodDeletion | None = PodDeletion()
    """Eviction of the pods that use devices of the node."""
    wait_for_completion: WaitForCompletion | None = WaitForCompletion()
    """Pods whose end the node awaits first."""
    drain: Drain | None = Drain()
    """Drain of the node."""
