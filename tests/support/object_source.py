"""A cluster of given objects for the verbs of `kubectl gpu`: a `ObjectSource` that evaluates selectors of labels alone."""

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kube.resources import Resource
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.dumped.dump_source import labels_match
from kubectl_gpu.errors import ForbiddenError, NotFoundError

NOON = dt.datetime(2026, 11, 23, 12, 0, tzinfo=dt.UTC)


class ObjectSource:
    """Objects by kind; resources named in `forbidden` may not be listed."""

    origin = "objects of a test"

    def __init__(
        self,
        objects: Iterable[dict[str, Any]],
        *,
        forbidden: Iterable[Resource] = (),
        answers: Mapping[str, bytes] | None = None,
    ):
        self._objects = list(objects)
        self._forbidden = {item.plural for item in forbidden}
        self._answers = answers or {}
        self.queries: list[ListQuery] = []

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def now(self) -> dt.datetime:
        return NOON

    def namespace(self) -> str:
        return "default"

    def get(self, path: str) -> bytes:
        if path not in self._answers:
            raise NotFoundError(f"nothing is at {path}")
        return self._answers[path]

    def object(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        for item in self._of(resource):
            if item["metadata"]["name"] == name:
                return json.dumps(item).encode()
        raise NotFoundError(f"there is no {resource.kind} {name}")

    def pages(self, query: ListQuery) -> Iterator[bytes]:
        self.queries.append(query)
        if query.resource.plural in self._forbidden:
            raise ForbiddenError(f"{query.resource.plural} may not be read")
        items = [
            item
            for item in self._of(query.resource)
            if labels_match(query.labels)(item)
            and query.namespace in {None, item["metadata"].get("namespace")}
        ]
        half = len(items) // 2
        for page in (items[:half], items[half:]):
            yield json.dumps({"metadata": {"resourceVersion": "7"}, "items": page}).encode()

    def _of(self, resource: Resource) -> list[dict[str, Any]]:
        return [object_ for object_ in self._objects if object_.get("kind") == resource.kind]
