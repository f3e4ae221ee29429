"""Effects of stored and removed objects on the server itself.

A definition starts and ends the serving of a kind. A deleted namespace is emptied at once, as its
controller would do, and removed with its last object.
"""

from typing import TYPE_CHECKING, Any, final

from simulator.apiserver.resource_types import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from simulator.apiserver.strategies import crd

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.apiserver.resource_types import Registry, ResourceType
    from simulator.apiserver.store.objects import ObjectStore, Stored

Json = dict[str, Any]


@final
class Effects:
    """Called right after every commit, in the same synchronous step."""

    def __init__(self, store: "ObjectStore", registry: "Registry") -> None:
        self._store = store
        self._registry = registry

    def stored(self, resource: "ResourceType", stored: "Stored") -> None:
        if resource is CUSTOM_RESOURCE_DEFINITIONS:
            served = crd.to_resource(stored.body)
            spec = stored.body["spec"]
            self._registry.discard(spec["group"], spec["names"]["plural"])
            if served is not None:
                self._registry.add(served)

    def removed(self, resource: "ResourceType", stored: "Stored") -> None:
        if resource is CUSTOM_RESOURCE_DEFINITIONS:
            self._remove_instances(stored.body)
        if namespace := stored.key[0]:
            self._remove_empty_namespace(namespace)

    def _remove_instances(self, definition: Json) -> None:
        served = crd.to_resource(definition)
        if served is None:
            return
        collection = self._store.collection(served)
        for stored in list(collection.all()):
            collection.remove(stored)
        self._registry.discard(served.group, served.plural)

    def empty_namespace(
        self, namespace: str, delete: "Callable[[ResourceType, Stored], None]"
    ) -> None:
        """Delete all objects of a terminating namespace with `delete`, and then the namespace."""
        for resource in list(self._registry.all_namespaced()):
            for stored in list(self._store.collection(resource).all(namespace)):
                delete(resource, stored)
        self._remove_empty_namespace(namespace)

    def _remove_empty_namespace(self, name: str) -> None:
        collection = self._store.collection(NAMESPACES)
        stored = collection.get("", name)
        if stored is None or "deletionTimestamp" not in stored.body["metadata"]:
            return
        held = any(
            True
            for resource in self._registry.all_namespaced()
            for _ in self._store.collection(resource).all(name)
        )
        if not held:
            collection.remove(stored)
