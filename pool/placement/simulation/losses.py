"""Fragmentation of a simulated cluster: the sum over its nodes, of which a changed one is measured again."""

from typing import TYPE_CHECKING

from pool.placement.fragmentation.expected_loss import ExpectedLoss

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pool.placement.fragmentation.target_workload import TargetWorkload


class Losses:
    """Expected loss of each node, and their sum."""

    def __init__(self, targets: "Mapping[str, TargetWorkload]") -> None:
        """Start without nodes.

        Args:
            targets: by pool, the demand by which its devices are measured.
        """
        self._by_pool = {pool: ExpectedLoss(target) for pool, target in targets.items()}
        self._by_node: dict[int, float] = {}
        self.total_milli: float = 0

    def measure(
        self, node: int, free: "Mapping[str, Sequence[int]]", *, model: str, cpu_milli: int
    ) -> None:
        """Measure a node that is new or has changed.

        Args:
            node: its index.
            free: by pool, the free milli of each device.
            model: of its devices.
            cpu_milli: its free CPU.
        """
        loss = sum(
            self._by_pool[pool].of(model, cpu_milli, of_pool) for pool, of_pool in free.items()
        )
        self.total_milli += loss - self._by_node.get(node, 0)
        self._by_node[node] = loss
