"""The part of the cluster that a run plays in: a namespace, nodes, devices, two pools and pods.

Every name is new, so that one run leaves nothing to the next. What operators, kubelets and inventory
would do is done here directly at the API server, insisting where the arena must know how it stands.
"""

import asyncio
import contextlib
import functools
import itertools
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import aiohttp

from tests.cluster.environment import client, nodes, pods
from tests.cluster.system.objects import DEVICES, POOLS, a_container, a_device, a_pool_object
from tests.cluster.system.objects import Pool as PoolNames
from tests.fault import observations
from tests.fault.growing_pool import GrowingPool
from tests.fault.steps import DEVICES_PER_NODE, NODES, SLICED, SLICES, WHOLE
from tests.fault.unreadable_objects import UnreadableObjects
from tests.fault.upgrades.driver_rollout import NODE_LABELS, NODES_AWAY_IDLE, DriverRollout
from tests.fault.upgrades.upgrade_observations import (
    ADMIN,
    CORDONED,
    GUARDED_PODS,
    UNCORDONED,
    DriverPod,
    DriverSet,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.cluster.environment import control_plane as control_planes

GATE: Final = "example.test/not-yet"
PRIORITIES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_INSIST_FOR_S: Final = 90.0
_EVERY_S: Final = 0.2
_SLOTS: Final = tuple(itertools.product(range(NODES), range(DEVICES_PER_NODE)))
_CREATED_EVERY_S: Final = 0.7
_CREATED_WITHIN_TRIES: Final = 5
"""As a controller does: it comes again when admission cannot be reached."""


@dataclass(slots=True)
class _Device:
    pool: int
    life: int = 0
    """Another device in the same slot is another life."""
    is_faulty: bool = False


@final
class Arena:
    """Made by `build`, gone after `raze`."""

    def __init__(self, api: client.ApiClient, control_plane: "control_planes.ControlPlane") -> None:
        self._api = api
        self._name = f"fault-{secrets.token_hex(3)}"
        self.namespace = self._name
        self.pools = (f"whole-{self._name[6:]}", f"sliced-{self._name[6:]}")
        self.growing = GrowingPool(api, control_plane, f"{self._name}-grown")
        self.drivers = DriverRollout(api, self._name)
        self.unreadable = UnreadableObjects(
            api,
            {
                "gpupools": (*self.pools, self.growing.name),
                "gpudevices": [self._device_name(*slot) for slot in _SLOTS],
                "clusterpolicies": (self.drivers.policy,),
                "nvidiadrivers": (f"{self._name}-unused",),
            },
        )
        self.refused = 0
        """How many pods were not created, because a request failed."""
        self._strategy: list[str | None] = [None, None]
        self._ttl = ["15s", "15s"]
        self._gpus = [
            [
                _Device(SLICED if gpu == DEVICES_PER_NODE - 1 else WHOLE)
                for gpu in range(DEVICES_PER_NODE)
            ]
            for _ in range(NODES)
        ]
        self._has_node = [True] * NODES

    def has(self, subject: observations.ObservedObject) -> bool:
        """Say whether an object that is not in the namespace belongs to the arena."""
        match subject:
            case observations.Pod():
                return True
            case observations.Pool():
                return subject.name in (*self.pools, self.growing.name)
            case DriverPod():
                return subject.node.startswith(f"{self._name}-")
            case DriverSet():
                return subject.owner == self.drivers.policy
            case observations.Claim():
                return subject.pool == self.growing.name
            case _:
                return subject.name.startswith(f"{self._name}-")

    async def build(self) -> None:
        """Make everything; the server has not seen it yet when it returns."""
        await self._api.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        await self._api.create(PRIORITIES, {"metadata": {"name": self._name}, "value": 1000})
        for node in range(NODES):
            await self._create_node(node)
        for pool in (WHOLE, SLICED):
            await self.insist(functools.partial(self._create_pool, pool))
        for slot in _SLOTS:
            # Refused until the server has seen the pool that the device is assigned to.
            device = self._device(*slot)
            await self.insist(functools.partial(self._api.create, DEVICES, device))
            await self._report(*slot)
        await self.growing.build(self.insist)
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default"
        await self.insist(lambda: self._api.get(account))
        await self.drivers.build(self.insist, pool=self.pools[WHOLE], priority=self._name)
        await self.unreadable.build(self.insist)

    async def raze(self) -> None:
        """Delete everything that is outside of the namespace, and the namespace."""
        await self.drivers.release()
        await self.unreadable.release()
        paths = [f"{DEVICES}/{self._device_name(*slot)}" for slot in _SLOTS]
        paths += [f"{POOLS}/{name}" for name in self.pools]
        paths += await self.growing.release()
        paths += [f"{nodes.NODES}/{self._node_name(node)}" for node in range(NODES)]
        paths += [f"{PRIORITIES}/{self._name}", f"/api/v1/namespaces/{self.namespace}"]
        for path in paths:
            with contextlib.suppress(client.ApiRefusedError):
                await self._api.delete(path)

    # --- pods ------------------------------------------------------------------------------------

    async def create_pod(
        self, number: int, pool: int, shape: str, *, is_important: bool, is_gated: bool
    ) -> None:
        """Create it through admission; `shape` is units by container, `i` for init containers."""
        names = PoolNames(name=(*self.pools, self.growing.name)[pool], nodes=())
        spec: dict[str, Any] = {"schedulerName": "default-scheduler", "containers": []}
        for index, part in enumerate(shape.split("+")):
            kind = "initContainers" if part.startswith("i") else "containers"
            units = int(part.removeprefix("i"))
            spec.setdefault(kind, []).append(a_container(f"c{index}", names, units))
        if is_important:
            spec["priorityClassName"] = self._name
        if is_gated:
            spec["schedulingGates"] = [{"name": GATE}]
        body = {"metadata": {"name": _pod_name(number)}, "spec": spec}
        for _ in range(_CREATED_WITHIN_TRIES):
            try:
                await self._api.create(pods.collection(self.namespace), body)
            except client.ApiRefusedError as refused:
                if refused.reason == "AlreadyExists":
                    return
            except (aiohttp.ClientError, TimeoutError):
                pass
            else:
                return
            await asyncio.sleep(_CREATED_EVERY_S)
        self.refused += 1

    async def delete_pod(self, name: str, *, grace_s: int = 0) -> None:
        """Delete it; a pod that a budget guards stays, as nobody else may end it."""
        if name.startswith(GUARDED_PODS):
            return
        options = {"gracePeriodSeconds": grace_s}
        await self._try(
            lambda: self._api.delete(f"{pods.collection(self.namespace)}/{name}", options=options)
        )

    async def delete_pod_number(self, number: int, *, grace_s: int) -> None:
        await self.delete_pod(_pod_name(number), grace_s=grace_s)

    async def replace_pod(self, name: str) -> None:
        """Have another pod of the same name and demand take its place at once; not of a guarded one."""
        if name.startswith(GUARDED_PODS):
            return
        path = f"{pods.collection(self.namespace)}/{name}"
        with contextlib.suppress(client.ApiRefusedError, aiohttp.ClientError, TimeoutError):
            old = await self._api.get(path)
            await self._api.delete(path, options={"gracePeriodSeconds": 0})
            containers = [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "resources": container["resources"],
                }
                for container in old["spec"]["containers"]
            ]
            body = {"metadata": {"name": name}, "spec": {"containers": containers}}
            await self._api.create(pods.collection(self.namespace), body)

    async def finish_pod(self, number: int, phase: str) -> None:
        """End a pod if it is running."""
        name = _pod_name(number)
        with contextlib.suppress(client.ApiRefusedError, aiohttp.ClientError, TimeoutError):
            pod = await self._api.get(f"{pods.collection(self.namespace)}/{name}")
            if pods.is_running(pod):
                await pods.report_end(self._api, pod, phase)

    async def ungate_pod(self, number: int) -> None:
        path = f"{pods.collection(self.namespace)}/{_pod_name(number)}"
        with contextlib.suppress(client.ApiRefusedError, aiohttp.ClientError, TimeoutError):
            gates = (await self._api.get(path))["spec"].get("schedulingGates") or []
            kept = [gate for gate in gates if gate["name"] != GATE]
            if kept != gates:
                await self._api.patch(path, {"spec": {"schedulingGates": kept}})

    async def ungate_all(self) -> None:
        listing = await self.insist(lambda: self._api.get(pods.collection(self.namespace)))
        for pod in listing["items"]:
            if any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ()):
                await self.ungate_pod(int(pod["metadata"]["name"].rpartition("-")[2]))

    async def delete_all_pods(self) -> None:
        collection = pods.collection(self.namespace)
        await self.insist(lambda: self._api.delete(collection, gracePeriodSeconds="0"))

    # --- nodes, devices, pools ---------------------------------------------------------------------

    async def remove_node(self, node: int) -> None:
        """Delete the node; its pods and the objects of its devices stay, as they do at first."""
        if self._has_node[node]:
            self._has_node[node] = False
            await self.insist(
                lambda: self._api.delete(f"{nodes.NODES}/{self._node_name(node)}"),
                missing_is_done=True,
            )

    async def bring_node_back(self, node: int) -> None:
        """Create the node again, with other devices in every slot."""
        if not self._has_node[node]:
            for gpu in range(DEVICES_PER_NODE):
                self._gpus[node][gpu].life += 1
                await self._report(node, gpu)
            await self._create_node(node)
            self._has_node[node] = True

    async def swap_devices(self, name: str) -> None:
        """Put other devices into every slot of a node that stays."""
        for node in range(NODES):
            if self._node_name(node) == name:
                for gpu in range(DEVICES_PER_NODE):
                    self._gpus[node][gpu].life += 1
                    await self._report(node, gpu)

    async def set_cordon(self, node: int, *, is_cordoned: bool) -> None:
        """Cordon or uncordon it as kubectl does: only where it is not so yet."""
        if self._has_node[node]:
            await self.insist(functools.partial(self._set_cordon, node, is_cordoned))

    async def _set_cordon(self, node: int, is_cordoned: bool) -> None:
        path = f"{nodes.NODES}/{self._node_name(node)}"
        seen = await self._api.get(path)
        if bool(seen["spec"].get("unschedulable")) is is_cordoned:
            return
        metadata = {
            "resourceVersion": seen["metadata"]["resourceVersion"],
            "annotations": {ADMIN: CORDONED if is_cordoned else UNCORDONED},
        }
        body = {"metadata": metadata, "spec": {"unschedulable": is_cordoned}}
        await self._api.patch(path, body)

    async def crash_driver(self, node: int, for_s: float) -> None:
        """Let the node's driver crash for a while; returns when it has recovered."""
        name = self._node_name(node)
        await self.drivers.crash(name, for_s)
        await self.insist(lambda: self.drivers.recover(name))

    async def set_faulty(self, node: int, gpu: int, *, is_faulty: bool) -> None:
        self._gpus[node][gpu].is_faulty = is_faulty
        await self._report(node, gpu)

    async def move_device(self, node: int, gpu: int) -> None:
        """Assign the device to the other pool, which has it once the pods with units of it have ended."""
        slot = self._gpus[node][gpu]
        slot.pool = SLICED if slot.pool == WHOLE else WHOLE
        await self._assign(node, gpu)
        if self._has_node[node]:
            await self._offer(node)

    async def _assign(self, node: int, gpu: int) -> None:
        path = f"{DEVICES}/{self._device_name(node, gpu)}"
        metadata = {"annotations": self._device(node, gpu)["metadata"]["annotations"]}
        await self.insist(lambda: self._api.patch(path, {"metadata": metadata}))

    async def set_strategy(self, pool: int, strategy: str) -> None:
        self._strategy[pool] = strategy
        await self._change_pool(pool, {"scheduling": {"strategy": strategy}})

    async def set_ttl(self, pool: int, ttl: str) -> None:
        self._ttl[pool] = ttl
        await self._change_pool(pool, {"reservation": {"ttl": ttl}})

    async def replace_pool(self, pool: int) -> None:
        """Delete the pool and create it again, however long that takes.

        Its finalizer would hold it as long as pods run there; an administrator takes that off.
        """
        path = f"{POOLS}/{self.pools[pool]}"
        await self.insist(lambda: self._api.delete(path), missing_is_done=True)
        await self._ensure_pool(pool)

    async def _ensure_pool(self, pool: int) -> None:
        path = f"{POOLS}/{self.pools[pool]}"
        found = await self.insist(functools.partial(self._api.find, path))
        if found and "deletionTimestamp" in found["metadata"]:
            freed = {"metadata": {"finalizers": None}}
            await self.insist(lambda: self._api.patch(path, freed), missing_is_done=True)
        await self.insist(functools.partial(self._create_pool, pool))

    async def repeat(self) -> None:
        """Repeat what was done since the backup that etcd was restored from."""
        await self.unreadable.put_back(self.insist)
        for pool in (
            WHOLE,
            SLICED,
        ):  # before devices are assigned: one may have been deleted in the backup
            await self._ensure_pool(pool)
        for node in range(NODES):
            path = f"{nodes.NODES}/{self._node_name(node)}"
            is_there = bool(await self.insist(functools.partial(self._api.find, path)))
            for gpu in range(DEVICES_PER_NODE):
                await self._report(node, gpu)
                await self._assign(node, gpu)
            if is_there and not self._has_node[node]:
                await self.insist(functools.partial(self._api.delete, path), missing_is_done=True)
            elif self._has_node[node] and not is_there:
                await self._create_node(node)
            elif is_there:
                await self._offer(node)

    async def heal(self) -> None:
        """Bring back what is gone and faulty, and let upgrades go on; what was moved stays where it is."""
        await self.unreadable.put_back(self.insist)
        await self.drivers.set_limits(self.insist, 0, NODES_AWAY_IDLE)
        for node in range(NODES):
            await self.bring_node_back(node)
            await self.set_cordon(node, is_cordoned=False)
            for gpu in range(DEVICES_PER_NODE):
                if self._gpus[node][gpu].is_faulty:
                    await self.set_faulty(node, gpu, is_faulty=False)
        for pool in (WHOLE, SLICED):
            await self._ensure_pool(pool)

    # --- steps -----------------------------------------------------------------------------------

    async def insist(
        self, attempt: "Callable[[], Awaitable[Any]]", *, missing_is_done: bool = False
    ) -> Any:
        """Try until it succeeds; an existing object, or a missing one if so told, is success."""
        deadline = asyncio.get_running_loop().time() + _INSIST_FOR_S
        while True:
            try:
                return await attempt()
            except client.ApiRefusedError as refused:
                if refused.reason == "AlreadyExists" or (missing_is_done and refused.status == 404):
                    return None
                failure: Exception = refused
            except (aiohttp.ClientError, TimeoutError) as error:
                failure = error
            if asyncio.get_running_loop().time() > deadline:
                raise failure
            await asyncio.sleep(_EVERY_S)

    async def _try(self, attempt: "Callable[[], Awaitable[Any]]") -> bool:
        try:
            await attempt()
        except (client.ApiRefusedError, aiohttp.ClientError, TimeoutError):
            return False
        return True

    async def _create_node(self, node: int) -> None:
        name = self._node_name(node)
        resources = self._offered(node)

        async def create() -> None:
            try:
                await nodes.create_nodes(
                    self._api,
                    1,
                    prefix=f"{self._name}-n{node}",
                    gpus=0,
                    resources=resources,
                    labels=NODE_LABELS,
                )
            except* client.ApiRefusedError:
                # Half-way: a node that is there already is not finished.
                await self._try(lambda: self._api.delete(f"{nodes.NODES}/{name}"))
                raise TimeoutError from None

        await self.insist(create)

    def _offered(self, node: int) -> dict[str, int]:
        offered = dict.fromkeys(self.pools, 0)
        for slot in self._gpus[node]:
            offered[self.pools[slot.pool]] += SLICES if slot.pool == SLICED else 1
        return {observations.PREFIX + pool: units for pool, units in offered.items()}

    async def _offer(self, node: int) -> None:
        await self.insist(
            lambda: nodes.set_extended_resources(
                self._api, self._node_name(node), self._offered(node)
            )
        )

    async def _create_pool(self, pool: int) -> None:
        allocation: dict[str, Any] = {"mode": "Exclusive"}
        if pool == SLICED:
            allocation = {"mode": "TimeSlice", "slicesPerDevice": SLICES}
        spec: dict[str, Any] = {"allocation": allocation, "reservation": {"ttl": self._ttl[pool]}}
        if self._strategy[pool] is not None:
            spec["scheduling"] = {"strategy": self._strategy[pool]}
        await self._api.create(POOLS, a_pool_object(self.pools[pool], **spec))

    async def _change_pool(self, pool: int, spec: dict[str, Any]) -> None:
        path = f"{POOLS}/{self.pools[pool]}"
        await self._try(lambda: self._api.patch(path, {"spec": spec}))

    async def _report(self, node: int, gpu: int) -> None:
        """Write what the inventory and health know, and no other's fields: whose the device is says assignment."""
        device = self._device(node, gpu)
        device["metadata"] = {"name": device["metadata"]["name"]}
        del device["status"]["poolRef"]
        path = f"{DEVICES}/{self._device_name(node, gpu)}/status"
        await self.insist(
            lambda: self._api.patch(
                path, device, kind="apply", fieldManager="the-arena", force="true"
            )
        )

    def _device(self, node: int, gpu: int) -> dict[str, Any]:
        slot = self._gpus[node][gpu]
        device = a_device(self._node_name(node), gpu, self.pools[slot.pool])
        device["metadata"]["name"] = self._device_name(node, gpu)
        device["status"]["uuid"] = f"GPU-{self._node_name(node)}-{gpu}-{slot.life}"
        device["status"]["conditions"] = [
            {
                "type": "Healthy",
                "status": "False" if slot.is_faulty else "True",
                "reason": "Xid" if slot.is_faulty else "Clean",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ]
        return device

    def _node_name(self, node: int) -> str:
        return f"{self._name}-n{node}-0"

    def _device_name(self, node: int, gpu: int) -> str:
        return f"{self._name}-n{node}-device-{gpu}"


def _pod_name(number: int) -> str:
    return f"pod-{number}"
