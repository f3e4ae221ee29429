"""States: one piece of GPU software each, with declared needs in place of a fixed order.

The needs order the output and the writes. On a node the order is kept by init containers, which wait for files
in `/run/nvidia/validations`, so no state waits for another one's pods here.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Generic, TypeVar, final

from api.kinds.nvidia.sandbox_operands import WorkloadType
from operands.errors import StateOrderError

Json = dict[str, Any]
Settings = TypeVar("Settings")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServedKinds:
    """Optional kinds that the cluster serves; nothing else about a cluster changes what is rendered."""

    kinds: frozenset[str] = frozenset()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OperandState(Generic[Settings]):
    """One state of the operands of an installation."""

    name: str
    """Value of the label that all of its objects have."""
    needs: tuple[str, ...] = ()
    """Names of states before it; a need that is disabled is no need."""
    why_off: Callable[[Settings], str]
    """Returns what keeps it off, for people; empty where it is on."""
    deploy_label: str = ""
    """Label of the nodes on which its DaemonSets run, after `nvidia.com/gpu.deploy.`; empty without one."""
    workloads: tuple[WorkloadType, ...] = (WorkloadType.CONTAINER,)
    """Workload types of the nodes that get that label."""
    build: Callable[[Settings], list[Json]]
    """Returns its objects, those of optional kinds among them."""

    def is_enabled(self, settings: Settings) -> bool:
        return not self.why_off(settings)

    def objects(self, settings: Settings, served: ServedKinds) -> list[Json]:
        """Return the desired objects: none of a disabled state, none of kinds that the cluster lacks."""
        if not self.is_enabled(settings):
            return []
        return [
            item
            for item in self.build(settings)
            if item["kind"] not in OPTIONAL_KINDS or item["kind"] in served.kinds
        ]


OPTIONAL_KINDS = frozenset({"ServiceMonitor", "VerticalPodAutoscaler"})
"""Kinds of CRDs that a cluster may lack."""
ALL_KINDS_SERVED = ServedKinds(kinds=OPTIONAL_KINDS)


def in_order(states: "Iterable[OperandState[Settings]]") -> tuple[OperandState[Settings], ...]:
    """Return the states, each after those that it needs; otherwise in the given order.

    Raises:
        StateOrderError: a need is unknown, two states have one name, or the needs form a circle.
    """
    by_name: dict[str, OperandState[Settings]] = {}
    for state in states:
        if state.name in by_name:
            raise StateOrderError(f"two states are called {state.name}")
        by_name[state.name] = state
    for state in by_name.values():
        if unknown := sorted(set(state.needs) - by_name.keys()):
            raise StateOrderError(f"state {state.name} needs {', '.join(unknown)}: no such state")
    graph: Mapping[str, Sequence[str]] = {name: item.needs for name, item in by_name.items()}
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        raise StateOrderError(f"states need each other: {' -> '.join(error.args[1])}") from error
    return tuple(by_name[name] for name in _first_of_those_ready(sorter, list(by_name)))


def _first_of_those_ready(sorter: "TopologicalSorter[str]", names: Sequence[str]) -> Iterator[str]:
    """Yield the names, next the first of those whose needs are met: a legal order stays as it is."""
    places = {name: place for place, name in enumerate(names)}
    ready: list[int] = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, places[name])
        name = names[heapq.heappop(ready)]
        sorter.done(name)
        yield name
