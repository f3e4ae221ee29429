"""Pools on the node's devices, pods that ask for them, and what their containers really have."""

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from tests.cluster.environment import nodes, pods, polling
from tests.cluster.node.environment.allocatable_units import allocatable_units
from tests.cluster.system.objects import API, DEVICES, POOLS, PREFIX, a_pool_object, devices_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster.environment.client import ApiClient, JsonObject
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.devices import NodeDevices

INVENTORIES = f"{API}/gpunodeinventories"
EVENTS = "/apis/events.k8s.io/v1/events"
_SHOW = "echo units=$GPU_UNITS; echo pool=$GPU_POOL; echo visible=$NVIDIA_VISIBLE_DEVICES; cd /dev; find . -name 'nvidia*[0-9]' -type c"


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """What a container shows from within."""

    units: list[str]
    pool: str
    visible: str
    files: list[str]
    """Device files of GPUs below /dev, by name."""


@final
class Pools:
    """Makes them, and waits for what follows."""

    def __init__(
        self, api: "ApiClient", namespace: str, node: "RealNode", devices: "NodeDevices"
    ) -> None:
        self.api = api
        self.namespace = namespace
        self.node = node
        self.devices = devices
        self.resources: list[str] = []
        """Of the pools that were made, in order."""
        self._made: list[str] = []

    async def make(
        self,
        *numbers: int,
        units: int = 0,
        name: str = "",
        others: "Sequence[str]" = (),
        is_awaited: bool = True,
        **spec: Any,
    ) -> str:
        """Make a pool of these devices, and wait until the node offers its units, if wanted; return its resource.

        `others` are the inventory IDs of devices of other nodes that are in it too.
        """
        name = name or f"pool-{secrets.token_hex(3)}"
        # The devices of a pool before it are free once the node's inventory says so.
        addresses = [self.devices.devices[number].address.lower()[4:] for number in numbers]
        own = [f"{self.node.name}-{address}" for address in addresses]
        include = {"inventoryIDs": [*own, *others]}
        self._made.append(name)
        await self.api.create(
            POOLS,
            a_pool_object(
                name,
                deviceSelector={"include": include},
                assignment={"requireAnnotation": False},
                **spec,
            ),
        )
        resource = PREFIX + name
        self.resources.append(resource)
        if is_awaited:
            await self.offers(resource, units or len(numbers))
        return resource

    async def offers(self, resource: str, units: int) -> None:
        """Wait until kubelet says that so many units may be given out, and the pool is ready."""
        await self.offers_of(resource, units)

        async def is_ready() -> bool:
            current = await self.api.conditions(f"{POOLS}/{resource.removeprefix(PREFIX)}")
            assert current.get("Ready", {}).get("status") == "True", f"{current}"
            return True

        await polling.eventually(is_ready, what=f"pool of {resource}", every=0.1)

    async def offers_of(self, resource: str, units: int) -> None:
        """Wait until kubelet says that so many units may be given out."""

        async def does() -> bool:
            status = await self.api.status(f"{nodes.NODES}/{self.node.name}")
            seen = status.get("allocatable", {}).get(resource)
            pool = await self.api.status(f"{POOLS}/{resource.removeprefix(PREFIX)}")
            assert seen == str(units), f"{resource}: allocatable {seen}, pool {pool}"
            now = await allocatable_units(self.node.pod_resources_directory, resource)
            assert now == units, f"{resource}: kubelet can allocate {now}"
            return True

        await polling.eventually(does, what=f"{units} of {resource}", every=0.1)

    def a_pod(
        self,
        name: str,
        resource: str,
        units: int = 1,
        *,
        command: "Sequence[str]" = ("sleep", "100000"),
        **spec: Any,
    ) -> "JsonObject":
        """Return a pod that asks for units and is left to the scheduler.

        It has no token: a pod that is deleted while a kubelet that has just started still mounts one may
        stay for ever (seen with 1.36: the mount is tried again and again, and the namespace is ending).
        """
        spec.setdefault("automountServiceAccountToken", False)
        return self.node.a_pod(name, command, limits={resource: units}, nodeName=None, **spec)

    async def create(self, *made: "JsonObject") -> None:
        for pod in made:
            await self.api.create(pods.collection(self.namespace), pod)

    async def run(self, pod: "JsonObject") -> "JsonObject":
        """Create the pod and wait until it runs; return it."""
        await self.create(pod)
        return await self.running(pod["metadata"]["name"])

    async def running(self, name: str) -> "JsonObject":
        return await pods.wait_for_pod(self.api, self.namespace, name, pods.is_running)

    async def get(self, name: str) -> "JsonObject":
        return await self.api.get(f"{pods.collection(self.namespace)}/{name}")

    async def delete(self, *names: str) -> None:
        for name in names:
            await self.api.delete(f"{pods.collection(self.namespace)}/{name}")
        for name in names:
            await pods.wait_for_pod_gone(self.api, self.namespace, name)

    async def seen(self, pod: str, container: str = "main") -> Seen:
        """Return what a running container has."""
        said = await self.node.exec(self.namespace, pod, ["sh", "-c", _SHOW], container=container)
        return seen_in(said)

    def files_of(self, units: "Sequence[str]") -> list[str]:
        """Return the device files of GPUs that these units are, or are slices of."""
        minors = {device.uuid: device.minor for device in self.devices.devices}
        return sorted({f"nvidia{minors[unit.partition('::')[0]]}" for unit in units})

    async def allocations(self, pod: str) -> dict[str, list[str]]:
        """Return what the node reports of a pod: container -> units."""
        found = await self.api.status(f"{INVENTORIES}/{self.node.name}")
        return {
            item["container"]: sorted(item["units"])
            for item in found.get("allocations") or []
            if (item["namespace"], item["pod"]) == (self.namespace, pod)
        }

    async def reported(self, pod: "JsonObject") -> None:
        """Wait until the node reports what the pod was assigned."""
        assigned = {name: sorted(units) for name, units in devices_of(pod).items() if units}

        async def is_reported() -> bool:
            seen = await self.allocations(pod["metadata"]["name"])
            assert seen == assigned, f"reported {seen}, assigned {assigned}"
            return True

        await polling.eventually(is_reported, what=f"report of {pod['metadata']['name']}")

    async def recorded(self, reason: str, name: str) -> str:
        """Wait for an Event about an object of this name; return its text."""

        async def is_reported() -> str:
            found = (await self.api.get(EVENTS, fieldSelector=f"reason={reason}"))["items"]
            notes = [item["note"] for item in found if item["regarding"]["name"] == name]
            assert notes, f"no {reason} of {name}"
            return str(notes[-1])

        return str(await polling.eventually(is_reported, what=f"{reason} of {name}"))

    async def degraded(self, reason: str) -> None:
        """Wait until the node's condition AgentDegraded has this reason."""

        async def is_so() -> bool:
            current = await self.api.conditions(f"{INVENTORIES}/{self.node.name}")
            found = current.get("AgentDegraded", {})
            assert found.get("reason", "AsExpected") == reason, f"{found}"
            return True

        await polling.eventually(is_so, what=f"AgentDegraded: {reason}")

    async def device(self, number: int) -> "JsonObject":
        uuid = self.devices.devices[number].uuid
        found = (await self.api.get(DEVICES))["items"]
        return next(item for item in found if item.get("status", {}).get("uuid") == uuid)

    async def clear_pods(self) -> None:
        """Delete the namespace's pods, and wait until they are gone."""
        found = (await self.api.get(pods.collection(self.namespace)))["items"]
        await self.delete(*(item["metadata"]["name"] for item in found))

    async def clear(self) -> None:
        """Delete the namespace's pods and these pools, and wait until their devices are free."""
        await self.clear_pods()
        made, self._made = self._made, []
        for name in made:
            await self.api.delete(f"{POOLS}/{name}")

        async def are_gone() -> bool:
            left = [item["metadata"]["name"] for item in (await self.api.get(POOLS))["items"]]
            assert not set(left) & set(made), f"pools left: {left}"
            return True

        await polling.eventually(are_gone, what="pools gone")


def seen_in(said: str) -> Seen:
    """Read what the script that shows a container's devices prints."""
    lines = said.splitlines()
    variables = dict(line.split("=", 1) for line in lines[:3])
    return Seen(
        units=sorted(filter(None, variables["units"].split(","))),
        pool=variables["pool"],
        visible=variables["visible"],
        files=sorted(line.rpartition("/")[2] for line in lines[3:]),
    )
