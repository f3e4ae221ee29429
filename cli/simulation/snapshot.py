"""A copy of a cluster's allocation state, filled by the server's own sinks in the server's own order.

The copy has no recorder and no binder, so whatever is tried on it is seen by nobody.
"""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, final

from admission.context import AdmissionContext
from api.clock import Instant
from api.names import NodeName, ReservationId
from api.well_known_labels import HOSTNAME_LABEL
from kernelcache.cache_index import CacheIndex
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from pool.index.device_index import DeviceIndex
from pool.model import NodeFacts
from pool.value_ranking import rank_nodes
from reconciler.informer_stores import InformerStores
from reconciler.sinks.pod import PodSink
from scheduler.context import ExtenderContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.simulation.cluster_objects import ClusterObjects
    from pool.placement.fragmentation.recent_demand import RecentDemands
    from scheduler.ports import BindOutcome, PodBinding, PodReading, PodRef


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of a cluster at one moment, and the contexts in which the server's decisions run on it."""

    origin: str
    state: AllocationState
    stores: InformerStores
    admission: AdmissionContext
    scheduling: ExtenderContext
    limits: tuple[tuple[str, str], ...]
    """Namespace and name of each ResourceQuota and LimitRange."""
    gaps: tuple[str, ...]
    """Why the snapshot is partial, one line each."""

    @property
    def catalog(self) -> Catalog:
        return self.stores.catalog

    @property
    def index(self) -> DeviceIndex:
        return self.stores.index


def take_snapshot(
    objects: "ClusterObjects", now: Instant, *, demands: "RecentDemands | None" = None
) -> Snapshot:
    """Return the state that a server has once it has started with these objects.

    Args:
        objects: of the cluster.
        now: the moment.
        demands: without pods; those of the default settings where they are left out.
    """
    catalog, kernel_caches = Catalog(), CacheIndex()
    index = DeviceIndex(demands, caches=kernel_caches, has_all_pods=objects.are_pods_whole)
    state = AllocationState(index)
    stores = InformerStores(state, catalog, kernel_caches)
    stores.device_sink.replace_all(objects.devices)
    stores.pool_sink.replace_all(objects.pools)
    stores.node_sink.replace_all(_nodes_of(objects))
    stores.inventory_sink.replace_all(objects.inventories)
    stores.namespace_sink.replace_all(objects.namespaces)
    _take_over_kernel_caches(stores, objects)
    pods = PodSink(state, lambda: now)
    pods.replace_all(objects.pods)
    rank_nodes(index)
    new_id = _ids()
    return Snapshot(
        origin=objects.origin,
        state=state,
        stores=stores,
        admission=AdmissionContext(
            index=index,
            reader=state.reader,
            allocation_state=state,
            catalog=catalog,
            scheduler_name=None,
            new_id=new_id,
            now=lambda: now,
            is_ready=lambda: True,
            callers_are_known=True,
            sign=lambda _: "",
        ),
        scheduling=ExtenderContext(
            index=index,
            reader=state.reader,
            allocation_state=state,
            binder=_NoBinder(),
            new_id=new_id,
            now=lambda: now,
            is_ready=lambda: True,
        ),
        limits=tuple(objects.limits),
        gaps=tuple(objects.gaps),
    )


def _take_over_kernel_caches(stores: InformerStores, objects: "ClusterObjects") -> None:
    for cache in objects.gkm_caches:
        stored = stores.gkm_caches
        (stored.namespaced if cache.metadata.namespace else stored.cluster).upsert(cache)
    for node in objects.gkm_cache_nodes:
        on_nodes = stores.gkm_cache_nodes
        (on_nodes.namespaced if node.key.namespace else on_nodes.cluster).upsert(node)


def _nodes_of(objects: "ClusterObjects") -> list[NodeFacts]:
    """Return the nodes; where none could be read, one for each that has devices."""
    if objects.nodes:
        return list(objects.nodes)
    names = sorted({item.facts.node for item in objects.devices})
    return [NodeFacts(name=NodeName(name), labels={HOSTNAME_LABEL: name}) for name in names]


def _ids() -> "Callable[[], ReservationId]":
    numbers = itertools.count(1)
    return lambda: ReservationId(f"simulated-{next(numbers)}")


@final
class _NoBinder:
    """A simulation plans a Binding, and never sends one."""

    async def bind(self, binding: "PodBinding") -> "BindOutcome":
        _refuse(binding)

    async def read(self, pod: "PodRef", *, within_s: float | None = None) -> "PodReading":
        _refuse(pod)


def _refuse(thing: object) -> NoReturn:
    raise AssertionError(f"a simulation sends no request about {thing}")
