"""GKMCaches and ClusterGKMCaches, pods that mount them, and what each shows."""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, final

from tests.cluster.environment import client, pods, polling
from tests.cluster.node.caches import node_oracle
from tests.cluster.node.caches.cache_images import MARKER
from tests.cluster.node.environment import images
from tests.cluster.system.installation import GKM

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tests.cluster.environment.client import ApiClient, JsonObject
    from tests.cluster.node.caches.cache_images import CacheImage
    from tests.cluster.node.environment.real_node import RealNode

CLUSTER_CACHES: Final = f"{GKM}/clustergkmcaches"
EVENTS: Final = "/apis/events.k8s.io/v1"
DRIVER: Final = "csi.gkm.io"
ATTRIBUTE: Final = f"{DRIVER}/GKMCache"
NAMESPACE_ATTRIBUTE: Final = f"{DRIVER}/namespace"
_SHOW: Final = f"trap 'exit 0' TERM; cat /cache/{MARKER}; sleep 100000 & wait"
"""A shell as process 1 ends at once only where it is told to."""
_NODE_KINDS: Final = ("gkmcachenodes", "clustergkmcachenodes")


def volume_of(cache: str, namespace: str | None, *, read_only: bool | None = None) -> "JsonObject":
    """Return the pod's volume `cache`; without a namespace it is of a ClusterGKMCache."""
    attributes = {ATTRIBUTE: cache}
    if namespace is not None:
        attributes[NAMESPACE_ATTRIBUTE] = namespace
    source: JsonObject = {"driver": DRIVER, "volumeAttributes": attributes}
    if read_only is not None:
        source["readOnly"] = read_only
    return {"name": "cache", "csi": source}


@final
class Caches:
    """The caches and pods of one test, in its namespace and in the cluster."""

    def __init__(self, api: "ApiClient", namespace: str, node: "RealNode") -> None:
        self.api = api
        self.namespace = namespace
        self.node = node
        self._made: dict[str, None] = {}
        # paths, in order

    def path(self, name: str, *, of_cluster: bool = False) -> str:
        if of_cluster:
            return f"{CLUSTER_CACHES}/{name}"
        return f"{GKM}/namespaces/{self.namespace}/gkmcaches/{name}"

    def manifest(
        self, name: str, image: "CacheImage", *, of_cluster: bool = False, **spec: Any
    ) -> "JsonObject":
        place = {} if of_cluster else {"namespace": self.namespace}
        return {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "ClusterGKMCache" if of_cluster else "GKMCache",
            "metadata": {"name": name, **place},
            "spec": {"image": image.reference, **spec},
        }

    def will_make(self, name: str, *, of_cluster: bool = False) -> str:
        """Note that the test makes such a cache by itself, so that it is deleted; return its path."""
        path = self.path(name, of_cluster=of_cluster)
        self._made[path] = None
        return path

    async def make(
        self, name: str, image: "CacheImage", *, of_cluster: bool = False, **spec: Any
    ) -> "JsonObject":
        """Create a cache."""
        path = self.will_make(name, of_cluster=of_cluster)
        body = self.manifest(name, image, of_cluster=of_cluster, **spec)
        return await self._admitted(
            lambda: self.api.create(path.rpartition("/")[0], body), what=f"{path} made"
        )

    async def change(
        self, name: str, image: "CacheImage", *, of_cluster: bool = False
    ) -> "JsonObject":
        """Change the cache's image."""
        path = self.path(name, of_cluster=of_cluster)
        patch = {"spec": {"image": image.reference}}
        return await self._admitted(
            lambda: self.api.patch(path, patch), what=f"{path} of {image.reference}"
        )

    async def delete(self, name: str, *, of_cluster: bool = False) -> None:
        """Delete a cache, whose end may wait for pods."""
        await self.api.delete(self.path(name, of_cluster=of_cluster))

    async def _admitted(
        self, call: "Callable[[], Awaitable[JsonObject]]", *, what: str
    ) -> "JsonObject":
        """Make the call; a busy machine may not resolve the image in the time that the API server waits."""

        async def is_made() -> "JsonObject":
            try:
                made: JsonObject = await call()
            except client.ApiRefusedError as refused:
                if refused.status < 500:
                    raise
                raise AssertionError(f"{refused}") from refused
            return made

        return await polling.eventually(is_made, what=what)

    async def on_node(self, name: str, *, of_cluster: bool = False) -> "dict[str, JsonObject]":
        """Return what the node's object says of a cache: digest -> entry."""
        path = f"{GKM}/clustergkmcachenodes/{self.node.name}"
        if not of_cluster:
            path = f"{GKM}/namespaces/{self.namespace}/gkmcachenodes/{self.node.name}"
        found: dict[str, dict[str, JsonObject]] = (await self.api.status(path)).get("caches") or {}
        return found.get(name, {})

    async def node_shows(
        self, name: str, states: "Mapping[str, str]", *, of_cluster: bool = False
    ) -> "dict[str, JsonObject]":
        """Wait until the node shows exactly these digests of the cache: digest -> type of its condition."""

        async def does() -> "dict[str, JsonObject]":
            found = await self.on_node(name, of_cluster=of_cluster)
            current = {digest: condition_of(entry)["type"] for digest, entry in found.items()}
            assert current == states, f"{found}"
            return found or {"": {}}

        return await polling.eventually(does, what=f"{name} on the node: {states}")

    async def shows(
        self, name: str, state: str, *, of_cluster: bool = False, **counts: int
    ) -> "JsonObject":
        """Wait until the cache has this condition and these counts; return its status."""
        path = self.path(name, of_cluster=of_cluster)

        async def does() -> "JsonObject":
            status = await self.api.status(path)
            conditions = status.get("conditions") or []
            assert [condition["type"] for condition in conditions] == [state], f"{status}"
            current = {key: status.get("counts", {}).get(key) for key in counts}
            assert current == counts, f"{status}"
            return status

        return await polling.eventually(does, what=f"{path}: {state} {counts}")

    async def is_warm(self, name: str, image: "CacheImage", *, of_cluster: bool = False) -> None:
        """Wait until the node has extracted the cache."""
        await self.node_shows(name, {image.digest: "Extracted"}, of_cluster=of_cluster)

    async def gone(self, name: str, *, of_cluster: bool = False) -> None:
        """Wait until the cache is gone."""
        await self._is_gone(self.path(name, of_cluster=of_cluster))

    def a_pod(
        self,
        name: str,
        *volumes: "JsonObject",
        command: "Sequence[str]" = ("sh", "-c", _SHOW),
        mount_read_only: bool = False,
        **spec: Any,
    ) -> "JsonObject":
        """Return a pod whose container has the first volume at /cache, the next one at /cache-1.

        It has no token, as in `pools.Pools.a_pod`. Its first line is the marker of its cache.
        """
        named = [{**item, "name": f"cache-{number}"} for number, item in enumerate(volumes)]
        spec.setdefault("automountServiceAccountToken", False)
        pod = self.node.a_pod(name, command, image=images.BUSYBOX, volumes=named, **spec)
        pod["spec"]["containers"][0]["volumeMounts"] = [
            {
                "name": item["name"],
                "mountPath": f"/cache-{number}" if number else "/cache",
                "readOnly": mount_read_only,
            }
            for number, item in enumerate(named)
        ]
        return pod

    def pod_of(self, name: str, cache: str, **more: Any) -> "JsonObject":
        """Return a pod with a GKMCache of the namespace."""
        return self.a_pod(name, volume_of(cache, self.namespace), **more)

    async def create(self, pod: "JsonObject", *, namespace: str = "") -> None:
        await self.api.create(pods.collection(namespace or self.namespace), pod)

    async def run(self, pod: "JsonObject") -> "JsonObject":
        """Create the pod and wait until it runs; return it."""
        await self.create(pod)
        return await self.running(pod["metadata"]["name"])

    async def running(self, name: str) -> "JsonObject":
        return await pods.wait_for_pod(self.api, self.namespace, name, pods.is_running)

    async def marker_in(self, pod: str, place: str = "/cache") -> str:
        """Return the marker of the cache that a container has."""
        return await self.sh(pod, f"cat {place}/{MARKER}")

    async def sh(self, pod: str, script: str) -> str:
        return await self.node.exec(self.namespace, pod, ["sh", "-c", script])

    async def end(self, *names: str) -> None:
        """Delete pods, and wait until they are gone."""
        for name in names:
            await self.api.delete(f"{pods.collection(self.namespace)}/{name}")
        for name in names:
            await pods.wait_for_pod_gone(self.api, self.namespace, name)

    async def recorded(self, about: str, text: str, *, namespace: str = "") -> str:
        """Wait for an Event about an object of this name with the text in it; return the whole."""
        path = f"{EVENTS}/namespaces/{namespace or self.namespace}/events"

        async def is_reported() -> str:
            found = (await self.api.get(path))["items"]
            notes = [str(item["note"]) for item in found if item["regarding"]["name"] == about]
            matching = [note for note in notes if text in note]
            assert matching, f"{notes}"
            return matching[-1]

        return await polling.eventually(is_reported, what=f'Event of {about} with "{text}"')

    async def uses(self) -> "Counter[tuple[str, str]]":
        """Return what the node's objects say: (pod's namespace and name, digest) of each volume."""
        found: Counter[tuple[str, str]] = Counter()
        for kind in _NODE_KINDS:
            for item in (await self.api.get(f"{GKM}/{kind}"))["items"]:
                for digests in (item.get("status", {}).get("caches") or {}).values():
                    for digest, entry in digests.items():
                        found.update(
                            (f"{pod['podNamespace']}/{pod['podName']}", digest)
                            for pod in entry.get("pods") or ()
                        )
        return found

    async def agrees(self, digests: "dict[str, str]") -> None:
        """Wait until mounts, store and node objects are those of these pods: name -> digest."""

        async def does() -> bool:
            alive = {name: await self._uid(name) for name in digests}
            wrong = node_oracle.disagreements(
                Counter((alive[pod], digests[pod]) for pod in digests),
                mounted=node_oracle.mounted_volumes(),
                stored=node_oracle.stored_digests(),
            )
            wrong += [f"left in the store: {item}" for item in node_oracle.unfinished()]
            current = await self.uses()
            expected = Counter((f"{self.namespace}/{pod}", digests[pod]) for pod in digests)
            wrong += [
                f"shown, and no pod's: {element}" for element in (current - expected).elements()
            ]
            wrong += [
                f"a pod's, and not shown: {element}" for element in (expected - current).elements()
            ]
            assert not wrong, "\n".join(wrong)
            return True

        await polling.eventually(does, what="mounts, store and node objects")

    async def stores(self, *images: "CacheImage") -> None:
        """Wait until the store has the contents of exactly these images; others may be in their grace time."""
        expected = {image.digest for image in images}

        async def does() -> bool:
            found = node_oracle.stored_digests()
            assert found == expected, f"stored: {found}"
            return True

        await polling.eventually(does, what=f"stored: {expected}")

    async def _uid(self, pod: str) -> str:
        found = await self.api.find(f"{pods.collection(self.namespace)}/{pod}")
        return str(found.get("metadata", {}).get("uid", ""))

    async def clear(self) -> None:
        """Delete the namespace's pods and the caches, and wait until the node has nothing of them."""
        left = (await self.api.get(pods.collection(self.namespace)))["items"]
        for pod in left:
            path = f"{pods.collection(self.namespace)}/{pod['metadata']['name']}"
            await self.api.delete(path, options={"gracePeriodSeconds": 1})
        for path in self._made:
            try:
                await self.api.delete(path)
            except client.ApiRefusedError as refused:
                if refused.status != 404:
                    raise
        for pod in left:
            await pods.wait_for_pod_gone(self.api, self.namespace, pod["metadata"]["name"])
        await asyncio.gather(*(self._is_gone(path) for path in self._made))

    async def _is_gone(self, path: str) -> None:
        async def is_gone() -> bool:
            found = await self.api.find(path)
            assert not found, f"{found['metadata']}, {found.get('status')}"
            return True

        await polling.eventually(is_gone, what=f"{path} is gone")


def condition_of(entry: "JsonObject") -> "JsonObject":
    """Return the one condition."""
    (condition,) = entry["conditions"]
    found: JsonObject = condition
    return found
