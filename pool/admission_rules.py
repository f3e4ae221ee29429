"""Rules for reserving units before the API server has stored the pod.

A reservation must not cost another pod anything:

* units that a waiting pod of the same or a higher priority could use are left to kube-scheduler, whose queue
  decides between pods that exist (`leaves_capacity`);
* a namespace reserves at most a share of the pool for pods that no watch has delivered yet, and none for a while
  after its pods did not appear, since a quota or another webhook rejects them (`AdmissionBackoff`).

A pod that may not reserve is admitted without units and waits like any other.
"""

import operator
from enum import Enum
from typing import TYPE_CHECKING, Final, final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.names import PoolName

FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 60.0
MAX_NAMESPACES: Final = 4096
"""Namespaces with absences; the one that is longest unchanged is dropped first."""


class IncomingPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod at admission, as far as the rules need it."""

    namespace: str = ""
    priority: int = 0
    now: float = 0.0
    """Clock.monotonic() seconds."""


UNKNOWN_POD: Final = IncomingPod()


class Deferral(Enum):
    """Reason why a pod reserves nothing though units are free, or are reserved for pods that may never appear."""

    WAITING_PODS = "waiting_pods"
    """Pods of the same or a higher priority wait, and could use them."""
    UNCONFIRMED = "unconfirmed"
    """The units are reserved for pods that the API server has not stored yet."""
    SHARE = "share"
    """The namespace has reserved its share for pods that have not appeared yet."""
    BACKOFF = "backoff"
    """Pods of the namespace were admitted and did not appear."""


def leaves_capacity(
    nodes_by_available: "Mapping[int, int]",
    waiting: "Mapping[tuple[int, int], int]",
    *,
    requested: int,
    priority: int,
) -> bool:
    """Say whether every waiting pod that fits somewhere now would still fit beside the incoming pod.

    Errs on the side of the waiting pods: a unit that one of them takes counts as if it broke up a place of any
    other size.

    Args:
        nodes_by_available: units that a pod may get on a node -> number of such nodes.
        waiting: (priority, units) -> number of waiting pods.
        requested: units of the incoming pod.
        priority: the incoming pod's; every waiting pod of the same priority is older.
    """
    ahead: dict[int, int] = {}
    for (theirs, size), count in waiting.items():
        if theirs >= priority:
            ahead[size] = ahead.get(size, 0) + count
    if _is_ample(nodes_by_available, ahead, requested):
        return True
    places = {
        size: sum(available // size * nodes for available, nodes in nodes_by_available.items())
        for size in ahead
    }
    fitting = {size: count for size, count in ahead.items() if places[size]}
    return _all_fit(fitting, places, requested)


def _is_ample(
    nodes_by_available: "Mapping[int, int]", ahead: "Mapping[int, int]", requested: int
) -> bool:
    """Decide from the totals alone, as in a pool that is far from full.

    A node of r units has r // s >= (r - (s - 1)) / s places of size s.
    """
    nodes, total = (
        sum(nodes_by_available.values()),
        sum(map(operator.mul, nodes_by_available.keys(), nodes_by_available.values())),
    )
    return _all_fit(
        ahead, {size: (total - nodes * (size - 1)) // size for size in ahead}, requested
    )


def _all_fit(sizes: "Mapping[int, int]", places: "Mapping[int, int]", requested: int) -> bool:
    units = sum(size * count for size, count in sizes.items())
    return all(
        places[size] - -(-requested // size) - (units - size * count) >= count
        for size, count in sizes.items()
    )


def share_of(total: int) -> int:
    """Return how many units of a pool one namespace may reserve for pods that are not observed yet.

    Half: pods of another namespace, admitted in the same moment, find the other half. The watch shows a pod
    milliseconds after its admission, so this bounds an honest burst in small pools only.
    """
    return total // 2


@final
class AdmissionBackoff:
    """Back-off of namespaces whose admitted pods did not appear, by pool.

    It doubles with every absence in a row, and ends with the first pod of the namespace that appears.
    """

    def __init__(self) -> None:
        self._absences: dict[tuple[PoolName, str], tuple[int, float]] = {}
        # (pool, namespace) -> (absences in a row, end of the back-off)

    def __len__(self) -> int:
        return len(self._absences)

    def note_absence(self, pool: "PoolName", namespace: str, now: float) -> None:
        count, _ = self._absences.pop((pool, namespace), (0, 0.0))
        pause_s = min(FIRST_BACKOFF_S * 2.0 ** min(count, 10), MAX_BACKOFF_S)
        self._absences[pool, namespace] = count + 1, now + pause_s
        if len(self._absences) > MAX_NAMESPACES:
            del self._absences[next(iter(self._absences))]

    def note_appearance(self, pool: "PoolName", namespace: str) -> None:
        self._absences.pop((pool, namespace), None)

    def is_over(self, pool: "PoolName", namespace: str, now: float) -> bool:
        absence = self._absences.get((pool, namespace))
        return absence is None or absence[1] <= now
