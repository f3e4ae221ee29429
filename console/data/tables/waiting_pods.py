"""Pods that wait for units, in the order in which kube-scheduler takes them: by priority, then by age.

A pod that leaves moves all behind it. The first ones of a pool show that at once, the others a few at a time.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from console.data.tables.pod_rows import waits

if TYPE_CHECKING:
    from api.names import PodUid
    from console.data.state.cluster import ClusterState
    from pool.model import PodFacts

    _Place = tuple[int, str, str, PodUid]
    """Sort key: priority, creation, namespace/name, uid."""

FIRST: Final = 100
"""Positions that are shown at once."""
FURTHER: Final = 50
"""Positions behind them that are compared in one go."""


@dataclass(slots=True)
class _Comparison:
    """Positions behind the first ones, compared with those that are shown."""

    place: int = FIRST
    is_repeated: bool = False
    """Whether the order has changed meanwhile."""


@final
class WaitingPods:
    """All of them, by the resource that they ask for."""

    def __init__(self, cluster: "ClusterState") -> None:
        self._cluster = cluster
        self._order: dict[str, list[_Place]] = {}
        self._places: dict[PodUid, tuple[str, _Place]] = {}
        # pod -> its resource, and its key in the order
        self._positions: dict[PodUid, int] = {}
        # pod -> the position in its row
        self._comparisons: dict[str, _Comparison] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self._places

    def __len__(self) -> int:
        return len(self._places)

    @property
    def has_moved(self) -> bool:
        """Whether positions are still to be compared with those that are shown."""
        return bool(self._comparisons)

    def resource_of(self, uid: "PodUid") -> str | None:
        """Return what a pod waits for; None where it does not wait."""
        current = self._places.get(uid)
        return current[0] if current is not None else None

    def update(self, uid: "PodUid") -> None:
        """Update a pod that has changed."""
        pod = self._cluster.reader.pods.get(uid)
        before = self._places.get(uid)
        after = None
        if pod is not None and waits(self._cluster, pod):
            after = (pod.demand.resource, _place_of(pod))
        if before != after:
            self._remove(uid)
            if after is not None:
                self._places[uid] = after
                insort(self._order.setdefault(after[0], []), after[1])
                self._note_move(after[0])

    def position(self, uid: "PodUid") -> int:
        """Return the position of a pod, from 1; 0 where it does not wait."""
        current = self._places.get(uid)
        return 0 if current is None else bisect_left(self._order[current[0]], current[1]) + 1

    def show(self, uid: "PodUid") -> int:
        """Return the position of a pod that waits; from now on it is the one that is shown."""
        position = self._positions[uid] = self.position(uid)
        return position

    def moved(self) -> "list[PodUid]":
        """Return pods with another position than the published one: of the first ones all, and some of the others."""
        found: list[PodUid] = []
        for resource, comparison in list(self._comparisons.items()):
            order = self._order.get(resource, [])
            found += self._differing(order, 0, FIRST)
            end = comparison.place + FURTHER
            found += self._differing(order, comparison.place, end)
            comparison.place = end
            if end >= len(order):
                if comparison.is_repeated:
                    self._comparisons[resource] = _Comparison()
                else:
                    del self._comparisons[resource]
        return found

    def _differing(self, order: "list[_Place]", start: int, end: int) -> "list[PodUid]":
        return [
            place[-1]
            for position, place in enumerate(order[start:end], start + 1)
            if self._positions.get(place[-1]) != position
        ]

    def _remove(self, uid: "PodUid") -> None:
        current = self._places.pop(uid, None)
        self._positions.pop(uid, None)
        if current is None:
            return
        resource, place = current
        order = self._order[resource]
        del order[bisect_left(order, place)]
        if not order:
            del self._order[resource]
        self._note_move(resource)

    def _note_move(self, resource: str) -> None:
        current = self._comparisons.get(resource)
        if current is None:
            self._comparisons[resource] = _Comparison()
        else:
            current.is_repeated = True


def _place_of(pod: "PodFacts") -> "_Place":
    return -pod.priority, pod.created, pod.ref, pod.uid
