"""Fault runs of fixed seeds: agent, kubelet and registry fail in turn while pods and caches come, change and go.

The oracle is the kernel's list of mounts and a walk of the store, beside the pods that are alive. At every step: a
volume keeps the content that it had first, and what is mounted is in the store. At the end, with everything running
again, mounts, store and the node's objects are those of the pods; and nothing is left once these have ended.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, final

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.node.caches.caches import volume_of
from tests.cluster.node.caches.fault_steps import StepKind, make_steps
from tests.cluster.node.caches.node_oracle import (
    MountedVolume,
    disagreements,
    mounted_volumes,
    stored_digests,
)
from tests.cluster.system.installation import GKM

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tests.cluster.environment.client import JsonObject
    from tests.cluster.node.caches.cache_images import CacheImage, CacheImages
    from tests.cluster.node.caches.caches import Caches
    from tests.cluster.node.caches.fault_steps import Step
    from tests.cluster.node.stories.agents import Agent

STEPS: Final = 60
LONG: Final = 1500
OWN: Final = ("llama", "mistral")
MOST_PODS: Final = 8
AT_THE_END_S: Final = 150
"""kubelet's own patience with a volume doubles up to two minutes."""


@final
class FaultRun:
    """Carries steps out, and checks after each."""

    def __init__(
        self,
        caches: "Caches",
        images: "Mapping[str, CacheImage]",
        agent: "Agent",
        registry_images: "CacheImages",
    ) -> None:
        self._caches = caches
        self._agent = agent
        self._registry = registry_images.registry
        self._images = [images[name] for name in ("llama:1", "llama:2", "llama:3")]
        self._shared = f"shared-{caches.namespace}"
        self._pods: dict[str, str] = {}
        # pod -> its cache
        self._numbers = 0
        self._seen: dict[tuple[str, str], str] = {}
        # (uid of the pod, volume) -> digest of its first mount
        self.story: list[str] = []
        self._acts: Mapping[StepKind, Callable[[int], Awaitable[str]]] = {
            StepKind.START_POD: self._start_pod,
            StepKind.END_POD: self._end_pod,
            StepKind.CHANGE_IMAGE: self._change_image,
            StepKind.DELETE_CACHE: self._delete_cache,
            StepKind.MAKE_CACHE: self._make_cache,
            StepKind.AGENT: self._agent_dies_or_starts,
            StepKind.KUBELET: self._kubelet_restarts,
            StepKind.REGISTRY: self._registry_stops_or_starts,
        }

    async def begin(self) -> None:
        for name in self._names():
            await self._make(name, self._images[0])

    async def take(self, step: "Step") -> None:
        """Carry a step out, and check what holds at every moment."""
        self.story.append(f"{step.kind.value}: {await self._acts[step.kind](step.choice)}")
        await self._check()

    async def end(self) -> None:
        """Start everything again, and check that all agrees; then end it all, and check that nothing is left."""
        if not self._registry.process.running:
            await self._registry.restart()
        if not self._agent.process.running:
            await self._agent.start()
        # Its patience with volumes that it could not mount begins again.
        await self._caches.node.kubelet.restart()
        await self._caches.node.wait_ready()
        for name in self._names():
            if not await self._is_there(name):
                await self._caches.end(*(pod for pod, cache in self._pods.items() if cache == name))
                self._pods = {pod: cache for pod, cache in self._pods.items() if cache != name}
                await self._caches.gone(name, of_cluster=self._is_shared(name))
                await self._make(name, self._images[0])
            await self._start_pod_of(name)
        for name in self._pods:
            await pods.wait_for_pod(
                self._caches.api,
                self._caches.namespace,
                name,
                pods.is_running,
                within=AT_THE_END_S,
            )
        await self._check()
        await self._caches.agrees(await self._digests())
        for name in self._pods:
            assert await self._caches.marker_in(name) == await self._marker_of(name)
        await self._caches.clear()
        await polling.eventually(self._is_empty, what="the node has nothing left")

    async def _check(self) -> None:
        """Check what holds at every moment, whatever runs."""
        # In this order: what runs has been mounted before, and what is mounted has been stored before.
        path = pods.collection(self._caches.namespace)
        running = [
            item["metadata"]
            for item in (await self._caches.api.get(path))["items"]
            if pods.is_running(item) and "deletionTimestamp" not in item["metadata"]
        ]
        mounted = mounted_volumes()
        stored = stored_digests()
        for item in mounted:
            first = self._seen.setdefault((item.pod_uid, item.volume), item.digest)
            assert first == item.digest, f"another content under a pod: {item}, first {first}"
            assert item.digest in stored, f"removed under a pod: {item}"
        twice = [item for item, count in Counter(mounted).items() if count > 1]
        assert not twice, f"mounted twice: {twice}"
        uids = {item.pod_uid for item in mounted}
        without = [item["name"] for item in running if item["uid"] not in uids]
        assert not without, f"pods run without their caches: {without}"

    async def _is_empty(self) -> bool:
        assert mounted_volumes() == []
        assert stored_digests() == set()
        for kind in ("gkmcachenodes", "clustergkmcachenodes"):
            assert (await self._caches.api.get(f"{GKM}/{kind}"))["items"] == []
        return True

    async def _digests(self) -> dict[str, str]:
        """Return pod -> digest that is mounted for it."""
        by_uid = {volume.pod_uid: volume.digest for volume in mounted_volumes()}
        return {name: by_uid[await self._uid(name)] for name in self._pods}

    async def _marker_of(self, pod: str) -> str:
        digest = (await self._digests())[pod]
        return next(image.marker for image in self._images if image.digest == digest)

    async def _uid(self, pod: str) -> str:
        path = f"{pods.collection(self._caches.namespace)}/{pod}"
        return str((await self._caches.api.get(path))["metadata"]["uid"])

    def _names(self) -> tuple[str, ...]:
        return (*OWN, self._shared)

    def _is_shared(self, name: str) -> bool:
        return name == self._shared

    async def _make(self, name: str, image: "CacheImage") -> None:
        await self._caches.make(name, image, of_cluster=self._is_shared(name))

    async def _found(self, name: str) -> "JsonObject":
        path = self._caches.path(name, of_cluster=self._is_shared(name))
        return await self._caches.api.find(path)

    async def _is_there(self, name: str) -> bool:
        metadata = (await self._found(name)).get("metadata", {})
        return bool(metadata) and "deletionTimestamp" not in metadata

    async def _start_pod(self, choice: int) -> str:
        if len(self._pods) >= MOST_PODS:
            return await self._end_pod(choice)
        return await self._start_pod_of(self._names()[choice % 3])

    async def _start_pod_of(self, cache: str) -> str:
        self._numbers += 1
        name = f"pod-{self._numbers}"
        namespace = None if self._is_shared(cache) else self._caches.namespace
        await self._caches.create(self._caches.a_pod(name, volume_of(cache, namespace)))
        self._pods[name] = cache
        return f"{name} with {cache}"

    async def _end_pod(self, choice: int) -> str:
        if not self._pods:
            return "there is none"
        name = sorted(self._pods)[choice % len(self._pods)]
        del self._pods[name]
        path = f"{pods.collection(self._caches.namespace)}/{name}"
        await self._caches.api.delete(path)
        return name

    async def _change_image(self, choice: int) -> str:
        name = self._names()[choice % 3]
        image = self._images[choice // 3 % len(self._images)]
        if not await self._is_there(name):
            return f"{name} is not there"
        if not self._registry.process.running:
            path = self._caches.path(name, of_cluster=self._is_shared(name))
            before = (await self._found(name))["spec"]["image"]
            if before == image.reference:
                return "nothing changes"
            with pytest.raises(client.ApiRefusedError):
                await self._caches.api.patch(path, {"spec": {"image": image.reference}})
            return f"{name} to {image.marker}: refused"
        await self._caches.change(name, image, of_cluster=self._is_shared(name))
        return f"{name} to {image.marker}"

    async def _delete_cache(self, choice: int) -> str:
        name = self._names()[choice % 3]
        if not await self._is_there(name):
            return f"{name} is not there"
        await self._caches.delete(name, of_cluster=self._is_shared(name))
        return name

    async def _make_cache(self, choice: int) -> str:
        missing = [name for name in self._names() if not await self._found(name)]
        if not missing or not self._registry.process.running:
            return "none is missing, or the registry is away"
        name = missing[choice % len(missing)]
        await self._make(name, self._images[choice % len(self._images)])
        return name

    async def _agent_dies_or_starts(self, _choice: int) -> str:
        if self._agent.process.running:
            self._agent.kill9()
            return "killed"
        await self._agent.start()
        return "started"

    async def _kubelet_restarts(self, _choice: int) -> str:
        await self._caches.node.kubelet.restart()
        return "done"

    async def _registry_stops_or_starts(self, _choice: int) -> str:
        if self._registry.process.running:
            self._registry.process.kill9()
            return "killed"
        await self._registry.restart()
        return "started"


async def test_references_mounts_and_disk_agree_whatever_fails(
    caches: "Caches",
    images: "dict[str, CacheImage]",
    agent: "Agent",
    cache_images: "CacheImages",
    progress: "Callable[[str], None]",
    *,
    is_long: bool,
):
    seed, count = (31, LONG) if is_long else (7, STEPS)
    run = FaultRun(caches, images, agent, cache_images)
    await run.begin()
    try:
        for step in make_steps(seed, count):
            await run.take(step)
        await run.end()
    except BaseException:
        progress(f"seed {seed}: " + "\n".join(run.story))
        raise


def test_every_kind_of_step_happens():
    assert {step.kind for step in make_steps(7, STEPS)} == set(StepKind)


def test_the_oracle_tells_every_difference():
    digest, other = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
    volume = MountedVolume("uid", "cache-0", digest)
    uses = Counter({("uid", digest): 1})
    assert disagreements(uses, mounted=[volume], stored={digest}) == []
    assert len(disagreements(uses, mounted=[volume, volume], stored={digest})) == 1
    assert len(disagreements(uses, mounted=[], stored={digest})) == 1
    assert len(disagreements(uses, mounted=[volume], stored={other})) == 1
    assert len(disagreements(Counter({("uid", other): 1}), mounted=[volume], stored={digest})) == 2
