"""Pods packed onto nodes: free units of nodes that exist, then nodes on their way, then upgraded ones, then new ones.

All nodes are in one order, and a pod gets the first one that takes it (first fit): existing nodes by their free units,
the fullest first, then nodes on their way in the order in which they were asked for, then nodes whose units return after
the upgrade of their driver. So a plan that has been carried out packs the same pods onto the same nodes, and asks for
nothing more.

Where the number of free units decides (`DeviceRules.is_constrained`), numbers are compared. Elsewhere the code that
binds pods decides, on a scratch `AllocationState` that has the nodes which were examined: never the whole cluster. An
expected node has as many devices as its shape says, aligned with each other, since nothing is known of their
connections.

Free units only become fewer while pods are packed. A node that has refused a pod is therefore not asked again for
another pod of the same class.
"""

import dataclasses
import datetime as dt
import operator
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.clock import Instant
from api.kinds.gpupool import AllocationMode, Strategy
from api.names import DeviceName, NodeName, PodUid, ReservationId, UnitId
from pool.allocation_state import AllocationState
from pool.index.cache_fit import is_limited
from pool.index.device_index import DeviceIndex
from pool.model import DeviceFacts, NodeFacts
from pool.placement.planner import Placed, may_go_to
from pool.reservations.reservation import PlacementRequest
from pool.what_if.evictions import fits_when_empty
from pool.what_if.exclusion import once_uncordoned

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from api.names import PoolName
    from autoscaling.node_selections import NodeSelection
    from autoscaling.scaling_model import PodWait, RequestId, ShapeParameters
    from pool.compute_resources import ComputeResources
    from pool.index.node_view import PoolNode
    from pool.index.pool_state import PoolState
    from pool.index.reader import IndexReader
    from pool.model import Demand, PodFacts, PoolFacts


RETURNS_WITHIN: Final = dt.timedelta(minutes=30)
"""The longest step of an upgrade in which the new driver starts: units that may take longer are not waited for."""


@final
@dataclass(slots=True, eq=False)
class PodClass:
    """Pods that any node takes or refuses alike."""

    demand: "Demand"
    selection: "NodeSelection"
    requests: "ComputeResources"
    state: "PoolState"
    """State of the pool as these pods see it: devices that their kernel caches do not fit have no units."""
    shapes: "frozenset[str]"
    """Names of the shapes whose devices their kernel caches may fit."""
    first_node: int = 0
    """Position of the first node that may take one of them."""
    wait: "PodWait | None" = None
    """Why no node takes one of them."""


class PackedNode(msgspec.Struct, kw_only=True, eq=False):
    """A node with the pods that it is to get; one for each node with free units, in every plan."""

    name: NodeName
    free: int
    """Units at most."""
    request: "RequestId | None" = None
    """None for a node that exists."""
    shape: "ShapeParameters | None" = None
    source: NodeName | None = None
    """The node of the index that has its devices; None while they are not known."""
    labels: "Mapping[str, str]" = msgspec.field(default_factory=dict)
    """Known ones, of an expected node."""
    node_key: bytes = b""
    """Node key of the selection that the node was asked for with."""
    size: int = 0
    """Units of the node, of which pods may have some already."""
    is_launched: bool = False
    is_new: bool = False
    """It is to be asked for."""
    selection: "NodeSelection | None" = None
    """Selection of the first pod of a new node."""
    cpu_milli: int | None = None
    """Left; None: not considered."""
    memory_mib: int | None = None
    places: int | None = None
    """Pods that kubelet runs beside those that are there."""
    is_measured: bool = False
    """CPU, memory and places are those of its node, where it reports them."""
    is_loaded: bool = False
    """Its devices are in the scratch state."""
    is_counted: bool = False
    """The number of free units decides there."""
    returning: NodeFacts | None = None
    """The node as it is after the upgrade of its driver, of a node that an upgrade has out of service."""
    pods: "list[PodFacts]" = msgspec.field(default_factory=list)

    @property
    def is_emptied(self) -> bool:
        """Whether the pods that are there leave."""
        return self.returning is not None and self.returning.is_being_emptied

    def has_capacity(self, requests: "ComputeResources") -> bool:
        """Say whether CPU, memory and kubelet's number of pods suffice, where they are known."""
        return not (
            (self.places is not None and self.places < 1)
            or (self.cpu_milli is not None and requests.cpu_milli > max(0, self.cpu_milli))
            or (self.memory_mib is not None and requests.memory_mib > max(0, self.memory_mib))
        )

    def take(self, pod: "PodFacts") -> None:
        self.pods.append(pod)
        self.free -= pod.demand.units
        if self.cpu_milli is not None:
            self.cpu_milli -= pod.requests.cpu_milli
        if self.memory_mib is not None:
            self.memory_mib -= pod.requests.memory_mib
        if self.places is not None:
            self.places -= 1


@final
class ExistingNodes:
    """Nodes of a pool that are not on their way, as they are at one plan."""

    def __init__(
        self, index: "IndexReader", pool: "PoolName", *, coming: "frozenset[NodeName]"
    ) -> None:
        """Read the figures of the nodes; those that are coming are left out."""
        self._index = index
        nodes = index.state(pool).nodes()
        self.nodes: Mapping[NodeName, PoolNode] = (
            {name: node for name, node in nodes.items() if name not in coming} if coming else nodes
        )
        self.units = sum(node.total for node in self.nodes.values())

    @cached_property
    def by_free(self) -> list[tuple[int, str]]:
        """Free units and name of the nodes on which units may be reserved, the fullest first."""
        return sorted(
            (node.free, name)
            for name, node in self.nodes.items()
            if node.free and node.is_reservable
        )

    def returning(self, now: "dt.datetime") -> "list[PackedNode]":
        """Return the nodes whose units an upgrade gives back soon, the first to come first."""
        found: list[tuple[dt.datetime, NodeName, PackedNode]] = []
        for name, figures in self.nodes.items():
            facts = self._index.nodes.get(name)
            if facts is None or facts.is_leaving or not facts.is_ready or facts.returns_by is None:
                continue
            if now < facts.returns_by <= now + RETURNS_WITHIN:
                is_emptied = facts.is_being_emptied
                node = PackedNode(
                    name=name,
                    free=figures.total - figures.unusable if is_emptied else figures.free,
                    source=name,
                    returning=once_uncordoned(facts),
                )
                if is_emptied:
                    node.is_measured = True
                    node.cpu_milli, node.memory_mib = facts.cpu_milli, facts.memory_mib
                    node.places = facts.most_pods
                found.append((facts.returns_by, name, node))
        return [node for _, _, node in sorted(found, key=operator.itemgetter(0, 1))]


@final
class Packing:
    """Nodes in their order, and the pods that have been packed onto them."""

    def __init__(self, pool: "PoolFacts", index: "IndexReader", now: "dt.datetime") -> None:
        self.caching: Collection[Demand] = ()
        """Demands of the pods that mount kernel caches, which not every device may fit."""
        self.nodes: list[PackedNode] = []
        self._pool = dataclasses.replace(pool, strategy=Strategy.BIN_PACK)
        self._index = index
        self._now = Instant(0.0, now)
        self._state = AllocationState(DeviceIndex(caches=index.caches))
        self._state.index.replace_pool(self._pool)

    def add_existing(self, existing: "ExistingNodes", least: int) -> None:
        """Add the nodes that have so many units free, the fullest first."""
        free = existing.by_free
        self.nodes += [
            PackedNode(name=NodeName(name), free=units, source=NodeName(name))
            for units, name in free[bisect_left(free, (least, "")) :]
        ]

    def add_ready(self, node: PackedNode, name: NodeName) -> None:
        """Add a node on its way whose devices are in the index already."""
        summary = self._index.state(self._pool.name).node(name)
        node.free = summary.free if summary is not None else 0
        node.source = name
        self._load(node, name)
        self.nodes.append(node)

    def add_expected(self, node: PackedNode, shape: "ShapeParameters") -> None:
        """Add a node that does not exist yet, behind all others."""
        node.is_loaded = True
        node.is_counted = not self._pool.constrains_sets
        if not node.is_counted:
            add_expected_node(self._state.index, self._pool, node.name, shape=shape)
        self.nodes.append(node)

    def place(self, pod: "PodFacts", pod_class: PodClass) -> PackedNode | None:
        """Pack a pod onto the first node that takes it; None where there is none."""
        for at in range(pod_class.first_node, len(self.nodes)):
            node = self.nodes[at]
            if self._may_take(node, pod_class) and self._commit(node, pod):
                pod_class.first_node = at
                node.take(pod)
                return node
        pod_class.first_node = len(self.nodes)
        return None

    def _may_take(self, node: PackedNode, pod_class: PodClass) -> bool:
        if node.free < pod_class.demand.units or not self._has_capacity(node, pod_class):
            return False
        if pod_class.selection.anti_affinity and any(
            pod.selection is not None
            and not pod_class.selection.anti_affinity.isdisjoint(pod.selection.peers)
            for pod in node.pods
        ):
            return False
        if node.request is None:
            facts = node.returning or self._index.nodes.get(node.name)
            return facts is not None and may_go_to(facts, pod_class.selection.constraints)
        if (
            node.source is None
            and node.shape is not None
            and node.shape.name not in pod_class.shapes
        ):
            return False
        selection = pod_class.selection
        return selection.node_key == node.node_key or selection.holds_on(node.labels)

    def _has_capacity(self, node: PackedNode, pod_class: PodClass) -> bool:
        """Say whether CPU, memory and places for pods suffice, and devices that the pods' kernel caches fit."""
        if node.source is None:
            return node.has_capacity(pod_class.requests)
        if not node.is_measured:
            cpu, memory = self._index.free_cpu_and_memory(node.source)
            node.cpu_milli = node.cpu_milli if cpu is None else cpu
            node.memory_mib = node.memory_mib if memory is None else memory
            places = self._index.free_pods(node.source)
            node.places = node.places if places is None else places
            node.is_measured = True
        if not node.has_capacity(pod_class.requests):
            return False
        if not pod_class.demand.caches:
            return True
        summary = pod_class.state.node(node.source)
        if summary is None:
            return False
        free = summary.total - summary.unusable if node.is_emptied else summary.free
        return free >= pod_class.demand.units

    def _commit(self, node: PackedNode, pod: "PodFacts") -> bool:
        if not node.is_loaded:
            self._load(node, node.name)
        if node.is_counted:
            return True
        demand = pod.demand
        if node.source is None:  # what its devices are is not known
            demand = msgspec.structs.replace(demand, caches=())
        placed = self._state.reader.plan_bind(node.name, self._pool, demand, uid=pod.uid)
        if not isinstance(placed, Placed):
            return False
        request = PlacementRequest(
            id=ReservationId(pod.uid),
            pool=self._pool,
            demand=demand,
            namespace=pod.namespace,
            name=pod.name,
        )
        self._state.commit(request, placed, uid=pod.uid, now=self._now)
        return True

    def _load(self, node: PackedNode, source: NodeName) -> None:
        """Copy a node's devices with their taken units from the index, where more than the number of units decides."""
        node.is_loaded = True
        rules = self._index.device_rules(self._pool.name, source)
        node.is_counted = not rules.is_constrained and not any(
            is_limited(self._index, self._pool.name, demand, node=source) for demand in self.caching
        )
        if node.is_counted:
            return
        scratch = self._state.index
        scratch.replace_node(NodeFacts(name=node.name, labels={}))
        scratch.replace_kubelet(node.name, self._index.kubelet_on(source))
        taken: list[UnitId] = []
        for entry in self._index.devices_on(self._pool.name, source):
            is_draining = not entry.is_usable
            scratch.replace_device(
                dataclasses.replace(entry.facts, node=node.name, is_draining=is_draining)
            )
            mask = 0 if node.is_emptied else entry.taken
            if mask:
                taken += [unit for slot, unit in enumerate(entry.layout.ids) if mask >> slot & 1]
        # Owners do not matter here: all that is taken has one.
        scratch.set_observed(PodUid(f"on {node.name}"), tuple(taken))


@final
class EmptyShapes:
    """An empty node of each shape, to ask whether it would take a pod."""

    def __init__(self, pool: "PoolFacts") -> None:
        self._pool = pool
        self._index = DeviceIndex()
        self._index.replace_pool(pool)

    def take(self, shape: "ShapeParameters", demand: "Demand") -> bool:
        """Say whether it has the units for a pod, by all rules of the pool."""
        name = NodeName(shape.name)
        if name not in self._index.nodes:
            add_expected_node(self._index, self._pool, name, shape=shape)
        return fits_when_empty(self._index, (self._pool, demand), name)


def add_expected_node(
    index: DeviceIndex, pool: "PoolFacts", name: NodeName, *, shape: "ShapeParameters"
) -> None:
    """Give an index a node with the devices of a shape, all on one NUMA node."""
    index.replace_node(NodeFacts(name=name, labels={}))
    for number in range(shape.devices):
        uuid = f"{name}/{number}"
        is_mig = pool.mode is AllocationMode.MIG
        instances = range(shape.units_per_device if is_mig else 0)
        index.replace_device(
            DeviceFacts(
                name=DeviceName(f"{name}/{number:02}"),
                node=name,
                uuid=uuid,
                pool=pool.name,
                numa_node=0,
                mig_instances=tuple(
                    (pool.mig_profile, f"{uuid}/{instance}") for instance in instances
                ),
            )
        )
