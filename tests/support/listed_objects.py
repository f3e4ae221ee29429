"""A source of lists for `kubectl gpu` without kubectl: objects in memory."""

import datetime as dt
import json
from collections.abc import Iterator, Sequence

from kube.resources import Resource
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.errors import NotFoundError
from tests.support.cluster_objects import Object

NOW = dt.datetime(2026, 11, 23, 23, tzinfo=dt.UTC)


class ListedObjects:
    """A `ObjectSource` that ignores selectors, as a source may."""

    origin = "objects of the test"

    def __init__(self, objects: Sequence[Object]) -> None:
        self.objects = list(objects)

    def now(self) -> dt.datetime:
        return NOW

    def namespace(self) -> str:
        return "ml-team"

    def object(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        for item in self._of(resource, namespace):
            if item["metadata"]["name"] == name:
                return json.dumps(item).encode()
        raise NotFoundError(f"there is no {resource.kind} {name}")

    def pages(self, query: ListQuery) -> Iterator[bytes]:
        """Yield each object on a page of its own."""
        for item in self._of(query.resource, query.namespace):
            yield json.dumps({"metadata": {"resourceVersion": "1"}, "items": [item]}).encode()

    def _of(self, resource: Resource, namespace: str | None) -> Iterator[Object]:
        for item in self.objects:
            is_there = namespace is None or item["metadata"].get("namespace") == namespace
            if item["kind"] == resource.kind and is_there:
                yield item
