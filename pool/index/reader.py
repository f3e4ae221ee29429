"""Reading side of the device index: whether and how well a pod fits, for the scheduler, admission and explanations."""

from typing import TYPE_CHECKING

from pool.compute_resources import NOTHING, TOO_MANY_PODS, ComputeResources
from pool.index.figures import IndexFigures
from pool.index.pool_state import PoolState
from pool.placement.fragmentation.placement_costs import RemainingCapacity
from pool.placement.fragmentation.recent_demand import unit_milli

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.names import DeviceName, NodeName, PodUid, PoolName
    from pool.device_limit import CacheDemand
    from pool.index.node_view import FitView
    from pool.model import Demand, PodFacts, PoolFacts


class IndexReader(IndexFigures):
    """Views, scores and capacity for a pod; changes nothing."""

    def state_for(self, name: "PoolName", demand: "Demand") -> PoolState:
        """Return a pool's nodes, views and capacity for a pod: devices that its kernel caches do not fit have no units."""
        preference = self.cache_demand_of(demand)
        return (
            self.state(name) if preference is None else self.state(name).limited(preference.devices)
        )

    def cache_demand_of(self, demand: "Demand") -> "CacheDemand | None":
        """Return what a pod's kernel caches demand; None where it mounts none that is known."""
        return self.caches.demand(demand.caches) if demand.caches else None

    def view(self, name: "PoolName", demand: "Demand") -> "FitView":
        """Return refusals and scores of a pool's nodes for a demand; scores are without warmth."""
        state = self.state_for(name, demand) if demand.caches else self.state(name)
        return state.view(state.request_of(demand))

    def free_pods(self, node: "NodeName", *, without: "PodUid | None" = None) -> int | None:
        """Return how many more pods kubelet runs on a node, one pod left out; None where the node does not say."""
        facts = self._nodes.get(node)
        if facts is None or facts.most_pods is None:
            return None
        return facts.most_pods - self.requests.on(node, without=without).pods

    def has_capacity(
        self, pod: "PodFacts", node: "NodeName", *, freed: ComputeResources = NOTHING
    ) -> bool:
        """Say whether a node has what the pod requests, which does not count itself; `freed` is what others give back."""
        return not self.shortage(pod.requests, node, freed=freed, without=pod.uid)

    def shortage(
        self,
        requested: ComputeResources,
        node: "NodeName",
        *,
        freed: ComputeResources = NOTHING,
        without: "PodUid | None" = None,
    ) -> str:
        """Return which of CPU, memory and places for pods does not suffice, with its figures; empty where all do.

        A node that does not say what it has is taken to have enough. Where not all pods of nodes are read, it is not
        known what is left: no node has capacity for a pod that requests CPU or memory.

        Args:
            requested: what a pod requests.
            node: that has to have it.
            freed: what other pods give back.
            without: the pod, which does not count itself.
        """
        if not self.requests.is_whole and (requested.cpu_milli or requested.memory_mib):
            return "free cpu and memory are unknown: not all pods are read"
        cpu, memory = self.free_cpu_and_memory(node, without=without, freed=freed)
        if cpu is not None and cpu < requested.cpu_milli:
            return f"insufficient cpu: {requested.cpu_milli}m requested, {cpu}m free"
        if memory is not None and memory < requested.memory_mib:
            return f"insufficient memory: {requested.memory_mib} MiB requested, {memory} MiB free"
        places = self.free_pods(node, without=without)
        return TOO_MANY_PODS if places is not None and places + freed.pods < 1 else ""

    def remaining_capacity(
        self,
        pool: "PoolFacts",
        node: "NodeName",
        *,
        own: "Mapping[DeviceName, int]",
        uid: "PodUid",
    ) -> RemainingCapacity:
        """Return what is left of a node to a pod that has these masks of its devices already."""
        free = sorted(
            (entry.free | own.get(entry.facts.name, 0)).bit_count()
            for entry in self.devices_on(pool.name, node)
        )
        unit = unit_milli(pool)
        milli = (count * unit for count in free)
        return RemainingCapacity(tuple(milli), *self.free_cpu_and_memory(node, without=uid))

    def can_spread(self, pool: "PoolName", key: str) -> bool:
        """Say whether the pool's pods can go to every value that a label has on its nodes.

        All existing nodes of the pool carry the label, and each of its values has a node that takes pods and has healthy
        units. Free units are not required: units come free as pods end, and strict spreading means to wait for that.
        Without a full zone a pool would stop spreading whenever it is busy, and not begin again, since a pod keeps the
        constraint that it was admitted with. A node that is cordoned, not ready, faulty, or closed by an unaccounted
        pod has no such end.
        """
        return self._labels(pool, key)[0]

    def is_any_labelled(self, pool: "PoolName", key: str) -> bool:
        return self._labels(pool, key)[1]

    def _labels(self, pool: "PoolName", key: str) -> tuple[bool, bool]:
        answer = self._spreading.get((pool, key))
        if answer is None:
            state = self.state(pool)
            summaries = state.nodes()
            values = {
                name: node.labels.get(key)
                for name in state.devices_by_node
                if (node := self._nodes.get(name)) is not None
            }
            within_reach = {
                value
                for name, value in values.items()
                if (found := summaries.get(name)) is not None and found.takes_pods
            }
            can_spread = bool(values) and None not in values.values()
            answer = (
                can_spread and within_reach.issuperset(values.values()),
                any(value is not None for value in values.values()),
            )
            self._spreading[pool, key] = answer
        return answer
