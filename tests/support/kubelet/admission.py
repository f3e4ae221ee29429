"""A double of how kubelet gives devices to pods: one pod at a time, container by container.

After pkg/kubelet/cm/devicemanager/manager.go of Kubernetes 1.36: what an init container has is handed on,
maps have no order, the plugin is asked for a preference only where something is lacking, what it prefers is
taken as far as it is available, and an error of either call rejects the pod. With `aligns` it does as under
the topology policy best-effort: units of one NUMA node first, and no query where they leave no choice.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TypeVar, final

import grpc

from api.kubelet.deviceplugin import HEALTHY
from api.kubelet.podresources import ContainerUnits, PodUnits
from api.kubelet.proto import deviceplugin_pb2
from api.quantity import parse_count
from tests.support.kubelet.plugins import PluginsOfKubelet
from tests.support.kubelet.pod_resources import PodResourcesServer

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from api.foreign.core import Container, Pod

T = TypeVar("T", str, tuple[str, int])
_Place = tuple[str, str, str]
# uid, container, resource


class PodRejectedError(Exception):
    """kubelet fails the pod, with reason UnexpectedAdmissionError; the text is its message."""


@final
@dataclass(frozen=True, slots=True)
class AdmittedContainer:
    """What one container got."""

    units: dict[str, frozenset[str]] = field(default_factory=dict)
    """By resource."""
    responses: dict[str, deviceplugin_pb2.ContainerAllocateResponse] = field(default_factory=dict)


@final
class KubeletOfNode:
    """An async context manager: kubelet runs inside, admits pods, and may `restart`."""

    def __init__(self, root: "Path", chance: "random.Random") -> None:
        self.plugins = PluginsOfKubelet(root / "device-plugins")
        self.pod_resources = PodResourcesServer(root / "pod-resources", self)
        self.waits: list[float] = []
        """Seconds that each preference took."""
        self.aligns = False
        """A topology policy is set."""
        self.lists_during_allocate = 0
        """They make kubelet forget what is being allocated."""
        self._chance = chance
        self._one_at_a_time = asyncio.Lock()
        self._active: dict[str, Pod] = {}
        # by uid; those being admitted, too
        self._given: dict[_Place, frozenset[str]] = {}
        # The checkpoint. Pods that ended are in it until a recount.
        self._in_use: dict[str, set[str]] = {}
        self._is_allocating = False

    async def __aenter__(self) -> Self:
        """Start."""
        await self.plugins.__aenter__()
        await self.pod_resources.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Stop."""
        await self.pod_resources.stop()
        await self.plugins.__aexit__(kind, error, trace)

    async def restart(self) -> None:
        """Stop and start again, between two admissions; pods and their devices stay."""
        async with self._one_at_a_time:
            await self.pod_resources.stop()
            await self.plugins.restart()
            await self.pod_resources.start()
            self._recount()

    async def admit(self, pod: "Pod") -> dict[str, AdmittedContainer]:
        """Admit a pod that is bound here; return what its containers got.

        Raises:
            PodRejected: it is failed for good.
        """
        async with self._one_at_a_time:
            uid = pod.metadata.uid
            self._active[uid] = pod
            if _places(self._given) - self._active.keys():
                self._recount()
            try:
                return await self._admit_containers(pod)
            except PodRejectedError:
                del self._active[uid]
                self._recount()
                raise

    def lose_checkpoint(self) -> None:
        """Forget every pod and what it was given."""
        self._given.clear()
        self._in_use.clear()
        self._active.clear()

    def end(self, uid: str) -> None:
        """End a pod: its devices are free from the next recount on."""
        self._active.pop(uid, None)

    def start_admission(self, pod: "Pod") -> None:
        """List a pod as one that is being admitted, and has no units yet."""
        self._active[pod.metadata.uid] = pod

    def forget_use(self, resource: str, unit: str) -> None:
        """Count a unit as free, as after a List in the middle of its Allocate."""
        self._in_use[resource].discard(unit)

    def units_of(self, uid: str) -> set[str]:
        """Return all units that a pod has."""
        return {unit for (of, _, _), units in self._given.items() if of == uid for unit in units}

    def list_pods(self) -> list[PodUnits]:
        """List; where a pod ended, what is being allocated is forgotten."""
        self.lists_during_allocate += self._is_allocating
        if _places(self._given) - self._active.keys():
            self._recount()
        return self._reported_all()

    def find_pod(self, namespace: str, name: str) -> PodUnits | None:
        """Return an active pod."""
        found = (
            pod for pod in self._reported_all() if (pod.namespace, pod.name) == (namespace, name)
        )
        return next(found, None)

    def allocatable(self) -> dict[str, list[str]]:
        """Return the healthy units."""
        return {
            resource: [device.ID for device in devices if device.health == HEALTHY]
            for resource, devices in self.plugins.devices.items()
        }

    async def _admit_containers(self, pod: "Pod") -> dict[str, AdmittedContainer]:
        got: dict[str, AdmittedContainer] = {}
        reusable: dict[str, set[str]] = {}
        for container, is_init in _in_order(pod):
            got[container.name] = await self._admit_container(pod, container, reusable)
            hands_on = is_init and container.restart_policy != "Always"
            for resource, units in got[container.name].units.items():
                kept = reusable.setdefault(resource, set())
                if hands_on:
                    kept |= units
                else:
                    kept -= units
        return got

    async def _admit_container(
        self, pod: "Pod", container: "Container", reusable: dict[str, set[str]]
    ) -> AdmittedContainer:
        got = AdmittedContainer()
        for resource, count in self._shuffled(_counts(container)):
            place = (pod.metadata.uid, container.name, resource)
            if place in self._given:  # before a restart
                got.units[resource] = self._given[place]
                continue
            units = await self._choose(resource, count, reusable.get(resource, set()))
            self._is_allocating = True
            try:
                response = await self.plugins.allocate(resource, self._shuffled(units))
            except grpc.aio.AioRpcError as error:
                raise PodRejectedError(f"Allocate failed due to {error.details()}") from error
            finally:
                self._is_allocating = False
            self._given[place] = got.units[resource] = frozenset(units)
            got.responses[resource] = response
        return got

    async def _choose(self, resource: str, count: int, reusable: set[str]) -> set[str]:
        healthy = set(self.allocatable().get(resource, ()))
        if not healthy:
            raise PodRejectedError("no healthy devices present; cannot allocate unhealthy devices")
        chosen = set(self._shuffled(reusable)[:count])
        if len(chosen) == count:
            return chosen
        in_use = self._in_use.setdefault(resource, set())
        available = healthy - in_use
        if len(available) < count - len(chosen):
            raise PodRejectedError(
                f"requested number of devices unavailable for {resource}."
                f" Requested: {count - len(chosen)}, Available: {len(available)}"
            )
        offered = available
        if self.aligns:
            aligned = self._aligned(resource, available, count - len(chosen))
            if count - len(chosen) < len(aligned):
                offered = aligned
            else:
                chosen |= aligned
            if len(chosen) == count:
                in_use |= chosen
                return chosen
        request = deviceplugin_pb2.ContainerPreferredAllocationRequest(
            available_deviceIDs=self._shuffled(offered | chosen),
            must_include_deviceIDs=self._shuffled(chosen),
            allocation_size=count,
        )
        preferred = await self._prefer(resource, request)
        for item in (preferred & offered, offered):
            chosen.update(self._shuffled(item - chosen)[: count - len(chosen)])
        in_use |= chosen
        return chosen

    def _aligned(self, resource: str, available: set[str], count: int) -> set[str]:
        """Return the free units of the first NUMA node that has enough, or of all nodes."""
        nodes: dict[int, set[str]] = {}
        for device in self.plugins.devices[resource]:
            for node in device.topology.nodes if device.ID in available else ():
                nodes.setdefault(node.ID, set()).add(device.ID)
        fitting = [nodes[number] for number in sorted(nodes) if len(nodes[number]) >= count]
        return fitting[0] if fitting else {unit for units in nodes.values() for unit in units}

    async def _prefer(
        self, resource: str, request: deviceplugin_pb2.ContainerPreferredAllocationRequest
    ) -> set[str]:
        if not self.plugins.prefers(resource):
            return set()
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            return set(await self.plugins.prefer(resource, request))
        except grpc.aio.AioRpcError as error:
            text = f"GetPreferredAllocation rpc failed with err: {error.details()}"
            raise PodRejectedError(text) from error
        finally:
            self.waits.append(loop.time() - started)

    def _recount(self) -> None:
        self._given = {
            place: units for place, units in self._given.items() if place[0] in self._active
        }
        self._in_use = {}
        for (_, _, resource), units in self._given.items():
            self._in_use.setdefault(resource, set()).update(units)

    def _reported_all(self) -> list[PodUnits]:
        given: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
        for (uid, name, resource), units in self._given.items():
            given.setdefault((uid, name), {})[resource] = tuple(units)
        return [_current(pod, given) for pod in self._active.values()]

    def _shuffled(self, some: "Iterable[T]") -> "list[T]":
        # Sorted first, since the order of a set is another in each process.
        items = sorted(some)
        self._chance.shuffle(items)
        return items


def _places(given: "Iterable[_Place]") -> set[str]:
    return {uid for uid, _, _ in given}


def _current(
    pod: "Pod", given: "Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]]"
) -> PodUnits:
    uid = pod.metadata.uid
    containers = [
        ContainerUnits(container.name, given.get((uid, container.name), {}))
        for container, is_init in _in_order(pod)
        if not is_init or container.restart_policy == "Always"
    ]
    return PodUnits(pod.metadata.namespace, pod.metadata.name, tuple(containers))


def _in_order(pod: "Pod") -> "Iterator[tuple[Container, bool]]":
    """Yield containers, and whether they are init containers."""
    for container in pod.spec.init_containers or ():
        yield container, True
    for container in pod.spec.containers or ():
        yield container, False


def _counts(container: "Container") -> list[tuple[str, int]]:
    limits = container.resources.limits if container.resources is not None else None
    return [
        (resource, parse_count(str(quantity)))
        for resource, quantity in (limits or {}).items()
        if "/" in resource and parse_count(str(quantity))
    ]
