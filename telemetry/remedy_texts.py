"""Texts of remedies and of nodes in an explanation (`pool.what_if`), which name pods where the reader may see them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.names import PoolName
from api.text import duration_text, listed, units
from pool.what_if.explanation import (
    AskFewerUnits,
    DevicesJoin,
    PodsEnd,
    ReservationsExpire,
    UnitsReturn,
    UsePool,
    WithheldBy,
)
from telemetry.reasons import node_refusal_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pool.what_if.explanation import AnyRemedy, NodeExplanation, UnitsHolder

_WITHHELD: Final = {
    WithheldBy.CORDONED: "is uncordoned",
    WithheldBy.NOT_READY: "is ready again",
    WithheldBy.FAULTED: "has its faulted devices back",
    WithheldBy.DRAINING: "keeps the devices that leave the pool",
    WithheldBy.LAYOUT: "has the devices partitioned again that others partitioned",
}


def in_a_while(seconds: float) -> str:
    """Say when something is, that many seconds from now."""
    return f"in {duration_text(seconds)}"


def all_namespaces(_: str) -> bool:
    return True


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyReader:
    """The reader of a remedy's text: its rights, and its time."""

    namespace: str
    """Whose pods go by their name alone."""
    sees: "Callable[[str], bool]" = all_namespaces
    """Whether pods of a namespace may be named; others are pods of other users."""
    moment: "Callable[[float], str]" = in_a_while
    """Names the moment that is so many seconds away."""

    def pods(self, holders: "tuple[UnitsHolder, ...]") -> str:
        """Return pods with their units."""
        named = [
            f"{self.name(holder)} ({units(holder.units)})"
            for holder in holders
            if self.sees(holder.namespace)
        ]
        hidden = [holder for holder in holders if not self.sees(holder.namespace)]
        if hidden:
            noun = "pod" if len(hidden) == 1 else "pods"
            named.append(
                f"{len(hidden)} {noun} of other users ({units(sum(item.units for item in hidden))})"
            )
        return ", ".join(named)

    def name(self, holder: "UnitsHolder") -> str:
        """Return the name of a pod that may be seen."""
        return holder.name if holder.namespace == self.namespace and holder.name else holder.ref


def remedy_text(remedy: "AnyRemedy", reader: RemedyReader) -> str:
    """Return one remedy as a clause."""
    match remedy:
        case AskFewerUnits():
            return f"ask for {units(remedy.units)}: node {remedy.node} would take the pod now"
        case ReservationsExpire():
            return (
                f"{reader.moment(remedy.within_s)} at most {reader.pods(remedy.holders)} either runs or gives back"
                f" its reservation on {remedy.node}: without it the pod fits there"
            )
        case UsePool():
            return (
                f"use pool {remedy.pool}: a request for {remedy.resource} would be placed now on"
                f" {remedy.node}"
            )
        case UnitsReturn():
            actions = f"; needed: {listed(remedy.needed_actions)}" if remedy.needed_actions else ""
            devices = f" ({listed(remedy.devices)}{actions})" if remedy.devices else ""
            if remedy.holders:
                devices += f" once {reader.pods(remedy.holders)} {_verb(remedy.holders)}"
            return (
                f"when node {remedy.node} {_WITHHELD[remedy.cause]}, it has {units(remedy.units)}"
                f" more{devices}, and takes the pod"
            )
        case DevicesJoin():
            count = len(remedy.devices)
            return (
                f"{count} {'device' if count == 1 else 'devices'} of {remedy.node} are in no pool and"
                f" would make room: {remedy.obstacle}"
            )
        case PodsEnd():  # pragma: no branch  # mypy proves that no case is missing
            automatic = (
                "; kube-scheduler preempts such pods by itself" if remedy.is_preemption else ""
            )
            return f"when {reader.pods(remedy.holders)} {_verb(remedy.holders)}, the pod fits on {remedy.node}{automatic}"


def _verb(holders: "tuple[UnitsHolder, ...]") -> str:
    return "ends" if len(holders) == 1 else "end"


def node_reason(node: "NodeExplanation", pool: str) -> str:
    """Return why a node does not take a pod; empty where it does."""
    if node.exclusion or node.refusal is None:
        return node.exclusion or node.shortage
    return node_refusal_text(node.refusal, PoolName(pool)).removeprefix(f"GPU pool {pool}: ")
