"""Nodes that were bought: never more within an hour than the pool allows, and no second one for the same pods.

Pods and NodeClaims are watched apart, so that a purchase is judged once both sides are known. What a list showed after a
gap is not judged: when it came is unknown.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from tests.fault.observations import Claim, Observation, Pod, Pool

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR_S: Final = 3600.0
DEMAND_LASTS_S: Final = 60.0
"""A request outlasts its pods until the next leader withdraws it, and Karpenter buys for it meanwhile."""


@dataclass(slots=True)
class _Purchase:
    claim: Claim
    at: float
    until: float = math.inf
    is_judged: bool = False


@dataclass(slots=True)
class _Wait:
    """A pod that waits for units."""

    at: float
    until: float = math.inf


@final
@dataclass(slots=True)
class BoughtNodes:
    """Feed it every sight; `faults` judges each purchase once."""

    _most: dict[str, int] = field(default_factory=dict)
    # pool -> nodes of an hour
    _waits: defaultdict[str, dict[str, _Wait]] = field(default_factory=lambda: defaultdict(dict))
    # pool -> uid -> the pod's time without a node
    _purchases: dict[str, _Purchase] = field(default_factory=dict)
    # name of a NodeClaim -> the first sight of it, in order
    _faults: list[tuple[str, frozenset[str]]] = field(default_factory=list)

    def observe(self, observation: Observation) -> None:
        match observation.subject:
            case Pool(most_nodes=int() as most) as pool:
                self._most[pool.name] = most
            case Pod() as pod:
                self._see_pod(pod, observation)
            case Claim() as claim:
                self._see_claim(claim, observation)
            case _:
                pass

    def faults(self) -> "list[tuple[str, frozenset[str]]]":
        """Return what was wrong with all purchases up to now."""
        for purchase in self._purchases.values():
            if not purchase.is_judged:
                purchase.is_judged = True
                self._faults += self._faults_of(purchase)
        return self._faults

    def _see_pod(self, pod: Pod, observation: Observation) -> None:
        waits = self._waits[pod.pool]
        is_waiting = not pod.node and not pod.is_deleted and not observation.is_gone
        if is_waiting:
            waits.setdefault(pod.uid, _Wait(observation.at))
        elif pod.uid in waits and waits[pod.uid].until == math.inf:
            waits[pod.uid].until = observation.at

    def _see_claim(self, claim: Claim, observation: Observation) -> None:
        is_ending = observation.is_gone or claim.is_deleted
        purchase = self._purchases.get(claim.name)
        if purchase is None and not is_ending and observation.is_exact:
            self._purchases[claim.name] = _Purchase(claim, observation.at)
        elif purchase is not None and is_ending:
            purchase.until = min(purchase.until, observation.at)

    def _faults_of(self, last: _Purchase) -> "Iterator[tuple[str, frozenset[str]]]":
        pool = last.claim.pool
        before = [
            purchase
            for purchase in self._purchases.values()
            if purchase.claim.pool == pool and purchase.at <= last.at
        ]
        hour = [item for item in before if item.at > last.at - HOUR_S]
        if len(hour) > self._most.get(pool, len(hour)):
            text = (
                f"{len(hour)} nodes within an hour for pool {pool}, which allows {self._most[pool]}"
            )
            yield text, frozenset({pool, last.claim.name})
        kept = [item for item in before if item.until > last.at]
        for number, first in enumerate(kept):
            since = first.at - DEMAND_LASTS_S
            waiting = [
                uid
                for uid, wait in self._waits[pool].items()
                if wait.at <= last.at and wait.until >= since
            ]
            if len(kept) - number > len(waiting):
                names = [item.claim.name for item in kept[number:]]
                text = (
                    f"{', '.join(names)} were bought from {first.at:.1f} s to {last.at:.1f} s, when "
                    f"{len(waiting)} pods waited"
                )
                yield text, frozenset({pool, *names})
                return
