"""The pods of this node from a watch: their requests and assigned devices.

kubelet sends plugins ids and counts, and PodResources has names; UIDs, requests and the annotation with the
assigned devices come from here. `agent.plugin.pod_identification` identifies the pod that is being admitted.
"""

import asyncio
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Final, final

from api.annotations import decode_devices
from api.driver_upgrade import DEPLOY_LABEL_PREFIX, is_of_devices
from api.mounted_caches import mounted_caches
from api.names import DEVICES_ANNOTATION, MIRROR_ANNOTATION, PodUid
from api.quantity import parse_count
from pool.model import ContainerRole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from api.annotations import Devices
    from api.cache_name import CacheName
    from api.foreign.core import Container, Pod
    from kube.unread_objects import UnreadObject


MAX_ENDED: Final = 1024
"""Far more than a node's pods; a lookup of an ended pod comes within seconds of its end."""


@final
@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """The extended resources of a container."""

    name: str
    kind: ContainerRole
    counts: "Mapping[str, int]"
    """Extended resource -> units."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """A pod that is bound to this node."""

    uid: PodUid
    namespace: str
    name: str
    is_ended: bool
    """None of its containers will run again."""
    is_contradicted: bool = False
    """Its phase says ended, or said so, and its containers are shown running: kubelet goes by the phase,
    drops the pod's devices for good, and does not list it. kubelet corrects the phase within ten seconds,
    and may admit a pod by the old one after that."""
    containers: tuple[ContainerRequest, ...]
    """Those that ask for extended resources, in kubelet's allocation order: init containers and sidecars in the
    order of the spec, then the others."""
    assigned: "Devices | None"
    """The annotation: container -> units; None where it is absent or malformed."""
    caches: "Mapping[str, CacheName]" = field(default_factory=dict)
    """Volume of the spec -> the kernel cache that it mounts."""
    has_deploy_label: bool = False
    """It selects nodes by a label by which operands leave before the driver is unloaded."""

    @property
    def requests_devices(self) -> bool:
        """Whether its requests say that it uses the driver; claims do not count."""
        return any(
            count and is_of_devices(resource)
            for container in self.containers
            for resource, count in container.counts.items()
        )

    @property
    def ref(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def asks_for(self, resource: str) -> "tuple[ContainerRequest, ...]":
        return tuple(container for container in self.containers if container.counts.get(resource))

    def is_assigned(self, unit: str, resource: str) -> bool:
        """Return whether the annotation names the unit for a container that requests the resource."""
        assigned = self.assigned or {}
        return any(unit in assigned.get(ask.name, ()) for ask in self.asks_for(resource))


def node_pod(pod: "Pod") -> NodePod | None:
    """Project a pod; None where it requests no extended resource."""
    containers = tuple(
        request
        for request in (
            *(
                _request(container, _kind_of(container))
                for container in pod.spec.init_containers or ()
            ),
            *(_request(container, ContainerRole.MAIN) for container in pod.spec.containers or ()),
        )
        if request.counts
    )
    return _node_pod(pod, containers) if containers else None


def any_node_pod(pod: "Pod") -> NodePod:
    """Project a pod, whatever it requests.

    A static pod has the UID by which kubelet names its cgroup, and by which Events about it are found.
    """
    found = node_pod(pod)
    if found is not None:
        return found
    uid = pod.metadata.annotation(MIRROR_ANNOTATION) or pod.metadata.uid
    return replace(_node_pod(pod, ()), uid=PodUid(uid))


def _node_pod(pod: "Pod", containers: tuple[ContainerRequest, ...]) -> NodePod:
    metadata = pod.metadata
    return NodePod(
        uid=PodUid(metadata.uid),
        namespace=metadata.namespace,
        name=metadata.name,
        is_ended=pod.has_ended,
        is_contradicted=pod.is_contradicted,
        containers=containers,
        assigned=decode_devices(metadata.annotation(DEVICES_ANNOTATION)),
        caches=_caches(pod),
        has_deploy_label=any(
            key.startswith(DEPLOY_LABEL_PREFIX) for key in pod.spec.node_selector or ()
        ),
    )


def _caches(pod: "Pod") -> "dict[str, CacheName]":
    """Return the caches that the driver mounts for the pod: those of its own namespace, and of the cluster."""
    namespace = pod.metadata.namespace
    return {
        volume.name: name
        for volume in pod.spec.volumes or ()
        for name in mounted_caches((volume,), namespace)
    }


@final
class NodePods:
    """The sink of the pod informer, whose items are projected by `node_pod` or `any_node_pod`.

    Pods without extended resources are known by their UIDs alone, and wake no reader of `changed` unless they
    mount a kernel cache.
    """

    def __init__(self) -> None:
        self._by_uid: dict[PodUid, NodePod] = {}
        # In the order of their first events, which is that of their bindings.
        self._uids: dict[tuple[str, str], list[PodUid]] = {}
        # namespace, name -> in the same order
        self._without_resources: dict[PodUid, NodePod] = {}
        self._ended: dict[PodUid, None] = {}
        # The last pods that ended and were deleted then.
        self.changed = asyncio.Event()
        """Replaced at each change: read it, then the pods, then wait for it."""

    def last_read(self, unread: "UnreadObject") -> NodePod | None:
        return self.get_any(PodUid(unread.uid))

    def replace_all(self, items: "Sequence[NodePod]") -> None:
        uids = {item.uid for item in items}
        for gone in self._by_uid.keys() - uids:
            self._drop(gone)
        self._without_resources.clear()
        for item in items:
            self._put(item)
        self._notify()

    def upsert(self, item: NodePod) -> None:
        self._put(item)
        if item.containers or item.caches:
            self._notify()

    def discard(self, item: NodePod) -> None:
        if self._without_resources.pop(item.uid, None) is not None and item.caches:
            self._notify()
        if item.uid in self._by_uid:
            self._drop(item.uid)
            self._notify()

    def get(self, uid: PodUid) -> NodePod | None:
        """Return a pod with extended resources."""
        return self._by_uid.get(uid)

    def get_any(self, uid: PodUid) -> NodePod | None:
        """Return a pod, with extended resources or, where they are projected, without."""
        return self._by_uid.get(uid) or self._without_resources.get(uid)

    def with_caches(self) -> "Iterable[NodePod]":
        """Return the pods that mount kernel caches, with extended resources or without."""
        pods = chain(self._by_uid.values(), self._without_resources.values())
        return (pod for pod in pods if pod.caches)

    def has_ended(self, uid: PodUid) -> bool:
        """Return whether a deleted pod was shown as ended before; knows the last `MAX_ENDED`."""
        return uid in self._ended

    def all(self) -> "Iterable[NodePod]":
        """Return all pods with extended resources in the order of their bindings."""
        return self._by_uid.values()

    def find(self, namespace: str, name: str) -> NodePod | None:
        """Return the pod of this name that has not ended; of several the one that was bound last."""
        for uid in reversed(self._uids.get((namespace, name), ())):
            if not self._by_uid[uid].is_ended:
                return self._by_uid[uid]
        return None

    def _put(self, item: NodePod) -> None:
        if not item.containers:
            self._without_resources[item.uid] = item
            return
        recorded = self._by_uid.get(item.uid)
        if recorded is None:
            self._uids.setdefault((item.namespace, item.name), []).append(item.uid)
        elif recorded.is_contradicted and not item.is_ended:
            item = replace(item, is_contradicted=True)
        self._by_uid[item.uid] = item

    def _drop(self, uid: PodUid) -> None:
        pod = self._by_uid.pop(uid)
        if pod.is_ended:
            self._ended[uid] = None
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]
        uids = self._uids[pod.namespace, pod.name]
        uids.remove(uid)
        if not uids:
            del self._uids[pod.namespace, pod.name]

    def _notify(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


def _kind_of(container: "Container") -> ContainerRole:
    is_sidecar = container.restart_policy == "Always"
    return ContainerRole.SIDECAR if is_sidecar else ContainerRole.INIT


def _request(container: "Container", kind: ContainerRole) -> ContainerRequest:
    limits = container.resources.limits if container.resources is not None else None
    counts: dict[str, int] = {}
    for resource, quantity in (limits or {}).items():
        if "/" not in resource:
            continue
        try:
            count = parse_count(quantity if isinstance(quantity, int) else str(quantity))
        except ValueError:
            # Not from an API server, which takes whole numbers only.
            continue
        if count > 0:
            counts[resource] = count
    return ContainerRequest(container.name, kind, counts)
