"""One plan for pods in one order: nodes on their way are filled, new ones are opened, and limits are kept."""

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeVar, final

from api.foreign.karpenter import CAPACITY_TYPE_LABEL
from api.names import NodeName
from api.well_known_labels import INSTANCE_TYPE_LABEL, ZONE_LABEL
from autoscaling.node_selections import (
    NodeSelection,
    selection_key,
)
from autoscaling.packing import PackedNode, Packing, PodClass
from autoscaling.request_ids import new_request_id
from autoscaling.scaling_limits import ScalingLimits
from autoscaling.scaling_model import NodeRequest, PodWait, RequestPhase, WaitReason
from autoscaling.shape_choice import CAPPED, ShapeChoice
from autoscaling.wait_causes import cause_of, other_cause, upgrade_cause
from pool.compute_resources import NOTHING, ComputeResources
from pool.errors import InvariantViolatedError
from pool.model import PodSelection

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from api.cache_name import CacheName
    from api.names import PodUid
    from autoscaling.packing import ExistingNodes
    from autoscaling.scaling_model import (
        ObservedRequest,
        RequestId,
        ScalingParameters,
        ShapeParameters,
        Supply,
    )
    from pool.index.reader import IndexReader
    from pool.model import NodeFacts, PodFacts
    from pool.placement.unit_request import UnitRequest

T = TypeVar("T")

MOST_PODS: Final = 2_000
"""Most pods that one plan packs."""
MOST_KINDS: Final = 128
"""Most kinds of pods, in one plan: each is compared with every node that has free units."""
_MOST_EXAMINED: Final = 1_024
"""Kinds of which it is asked whether a shape can serve them."""
_NO_SELECTION: Final = PodSelection()
_LATE: Final = PodWait(
    WaitReason.TOO_MANY_PODS,
    f"nodes for {MOST_PODS} pods of higher priority, or older, are planned first: wait until these have theirs",
)
_VARIED: Final = PodWait(
    WaitReason.TOO_MANY_PODS,
    f"the waiting pods are of more than {MOST_KINDS} kinds by units, CPU, memory, kernel caches and node selector, "
    "which are planned by namespace in turn, those of higher priority, or older, first: give pods that are alike equal "
    "requests",
)


def waiting_order(pod: "PodFacts") -> tuple[int, str, str, str]:
    """Sort key of waiting pods: highest priority first, then oldest."""
    return (-pod.priority, pod.created, pod.ref, pod.uid)


@final
class PlanAttempt:
    """A plan in the making."""

    def __init__(
        self,
        parameters: "ScalingParameters",
        index: "IndexReader",
        *,
        supply: "Supply",
        existing: "ExistingNodes",
        origins: "Mapping[RequestId, PodUid]",
        now: "dt.datetime",
    ) -> None:
        """Start with nothing packed.

        Args:
            parameters: the pool's parameters.
            index: the live index.
            supply: what is on its way.
            existing: the nodes that are not on their way.
            origins: the waiting pods that nodes on their way were asked for.
            now: the time.
        """
        self._parameters = parameters
        self._index = index
        self._supply = supply
        self._origins = origins
        self._now = now
        self._in_flight = [
            item
            for item in supply.in_flight
            if item.is_in_flight and not (item.node is not None and item.node.is_leaving)
        ]
        self._state = index.state(parameters.pool.name)
        self._existing = existing
        self._returning = existing.returning(now)
        self._returning_units = sum(node.free for node in self._returning)
        self._counts_resources = self._has_all_resources()
        self._limits = ScalingLimits(parameters, supply, existing.units)
        self._choice = ShapeChoice(parameters, index, supply, now=now)
        self._packing = Packing(parameters.pool, index, now)
        self._classes: dict[_ClassKey, PodClass] = {}
        self._used_ids = set(supply.used_ids) | {item.id for item in supply.in_flight}
        self._kept: set[RequestId] = set()
        # nodes on their way that minUnits or warmUnits need
        self.packed = 0
        """The number of pods that have a node."""
        self.waits: dict[PodUid, PodWait] = {}
        self.is_cut = False
        """Whether pods were left out because there are too many."""
        self.is_capped = False
        """Whether a limit keeps a node from a pod."""

    @property
    def opened(self) -> int:
        """The number of new nodes."""
        return sum(node.is_new for node in self._packing.nodes)

    def pack(self, pods: "Sequence[PodFacts]") -> None:
        """Find a node for each pod, in this order, or why there is none; once."""
        eligible = self._eligible(pods)
        self._packing.caching = {pod.demand for pod, _ in eligible if pod.demand.caches}
        if eligible:
            least = min(pod.demand.units for pod, _ in eligible)
            self._packing.add_existing(self._existing, least)
        positions = {pod.uid: at for at, (pod, _) in enumerate(eligible)}
        self._add_nodes_on_their_way([pod for pod, _ in eligible], positions)
        self._packing.nodes += self._returning
        for pod, pod_class in eligible:
            wait = pod_class.wait or self._place(pod, pod_class)
            if wait is not None:
                self.waits[pod.uid] = wait
                self.is_capped |= wait.reason in CAPPED

    def add_warm_units(self) -> PodWait | None:
        """Keep or ask for nodes that minUnits and warmUnits need; return why these are not reached.

        Pods go first: while a limit keeps a node from one of them, nothing is asked for or kept for warm units.
        """
        if not self._parameters.min_units and not self._parameters.warm_units:
            return None
        idle = [item for item in self._packing.nodes if item.request and not item.pods]
        missing = self._missing_units()
        if self.is_capped:
            capped = next(wait for wait in self.waits.values() if wait.reason in CAPPED)
            return PodWait(capped.reason, capped.message) if max(missing) > 0 else None
        for node in sorted(idle, key=lambda item: not item.is_launched):
            if max(missing) <= 0:
                break
            if node.request is not None:
                self._kept.add(node.request)
            missing = (missing[0] - node.size, missing[1] - node.free)
        number = 0
        while max(missing) > 0:
            shape = self._choice.first(None, self._limits)
            if isinstance(shape, PodWait):
                return shape
            self._open(shape, f"warm/{number}", None)
            missing = (missing[0] - shape.units, missing[1] - shape.units)
            number += 1
        return None

    def requests(self) -> tuple[NodeRequest, ...]:
        """Return what is to be asked for, in the order in which it was found."""
        return tuple(self._request(node) for node in self._packing.nodes if node.is_new)

    def assigned(self) -> "dict[RequestId, tuple[PodUid, ...]]":
        """Return the pods of each node that is on its way or asked for."""
        return {
            node.request: _uids(node.pods)
            for node in self._packing.nodes
            if node.request is not None and node.pods
        }

    def needed(self) -> "frozenset[RequestId]":
        """Return the requests on their way that pods or warm units need."""
        return frozenset(self.assigned()) | self._kept

    def _eligible(self, pods: "Sequence[PodFacts]") -> "list[tuple[PodFacts, PodClass]]":
        """Return the pods that a node may help, with their kinds; the others wait."""
        found: list[tuple[PodFacts, PodClass]] = []
        for pod in pods:
            pod_class = self._class_of(pod)
            wait = cause_of(pod, pod_class.selection, self._index.nodes)
            if wait is not None:
                self.waits[pod.uid] = wait
            else:
                found.append((pod, pod_class))
        planned = planned_classes(found, is_served=lambda kind: self._choice.unserved(kind) is None)
        for pod, pod_class in found:
            if pod_class not in planned:
                wait = self._choice.unserved(pod_class)
                self.is_cut |= wait is None
                self.waits[pod.uid] = wait or _VARIED
        return [item for item in found if item[1] in planned]

    def _class_of(self, pod: "PodFacts") -> PodClass:
        requests = pod.requests if self._counts_resources else NOTHING
        demand = pod.demand
        key = (
            self._state.request_of(demand),
            selection_key(pod.selection),
            requests,
            demand.caches,
        )
        found = self._classes.get(key)
        if found is None:
            selection = NodeSelection(pod.selection or _NO_SELECTION)
            state = self._index.state_for(self._parameters.pool.name, demand)
            shapes = frozenset(shape.name for shape in self._choice.fitting(demand))
            found = self._classes[key] = PodClass(demand, selection, requests, state, shapes)
        return found

    def _has_all_resources(self) -> bool:
        """Say whether a shape or a node of the pool reports its CPU or memory."""
        nodes = self._index.nodes
        on_their_way = (item.node.name for item in self._in_flight if item.node is not None)
        present = (nodes.get(name) for name in (*self._existing.nodes, *on_their_way))
        shapes_and_nodes: Iterator[ShapeParameters | NodeFacts | None] = itertools.chain(
            self._parameters.shapes, present
        )
        return any(
            item is not None and (item.cpu_milli is not None or item.memory_mib is not None)
            for item in shapes_and_nodes
        )

    def _place(self, pod: "PodFacts", pod_class: PodClass) -> PodWait | None:
        if self.packed >= MOST_PODS:
            self.is_cut = True
            return _LATE
        node = self._packing.place(pod, pod_class)
        if node is None:
            shape = self._choice.first(pod_class, self._limits)
            if isinstance(shape, PodWait):
                pod_class.wait = shape
                return shape
            self._open(shape, pod.uid, pod_class.selection)
            node = self._packing.place(pod, pod_class)
            if node is None:
                raise InvariantViolatedError(f"a new node of shape {shape.name} refuses {pod.ref}")
        self.packed += 1
        if node.returning is not None and node.returning.returns_by is not None:
            return upgrade_cause(pod, node.name, node.returning.returns_by)
        return other_cause(pod, node.name, self._now) if node.request is None else None

    def _open(self, shape: "ShapeParameters", first: str, selection: NodeSelection | None) -> None:
        id_ = new_request_id(self._parameters.pool, first, shape.name, used=self._used_ids)
        self._used_ids.add(id_)
        self._limits.take(shape)
        labels = self._choice.labels(shape).labels_by_key
        node = self._expected(id_, shape, {**labels, **(selection.labels if selection else {})})
        node.is_new = True
        node.selection = selection
        node.node_key = selection.node_key if selection is not None else b""
        self._packing.add_expected(node, shape)

    def _add_nodes_on_their_way(
        self, pods: "Sequence[PodFacts]", positions: "Mapping[PodUid, int]"
    ) -> None:
        """Add them as they were opened: in the order of their creation, then in that of the pods they are for."""

        def order(request: "ObservedRequest") -> "tuple[dt.datetime, int, str]":
            origin = self._origins.get(request.id)
            at = positions.get(origin) if origin is not None else None
            return (_requested_at(request), len(pods) if at is None else at, request.id)

        for item in sorted(self._in_flight, key=order):
            if item.shape is None:
                continue
            origin = self._origins.get(item.id)
            at = positions.get(origin) if origin is not None else None
            node = self._requested_node(item, item.shape, pods[at] if at is not None else None)
            if item.node is not None and item.phase in _READY:
                self._packing.add_ready(node, item.node.name)
            else:
                self._packing.add_expected(node, item.shape)

    def _requested_node(
        self, request: "ObservedRequest", shape: "ShapeParameters", origin: "PodFacts | None"
    ) -> PackedNode:
        """Return a node on its way with what is known of it, and of the pod that it was asked for."""
        selection = PodSelection()
        if request.signals:
            signal = request.signals[0]
            selection = PodSelection(tuple(sorted(signal.node_selector.items())), signal.affinity)
        if origin is not None:
            selection = origin.selection or selection
        labels = {**self._choice.labels(shape).labels_by_key, **dict(selection.node_selector)}
        if request.claim is not None:
            of_claim = {
                ZONE_LABEL: request.claim.zone,
                INSTANCE_TYPE_LABEL: request.claim.instance_type,
                CAPACITY_TYPE_LABEL: request.claim.capacity_type,
            }
            labels |= {key: value for key, value in of_claim.items() if value}
        if request.node is not None:
            labels |= request.node.labels
        node = self._expected(request.id, shape, labels)
        node.node_key = NodeSelection(selection).node_key
        node.is_launched = request.is_launched or request.node is not None
        return node

    def _expected(
        self, id_: "RequestId", shape: "ShapeParameters", labels: "Mapping[str, str]"
    ) -> PackedNode:
        return PackedNode(
            name=NodeName(f"request/{id_}"),
            free=shape.units,
            size=shape.units,
            request=id_,
            shape=shape,
            labels=labels,
            cpu_milli=shape.cpu_milli,
            memory_mib=shape.memory_mib,
            places=self._choice.most_pods.get(shape.name),
        )

    def _missing_units(self) -> tuple[int, int]:
        """Return how many units minUnits and warmUnits lack, without idle nodes on their way."""
        nodes = self._index.nodes
        staying = [
            summary
            for name, summary in self._existing.nodes.items()
            if (facts := nodes.get(name)) is not None and not facts.is_leaving
        ]
        busy = [node for node in self._packing.nodes if node.request and node.pods]
        total = sum(item.total for item in staying) + sum(item.size for item in busy)
        free = sum(item.free for item in staying if item.is_reservable) + self._returning_units
        free -= sum(
            pod.demand.units
            for node in self._packing.nodes
            if node.request is None
            for pod in node.pods
        )
        free += sum(item.free for item in busy)
        return self._parameters.min_units - total, self._parameters.warm_units - free

    def _request(self, node: PackedNode) -> NodeRequest:
        if node.request is None or node.shape is None:
            raise InvariantViolatedError(f"node {node.name} is new and has no shape")
        selection = node.selection
        return NodeRequest(
            id=node.request,
            pool=self._parameters.pool.name,
            shape=node.shape,
            pods=_uids(node.pods),
            node_selector=selection.without(node.shape.labels) if selection is not None else {},
            affinity=selection.terms if selection is not None else (),
            requests=ComputeResources(
                sum(pod.requests.cpu_milli for pod in node.pods),
                sum(pod.requests.memory_mib for pod in node.pods),
            ),
            resources=_sum_of_resources(node.pods),
        )


_READY: Final = frozenset({RequestPhase.AGENT_READY, RequestPhase.RESERVED})
"""Phases in which the index has the node's devices."""


def planned_classes(
    pods: "Iterable[tuple[PodFacts, PodClass]]", *, is_served: "Callable[[PodClass], bool]"
) -> "set[PodClass]":
    """Return the kinds that are planned: namespaces in turn, and last those that no shape can serve.

    However many kinds the pods of one namespace are of, those of others are planned.

    Args:
        pods: waiting pods in their order, with their kinds.
        is_served: says whether a shape of the pool can serve a kind.
    """
    by_namespace: dict[str, list[PodClass]] = {}
    kinds: set[PodClass] = set()
    for pod, kind in pods:
        if kind not in kinds:
            kinds.add(kind)
            by_namespace.setdefault(pod.namespace, []).append(kind)
    if len(kinds) <= MOST_KINDS:
        return kinds
    found: list[PodClass] = []
    unserved: list[PodClass] = []
    for number, kind in enumerate(in_turn(by_namespace.values())):
        if len(found) == MOST_KINDS or number == _MOST_EXAMINED:
            break
        (found if is_served(kind) else unserved).append(kind)
    return set((found + unserved)[:MOST_KINDS])


def in_turn(lists: "Iterable[list[T]]") -> "Iterator[T]":
    """Yield the first of each list, then the second of each."""
    for row in itertools.zip_longest(*lists):
        yield from (item for item in row if item is not None)


_ClassKey = tuple["UnitRequest", bytes, ComputeResources, "tuple[CacheName, ...]"]


def _sum_of_resources(pods: "Sequence[PodFacts]") -> "dict[str, int]":
    """Return the resources of pods beside CPU, memory and units, by name."""
    found: Counter[str] = Counter()
    for pod in pods:
        found.update(dict(pod.selection.resources if pod.selection is not None else ()))
    return dict(sorted(found.items()))


def _uids(pods: "Sequence[PodFacts]") -> "tuple[PodUid, ...]":
    return tuple(pod.uid for pod in sorted(pods, key=waiting_order))


def _requested_at(request: "ObservedRequest") -> "dt.datetime":
    """Return when a node was asked for, as far as its traces show."""
    traces = [signal.created for signal in request.signals]
    if request.claim is not None:
        traces.append(request.claim.created)
    if request.node is not None:
        traces.append(request.node.created)
    return min(traces, default=request.since)
