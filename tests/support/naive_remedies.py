"""What would help a pod that waits, by trying everything on a world of plain values.

Units and sets of devices are judged by the naive allocation state, NUMA nodes by kubelet's own rules; nothing here asks
the core.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import msgspec

from api.kinds.gpupool import SlicePlacement
from pool.model import Demand, DeviceFacts, NodeFacts, PodFacts, PoolFacts
from pool.reservations.reservation import ReservationPhase
from pool.what_if.explanation import WithheldBy
from tests.support.kubelet_topology import Kubelet, RejectedError
from tests.support.naive_allocation_state import NaiveAllocationState
from tests.support.waiting_worlds import (
    CORDON,
    PROFILE,
    UNREADY,
    ReservedUnits,
    WaitingWorld,
    is_drifted,
)

ARCHS: Final = {"8.0": 80, "9.0": 90, "": 0}
"""Architecture by compute capability."""


@dataclass(frozen=True)
class NaivePlacement:
    """Whether nodes of a world take its pod."""

    world: WaitingWorld

    @cached_property
    def model(self) -> NaiveAllocationState:
        world = self.world
        found = NaiveAllocationState()
        found.pools = {name: _pool(item) for name, item in world.pools.items()}
        found.nodes = {name: _node(item) for name, item in world.nodes.items()}
        found.devices = {
            name: _device(
                item,
                is_withheld=name in world.withheld
                or is_drifted(item, world.pools.get(item.pool or "")),
            )
            for name, item in sorted(world.devices.items())
        }
        found.pods = {uid: _bound(item) for uid, item in world.bound.items()}
        found.reservations = {item.id: _reservation(item) for item in world.reserved.values()}
        return found

    def takes(self, node: str) -> bool:
        """Whether the node takes the pod: units, constraints, CPU, memory and a place."""
        return self.may_go_to(node) and self.has_units(node) and self.has_capacity(node)

    def taking(self) -> list[str]:
        return [node for node in self.world.nodes if self.takes(node)]

    def may_go_to(self, node: str) -> bool:
        """Whether kube-scheduler considers the node for the pod."""
        world, facts = self.world, self.world.nodes.get(node)
        if facts is None:
            return False
        keys = {taint.key for taint in facts.taints if taint.effect != "PreferNoSchedule"}
        keys |= {CORDON.key} if facts.is_cordoned else set()
        keys |= {UNREADY.key} if not facts.is_ready else set()
        is_in_zone = world.zones is None or facts.labels["zone"] in world.zones
        return is_in_zone and keys <= world.tolerated

    def has_units(self, node: str) -> bool:
        """Whether the extender lets the pod go there."""
        pool, demand = self.world.pool, self.world.pod.demand
        if pool is None or node not in self.world.nodes:
            return False
        own = {item.id for item in self.world.reserved.values() if self._is_own(item)}
        mine = {
            item.id for item in self.world.reserved.values() if item.id in own and item.node == node
        }
        figures = self.model.figures(pool.name, node)
        if figures is None or self.model.closed(pool.name, node, mine) is not None:
            return False
        if figures["unaccounted"]:
            return False
        return self._fits(pool, node, self.counts(pool, node, mine), demand)

    def counts(self, pool: PoolFacts, node: str, own: Collection[str] = ()) -> list[int]:
        """Units that the pod may get of each device of the pool there."""
        counts = self.model.available_counts(pool.name, node, own)
        archs = self.world.archs if self.world.pod.demand.caches else None
        if archs is None:
            return counts
        devices = self.model.devices_on(pool.name, node)
        return [
            count if ARCHS[self.world.devices[device["name"]].compute_capability] in archs else 0
            for count, device in zip(counts, devices, strict=True)
        ]

    def has_capacity(self, node: str) -> bool:
        facts, world = self.world.nodes[node], self.world
        pods = [item for item in world.bound.values() if item.node == node]
        pods += [
            item.pod
            for item in world.reserved.values()
            if item.node == node and item.is_stored and not self._is_own(item)
        ]
        cpu = sum(item.requests.cpu_milli for item in [*pods, world.pod])
        memory = sum(item.requests.memory_mib for item in [*pods, world.pod])
        requested = world.pod.requests
        return (
            (facts.cpu_milli is None or not requested.cpu_milli or cpu <= facts.cpu_milli)
            and (facts.memory_mib is None or not requested.memory_mib or memory <= facts.memory_mib)
            and (facts.most_pods is None or len(pods) < facts.most_pods)
        )

    def _is_own(self, one: ReservedUnits) -> bool:
        return one.pod.uid == self.world.pod.uid

    def _fits(self, pool: PoolFacts, node: str, free: list[int], demand: Demand) -> bool:
        containers = [
            (container.name, container.role, container.units) for container in demand.containers
        ]
        if not self.model.fits(pool.name, node, free, containers):
            return False
        kubelet = self.world.kubelets.get(node)
        if kubelet is None or pool.constrains_sets:
            return True
        if kubelet.knows_numa_nodes:
            return self._is_admitted(pool, node, free, demand)
        limit = self._most_numa_nodes(pool, node, demand.units)
        if limit is None:
            return True
        return any(
            sum(
                count
                for count, device in zip(free, self.model.devices_on(pool.name, node), strict=True)
                if device["numa"] in combination
            )
            >= demand.units
            for size in range(1, limit + 1)
            for combination in itertools.combinations(range(4), size)
        )

    def _most_numa_nodes(self, pool: PoolFacts, node: str, units: int) -> int | None:
        """How many NUMA nodes kubelet allows the pod; None for any."""
        policy = self.world.kubelets[node].policy.value
        devices = self.model.devices_on(pool.name, node)
        if policy in {"none", "best-effort"} or all(device["numa"] is None for device in devices):
            return None
        fewest = [
            size
            for size in range(1, 5)
            for combination in itertools.combinations(range(4), size)
            if sum(
                len(self.model.units_of(device))
                for device in devices
                if device["numa"] in combination
            )
            >= units
        ]
        limit = min(fewest, default=0)
        return 0 if policy == "single-numa-node" and limit > 1 else limit

    def _is_admitted(self, pool: PoolFacts, node: str, free: list[int], demand: Demand) -> bool:
        devices = self.model.devices_on(pool.name, node)
        kubelet = self.world.kubelets[node]
        units = {
            f"{at}-{number}": (at, number, device["numa"])
            for at, device in enumerate(devices)
            for number, _ in enumerate(self.model.units_of(device))
        }
        double = Kubelet(
            kubelet.policy.value,
            kubelet.scope.value,
            {unit: numa for unit, (_, _, numa) in units.items()},
            {unit for unit, (at, number, _) in units.items() if number < free[at]},
            machine=frozenset(range(4)),
        )
        try:
            double.admit(demand.containers)
        except RejectedError:
            return False
        return True


@dataclass(frozen=True)
class NaiveSearch:
    """Every change of each kind after which a node takes the pod."""

    world: WaitingWorld

    def smaller_sizes(self) -> Iterator[tuple[int, str]]:
        """Smaller sizes that the pod may ask for, and the nodes that take them."""
        demand, pool = self.world.pod.demand, self.world.pool
        if len(demand.containers) != 1 or pool is None:
            return
        for units in range(1, demand.units):
            if may_ask(pool, units):
                for node in NaivePlacement(asking(self.world, units)).taking():
                    yield units, node

    def expiries(self) -> Iterator[tuple[float, tuple[str, ...], str]]:
        """Reservations of stored pods that end in time, on one node: the latest deadline, their names, the node."""
        for node in self.world.nodes:
            names = [
                name
                for name, item in self.world.reserved.items()
                if item.node == node
                and item.phase is ReservationPhase.CONFIRMED
                and item.pod.uid != self.world.pod.uid
                and self.world.pool is not None
                and item.pool == self.world.pool.name
            ]
            for subset in subsets(names):
                if NaivePlacement(without_reservations(self.world, subset)).takes(node):
                    yield max(self.world.reserved[item].expires_at for item in subset), subset, node

    def other_pools(self) -> Iterator[tuple[str, str]]:
        """Pools that the pod may use for as many units, and the nodes that take it."""
        demand = self.world.pod.demand
        for pool in self.world.usable_pools:
            serving = self.world.serving(pool.resource)
            if serving is None or serving.name != pool.name or pool.resource == demand.resource:
                continue
            if len(demand.containers) == 1 and may_ask(pool, demand.units):
                for node in NaivePlacement(asking_pool(self.world, pool)).taking():
                    yield pool.name, node

    def schedulable_nodes(self) -> Iterator[str]:
        """Nodes that are only cordoned, or only not ready."""
        for node, facts in self.world.nodes.items():
            for changed in (schedulable(facts), ready(facts)):
                if changed != facts and NaivePlacement(with_node(self.world, changed)).takes(node):
                    yield node

    def restored_devices(self, cause: WithheldBy) -> Iterator[tuple[str, ...]]:
        """Devices of one node in the pool that are only faulted, only draining, or only partitioned by others."""
        for node in self.world.nodes:
            names = [
                name
                for name, device in self.world.devices.items()
                if device.node == node and self._causes(device) == {cause}
            ]
            for subset in subsets(names):
                if NaivePlacement(restored(self.world, subset)).takes(node):
                    yield subset

    def _causes(self, device: DeviceFacts) -> set[WithheldBy | None]:
        """Why a device is withheld; with None where it has a reservation, whose pod may start there at any moment."""
        world = self.world
        parts = {device.uuid, *(uuid for _, uuid in device.mig_instances)}
        pool = None if device.pool is None else world.pools[device.pool]
        drifted = pool == world.pool and is_drifted(device, pool)
        reserved = {unit for item in world.reserved.values() for unit in item.units}
        causes = {
            WithheldBy.FAULTED: device.is_faulted,
            WithheldBy.DRAINING: device.is_draining or device.name in world.withheld,
            WithheldBy.LAYOUT: drifted,
            None: drifted and bool(reserved & parts),
        }
        return {cause for cause, holds in causes.items() if holds}

    def joining_devices(self) -> Iterator[tuple[str, ...]]:
        pool = self.world.pool
        if pool is None:
            return
        for node in self.world.nodes:
            names = [item.name for item in self.world.joinable if item.node == node]
            for subset in subsets(names):
                if NaivePlacement(joined(self.world, subset)).takes(node):
                    yield subset

    def ending_pods(self) -> Iterator[tuple[str, ...]]:
        """Bound pods of one node that have units of the pool, or units that are not known."""
        pool = self.world.pool
        if pool is None:
            return
        for node in self.world.nodes:
            uids = [
                uid
                for uid, pod in self.world.bound.items()
                if pod.node == node and self._has_units_of(pool, pod)
            ]
            for subset in subsets(uids):
                if NaivePlacement(without_pods(self.world, subset)).takes(node):
                    yield subset

    def _has_units_of(self, pool: PoolFacts, pod: PodFacts) -> bool:
        if pod.devices is None:
            return pod.demand.resource == pool.resource
        parts = {unit.split("::")[0] for units in pod.devices.values() for unit in units}
        return any(
            parts & {device.uuid, *(uuid for _, uuid in device.mig_instances)}
            for device in self.world.devices.values()
            if (device.pool, device.node) == (pool.name, pod.node)
        )


def subsets(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    every = sorted(names)
    for size in range(1, len(every) + 1):
        yield from itertools.combinations(every, size)


def may_ask(pool: PoolFacts, units: int) -> bool:
    slices = pool.slices_per_device
    is_anywhere = pool.slice_placement is not SlicePlacement.SAME_DEVICE
    return is_anywhere or units <= slices or units % slices == 0


def asking(world: WaitingWorld, units: int) -> WaitingWorld:
    (container,) = world.pod.demand.containers
    changed = msgspec.structs.replace(container, units=units)
    demand = msgspec.structs.replace(world.pod.demand, containers=(changed,), units=units)
    return replace(world, pod=replace(world.pod, demand=demand))


def asking_pool(world: WaitingWorld, pool: PoolFacts) -> WaitingWorld:
    demand = msgspec.structs.replace(world.pod.demand, resource=pool.resource)
    return replace(world, pod=replace(world.pod, demand=demand))


def without_reservations(world: WaitingWorld, names: Collection[str]) -> WaitingWorld:
    left = {name: item for name, item in world.reserved.items() if name not in names}
    return replace(world, reserved=left)


def without_pods(world: WaitingWorld, uids: Collection[str]) -> WaitingWorld:
    return replace(world, bound={uid: item for uid, item in world.bound.items() if uid not in uids})


def with_node(world: WaitingWorld, node: NodeFacts) -> WaitingWorld:
    return replace(world, nodes={**world.nodes, node.name: node})


def schedulable(node: NodeFacts) -> NodeFacts:
    """The node after `kubectl uncordon`."""
    taints = tuple(taint for taint in node.taints if taint.key != CORDON.key)
    return replace(node, is_cordoned=False, taints=taints)


def ready(node: NodeFacts) -> NodeFacts:
    taints = tuple(taint for taint in node.taints if taint.key != UNREADY.key)
    return replace(node, is_ready=True, taints=taints)


def restored(world: WaitingWorld, names: Collection[str]) -> WaitingWorld:
    """The world once devices are well, stay, and are partitioned again, for which their pods end."""
    healthy, ended = {}, set[str]()
    for name in names:
        device = world.devices[name]
        if device.pool is not None and is_drifted(device, world.pools[device.pool]):
            parts = {uuid for _, uuid in device.mig_instances}
            ended |= {
                uid
                for uid, pod in world.bound.items()
                if any(parts & set(units) for units in (pod.devices or {}).values())
            }
            device = partitioned(device)
        healthy[name] = replace(device, is_faulted=False, is_draining=False)
    return replace(
        without_pods(world, ended),
        devices={**world.devices, **healthy},
        withheld=world.withheld - set(names),
    )


def partitioned(device: DeviceFacts) -> DeviceFacts:
    """The device with the instances that fit."""
    count = dict(device.mig_capacities)[PROFILE]
    uuids = [uuid for profile, uuid in device.mig_instances if profile == PROFILE]
    uuids += [f"{device.uuid}-new-{number}" for number in range(count - len(uuids))]
    return replace(device, mig_instances=tuple((PROFILE, uuid) for uuid in uuids))


def joined(world: WaitingWorld, names: Collection[str]) -> WaitingWorld:
    """The world once the obstacles of these devices are gone, a fault among them."""
    pool = world.pool
    assert pool is not None
    changed = {
        name: replace(item, pool=pool.name)
        for name, item in restored(world, names).devices.items()
        if name in names
    }
    return replace(
        world, devices={**world.devices, **changed}, withheld=world.withheld - set(names)
    )


def _pool(pool: PoolFacts) -> dict[str, Any]:
    return {
        "resource": pool.resource,
        "mode": pool.mode.value,
        "strategy": pool.strategy.value,
        "slices": pool.slices_per_device,
        "placement": pool.slice_placement.value,
        "topology": pool.device_topology.value,
        "profile": pool.mig_profile,
        "ttl": pool.ttl_s,
        "closed": pool.closed.value if pool.closed is not None else None,
        "created": pool.created,
    }


def _node(node: NodeFacts) -> dict[str, Any]:
    closed = {
        "leaving": node.is_leaving,
        "withheld": node.is_withheld,
        "starting": node.is_starting,
    }
    state = next((word for word, is_so in closed.items() if is_so), "")
    return {"ready": node.is_ready, "closed": state}


def _device(device: DeviceFacts, *, is_withheld: bool) -> dict[str, Any]:
    return {
        "name": device.name,
        "uuid": device.uuid,
        "node": device.node,
        "pool": device.pool,
        "faulted": device.is_faulted or device.is_draining or is_withheld,
        "migs": list(device.mig_instances),
        "numa": device.numa_node,
        "links": {link.peer: link.count for link in device.links},
        "created": device.created,
    }


def _bound(pod: PodFacts) -> dict[str, Any]:
    return {
        "uid": pod.uid,
        "phase": pod.phase.value,
        "node": pod.node,
        "resource": pod.demand.resource,
        "size": pod.demand.units,
        "devices": pod.devices,
        "inadmissible_units": (),
    }


def _reservation(one: ReservedUnits) -> dict[str, Any]:
    return {
        "id": one.id,
        "uid": one.pod.uid,
        "node": one.node,
        "pool": one.pool,
        "units": list(one.units),
        "phase": one.phase.value,
    }
