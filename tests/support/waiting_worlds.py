"""Small clusters with a pod that waits, drawn from a seed, and the allocation state that is built from one.

A world is plain values, so that a remedy is carried out on it before the state is built from scratch.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from api.foreign.core import NodeSelectorTerm, NodeTaint, Toleration
from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from api.kinds.gpupool import AllocationMode, DeviceTopology, SlicePlacement, Strategy
from api.meta import SelectorOperator, SelectorRequirement
from api.names import DeviceName, NodeName, PoolName, ReservationId, UnitId
from kernelcache.cache_index import CacheIndex
from pool.allocation_state import AllocationState
from pool.compute_resources import ComputeResources
from pool.model import (
    ContainerRole,
    DeviceFacts,
    DeviceLink,
    KubeletTopology,
    NodeFacts,
    PodFacts,
    PodPhase,
    PodSelection,
    PoolFacts,
)
from pool.placement.planner import Placed
from pool.reservations.reservation import PlacementRequest, ReservationPhase
from tests.support.builders import a_demand, a_device, a_node, a_pod_facts, a_pool, at
from tests.support.cache_demands import LLAMA, a_resolved_cache

Option = TypeVar("Option")

NOW: Final = 1000.0
TEAM: Final = NodeTaint(key="team", value="a", effect="NoSchedule")
CORDON: Final = NodeTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
UNREADY: Final = NodeTaint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
RATHER_NOT: Final = NodeTaint(key="spot", effect="PreferNoSchedule")
PROFILE: Final = "1g.10gb"
PHASES: Final = (*[ReservationPhase.CONFIRMED] * 5, *ReservationPhase)


@dataclass(frozen=True)
class ReservedUnits:
    """A reservation with units, and the pending pod that it is for."""

    id: str
    pod: PodFacts
    pool: str
    node: str
    units: tuple[str, ...]
    phase: ReservationPhase
    expires_at: float

    @property
    def is_stored(self) -> bool:
        return self.phase not in {ReservationPhase.HELD, ReservationPhase.TIED}


@dataclass(frozen=True)
class WaitingWorld:
    """A cluster and a pod; by name, uid or id."""

    pools: Mapping[str, PoolFacts]
    nodes: Mapping[str, NodeFacts]
    kubelets: Mapping[str, KubeletTopology]
    devices: Mapping[str, DeviceFacts]
    withheld: frozenset[str]
    bound: Mapping[str, PodFacts]
    reserved: Mapping[str, ReservedUnits]
    pod: PodFacts
    zones: frozenset[str] | None
    """Zones that the pod may go to; None for all."""
    tolerated: frozenset[str]
    """Keys of taints."""
    usable_pools: tuple[PoolFacts, ...]
    """Pools beyond its own that the pod may use."""
    archs: frozenset[int] | None
    """Architectures of the kernel cache that the pod mounts."""

    @property
    def pool(self) -> PoolFacts | None:
        return self.serving(self.pod.demand.resource)

    @property
    def joinable(self) -> list[DeviceFacts]:
        return [device for device in self.devices.values() if device.pool is None]

    def serving(self, resource: str) -> PoolFacts | None:
        """The oldest pool with a resource."""
        claims = [pool for pool in self.pools.values() if pool.resource == resource]
        return min(claims, key=lambda claim: (claim.created, claim.name), default=None)

    def built(self) -> AllocationState:
        """Return a new state that has observed all of this world."""
        state, caches = AllocationState(), CacheIndex()
        state.index.caches = caches
        if self.archs is not None:
            caches.set_cache(LLAMA, a_resolved_cache(*sorted(self.archs)))
        for pool in self.pools.values():
            state.index.replace_pool(pool)
        for node in self.nodes.values():
            state.index.replace_node(node)
        for name, kubelet in self.kubelets.items():
            state.index.replace_kubelet(NodeName(name), kubelet)
        for device in self.devices.values():
            state.index.replace_device(device)
        for name in sorted(self.withheld):
            state.index.withhold(DeviceName(name))
        for pod in self.bound.values():
            state.observe_pod(pod, at(0))
        for item in self.reserved.values():
            self._reserve(state, item)
        state.observe_pod(self.pod, at(NOW))
        return state

    def _reserve(self, state: AllocationState, one: ReservedUnits) -> None:
        pool = self.pools[one.pool]
        request = PlacementRequest(
            id=ReservationId(one.id),
            pool=pool,
            demand=one.pod.demand,
            namespace=one.pod.namespace,
            name=one.pod.name,
        )
        since = at(one.expires_at - pool.ttl_s)
        units = tuple(map(UnitId, one.units))
        placed = Placed(PoolName(one.pool), NodeName(one.node), {"c0": units})
        state.reserve(request, placed, since)
        if one.phase is not ReservationPhase.HELD:
            state.tie(request.id, one.pod.uid, name=one.pod.name, now=since)
        if one.is_stored:
            pod = self.pod if one.pod.uid == self.pod.uid else one.pod
            state.observe_pod(pod, since)
        if one.is_stored and one.phase is not ReservationPhase.CONFIRMED:
            state.commit(request, placed, uid=one.pod.uid, now=since)
        if one.phase is ReservationPhase.BOUND:
            state.written(one.pod.uid)
        if one.phase is ReservationPhase.DOUBTFUL:
            state.mark_doubtful(one.pod.uid, since)


def units_of(device: DeviceFacts, pool: PoolFacts) -> list[str]:
    """Units of a device in a pool."""
    if not device.uuid:
        return []
    match pool.mode:
        case AllocationMode.EXCLUSIVE:
            return [device.uuid]
        case AllocationMode.TIME_SLICE:
            return [f"{device.uuid}::{number}" for number in range(pool.slices_per_device)]
        case AllocationMode.MIG:
            return sorted(uuid for profile, uuid in device.mig_instances if profile == PROFILE)


def is_drifted(device: DeviceFacts, pool: PoolFacts | None) -> bool:
    """Whether others partitioned a device of the pool."""
    if pool is None or pool.mode is not AllocationMode.MIG or not device.mig_capacities:
        return False
    count = dict(device.mig_capacities)[PROFILE]
    return [profile for profile, _ in device.mig_instances] != [PROFILE] * count


def a_waiting_world(seed: int) -> WaitingWorld:
    """Return the world of a seed: mostly one whose pod waits."""
    return _Drawing(random.Random(seed)).world()


class _Drawing:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._numbers = itertools.count()
        self._idle = chance.choice((0.15, 0.35, 0.6))
        """Chance that a unit is free."""

    def _is(self, share: float) -> bool:
        return self._chance.random() < share

    def _one_of(self, options: Sequence[Option]) -> Option:
        return self._chance.choice(options)

    def world(self) -> WaitingWorld:
        pools = self._pools()
        main = pools["main"]
        nodes = {f"n{number}": self._node(number) for number in range(self._one_of((1, 2, 2, 3)))}
        devices = {
            str(device.name): device for node in nodes for device in self._devices(node, pools)
        }
        if self._is(0.03):
            del nodes[self._one_of(sorted(nodes))]
        world = WaitingWorld(
            pools=pools,
            nodes=nodes,
            kubelets=self._kubelets(nodes, main),
            devices=devices,
            withheld=frozenset(name for name in devices if self._is(0.04)),
            bound={},
            reserved={},
            pod=a_pod_facts(),
            zones=None,
            tolerated=frozenset(),
            usable_pools=self._usable(pools),
            archs=None,
        )
        if not world.kubelets and self._is(0.15):  # a kubelet that chooses wants all devices to fit
            world = replace(world, archs=frozenset({self._one_of((80, 90))}))
        world = self._with_waiting_pod(world, main)
        world = self._with_holders(world)
        if self._is(0.06):
            world = self._with_own_reservation(world, main)
        world = replace(world, pod=replace(world.pod, awaits_capacity=self._is(0.15)))
        drifted = {name: self._drifted(device) for name, device in world.devices.items()}
        return replace(world, devices=drifted) if self._is(0.4) else world

    def _drifted(self, device: DeviceFacts) -> DeviceFacts:
        """Let the driver say how many instances fit: as many as the device has, or more."""
        fitting = sum(profile == PROFILE for profile, _ in device.mig_instances)
        return replace(device, mig_capacities=((PROFILE, fitting + self._one_of((0, 0, 1, 3))),))

    def _pools(self) -> dict[str, PoolFacts]:
        names = ["main", *(["second", "third"][: self._one_of((0, 1, 1, 2))])]
        pools = {name: self._pool(name) for name in names}
        if "second" in pools and self._is(0.08):  # the older one serves the resource
            pools["second"] = replace(
                pools["second"], resource=pools["main"].resource, created=self._created()
            )
        elif "third" in pools and self._is(0.3):
            pools["third"] = replace(
                pools["third"], resource=pools["second"].resource, created=self._created()
            )
        return pools

    def _created(self) -> str:
        return self._one_of(("2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"))

    def _pool(self, name: str) -> PoolFacts:
        sliced: dict[str, Any] = {
            "mode": AllocationMode.TIME_SLICE,
            "slices_per_device": self._one_of((2, 3, 4)),
        }
        aligned: dict[str, Any] = {"device_topology": DeviceTopology.REQUIRED}
        kinds: tuple[dict[str, Any], ...] = (
            {},
            {},
            {},
            aligned,
            sliced,
            sliced,
            {**sliced, "slice_placement": SlicePlacement.SAME_DEVICE},
            {**sliced, **aligned},
            {"mode": AllocationMode.MIG, "mig_profile": PROFILE},
        )
        closed = self._one_of((*[{}] * 40, {"is_terminating": True}, {"is_in_maintenance": True}))
        strategy = self._one_of(tuple(Strategy))
        created = "2026-01-02T00:00:00Z"
        return a_pool(name, strategy=strategy, created=created, **{**self._one_of(kinds), **closed})

    def _usable(self, pools: Mapping[str, PoolFacts]) -> tuple[PoolFacts, ...]:
        return tuple(item for name, item in pools.items() if name != "main" and self._is(0.75))

    def _node(self, number: int) -> NodeFacts:
        node = a_node(f"n{number}", labels={"zone": self._one_of(("a", "b"))})
        taints = [item for item in (TEAM, RATHER_NOT) if self._is(0.1)]
        if self._is(0.12):
            node = replace(node, is_cordoned=True)
            taints += [CORDON] if self._is(0.8) else []
        if self._is(0.08):
            node = replace(node, is_ready=False)
            taints += [UNREADY] if self._is(0.8) else []
        state = "" if self._is(0.9) else self._one_of(("leaving", "starting", "withheld"))
        amount = 8000 if self._is(0.3) else None
        return replace(
            node,
            taints=tuple(taints),
            is_leaving=state == "leaving",
            is_starting=state == "starting",
            is_withheld=state == "withheld",
            cpu_milli=amount,
            memory_mib=amount,
            most_pods=self._one_of((*[None] * 9, 1, 2, 3)),
        )

    def _kubelets(self, nodes: Mapping[str, Any], pool: PoolFacts) -> dict[str, KubeletTopology]:
        if pool.constrains_sets or self._is(0.7):
            return {}
        policies = tuple(TopologyManagerPolicy)
        return {
            node: KubeletTopology(
                self._one_of(policies),
                self._one_of(tuple(TopologyManagerScope)),
                knows_numa_nodes=self._is(0.4),
            )
            for node in nodes
        }

    def _devices(self, node: str, pools: Mapping[str, PoolFacts]) -> list[DeviceFacts]:
        count = self._one_of((1, 2, 3, 4, 4, 5))
        homes = [None, *pools, *pools, *["main"] * (3 + len(pools))]
        numa = self._one_of(((0, 0, 1, 1, 1), (0, 1, 0, 1, 0), (0, 1, 2, 3, 0), (None,) * 5))
        linked = [number for number in range(count) if self._is(0.3)]
        found = [
            a_device(
                node,
                number,
                self._one_of(homes),
                numa_node=numa[number],
                is_faulted=self._is(0.1),
                is_draining=self._is(0.1),
                compute_capability=self._one_of(("9.0", "9.0", "8.0", "")),
                mig_instances=tuple(
                    (self._one_of((PROFILE, PROFILE, "2g.20gb")), f"MIG-{node}-{number}-{part}")
                    for part in range(self._one_of((0, 2, 3)))
                ),
                links=tuple(
                    DeviceLink(DeviceName(f"{node}-{peer}"), "NVLink", 4)
                    for peer in linked
                    if number in linked and peer != number
                ),
            )
            for number in range(count)
        ]
        for number, device in enumerate(found):
            if self._is(0.03):
                found[number] = replace(device, uuid="")
            elif number and self._is(0.02):
                found[number] = replace(device, uuid=found[0].uuid, pool=found[0].pool)
        return found

    def _with_waiting_pod(self, world: WaitingWorld, pool: PoolFacts) -> WaitingWorld:
        zones = frozenset({self._one_of(("a", "b"))}) if self._is(0.2) else None
        tolerated = frozenset(item.key for item in (TEAM, CORDON, UNREADY) if self._is(0.08))
        terms: tuple[NodeSelectorTerm, ...] = ()
        selector: tuple[tuple[str, str], ...] = ()
        if zones is not None and self._is(0.5):
            (zone,) = zones
            in_zone = SelectorRequirement(key="zone", operator=SelectorOperator.IN, values=[zone])
            terms = (NodeSelectorTerm(match_expressions=[in_zone]),)
        elif zones is not None:
            selector = tuple(("zone", zone) for zone in zones)
        selection = PodSelection(
            selector, terms, tuple(Toleration(key=key, operator="Exists") for key in tolerated)
        )
        demand = self._demand(world, pool)
        if world.archs is not None:
            demand = msgspec.structs.replace(demand, caches=(LLAMA,))
        pod = a_pod_facts(
            "waiting",
            demand=demand,
            selection=selection,
            priority=self._one_of((0, 0, 1, 2)),
            is_gated=self._is(0.02),
            requests=ComputeResources(*self._one_of(((0, 0), (3000, 0), (6000, 6000))), pods=1),
        )
        return replace(world, pod=pod, zones=zones, tolerated=tolerated)

    def _demand(self, world: WaitingWorld, pool: PoolFacts) -> Any:
        name = pool.name if self._is(0.98) else "unknown"
        is_same_device = pool.slice_placement is SlicePlacement.SAME_DEVICE
        if is_same_device:
            slices = pool.slices_per_device
            sizes = [*range(1, slices + 1), slices * 2]
        else:
            sizes = [1, 2, 2, 3, 3, 4, 4, 5, 6]
        if world.kubelets or self._is(0.8):
            return a_demand(self._one_of(sizes), pool=name)
        first = self._one_of(tuple(ContainerRole))
        roles = (first, ContainerRole.MAIN)
        return a_demand(self._one_of((1, 2)), self._one_of(sizes), pool=name, roles=roles)

    def _with_holders(self, world: WaitingWorld) -> WaitingWorld:
        bound: dict[str, PodFacts] = {}
        reserved: dict[str, ReservedUnits] = {}
        places = sorted({item.node for item in world.devices.values()})
        seen: set[str] = set()
        for node, pool in itertools.product(places, world.pools.values()):
            pods: dict[str, list[str]] = {}
            for device in world.devices.values():
                at_home = device.pool == pool.name
                was_here = device.pool is None and pool.name == "main" and self._is(0.1)
                if device.node != node or not (at_home or was_here) or device.uuid in seen:
                    continue
                seen.add(device.uuid)
                for unit in units_of(device, pool):
                    if not self._is(self._idle):
                        owner = self._one_of(("b1", "b1", "b2", "b3", "r1", "r1", "r2", "r3"))
                        pods.setdefault(owner, []).append(unit)
            for owner, units in pods.items():
                name = f"{owner}-{node}-{pool.name}"
                if owner.startswith("b"):
                    bound[f"uid-{name}"] = self._bound(name, node, pool, units)
                else:
                    reserved[name] = self._reserved(name, node, pool, units)
        for name in world.nodes:
            if self._is(0.05):
                pod = self._bound(f"stranger-{name}", name, world.pools["main"], ["?"])
                bound[pod.uid] = replace(pod, devices=None)
        return replace(world, bound=bound, reserved=reserved)

    def _pod(self, name: str, pool: PoolFacts, units: int) -> PodFacts:
        return a_pod_facts(
            name,
            units,
            demand=msgspec.structs.replace(a_demand(units), resource=pool.resource),
            namespace=self._one_of(("default", "team")),
            priority=self._one_of((0, 0, 1, 2)),
            created=f"2026-01-01T00:00:{next(self._numbers) % 60:02}Z",
            requests=ComputeResources(1000, 0, pods=1),
        )

    def _bound(self, name: str, node: str, pool: PoolFacts, units: Sequence[str]) -> PodFacts:
        devices = {"c0": tuple(map(UnitId, units))}
        pod = self._pod(name, pool, len(units))
        return replace(pod, phase=PodPhase.BOUND, node=NodeName(node), devices=devices)

    def _reserved(
        self, name: str, node: str, pool: PoolFacts, units: Sequence[str]
    ) -> ReservedUnits:
        return ReservedUnits(
            id=f"id-{name}",
            pod=self._pod(name, pool, len(units)),
            pool=pool.name,
            node=node,
            units=tuple(units),
            phase=self._one_of(PHASES),
            expires_at=NOW + self._one_of((5.0, 10.0, 20.0, 30.0, 60.0)),
        )

    def _with_own_reservation(self, world: WaitingWorld, pool: PoolFacts) -> WaitingWorld:
        """Let a reservation that is not committed be the waiting pod's own."""
        mine = [
            name
            for name, item in world.reserved.items()
            if item.phase is ReservationPhase.CONFIRMED and item.pool == pool.name
        ]
        if not mine or world.pod.is_gated:
            return world
        name = self._one_of(mine)
        demand = a_demand(len(world.reserved[name].units), pool=pool.name)
        demand = msgspec.structs.replace(demand, caches=world.pod.demand.caches)
        pod = replace(world.pod, demand=demand)
        own = replace(world.reserved[name], pod=pod)
        return replace(world, pod=pod, reserved={**world.reserved, name: own})
