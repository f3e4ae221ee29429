"""What the conformance suite asks about: pods, a custom resource of its own, webhooks of its own."""

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.api_servers import WITHIN_S, Answer, Api

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.webhook_server import WebhookServer

Json = dict[str, Any]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP_PATH = "/apis/gpu.deckhouse.io/v1alpha1"
"""Our own kinds."""
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"

SPEC_SCHEMA: Json = {
    "type": "object",
    "required": ["mode"],
    "properties": {
        "mode": {"type": "string", "enum": ["A", "B"]},
        "size": {"type": "integer", "minimum": 1, "maximum": 5, "default": 2},
        "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
        "list": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "nullable": {"type": "string", "nullable": True},
        "nullableMap": {
            "type": "object",
            "nullable": True,
            "additionalProperties": {"type": "string"},
        },
        "atomicMap": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "additionalProperties": {"type": "string"},
        },
        "maps": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
        },
        "either": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "inner": {
            "type": "object",
            "default": {},
            "properties": {"key": {"type": "string", "default": "filled"}},
        },
    },
}
STATUS_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
            },
        },
    },
}


def a_definition(group: str, scope: str = "Cluster") -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "selectableFields": [{"jsonPath": ".spec.mode"}],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "required": ["spec"],
                            "properties": {"spec": SPEC_SCHEMA, "status": STATUS_SCHEMA},
                        }
                    },
                }
            ],
        },
    }


async def until(ask: "Callable[[], Awaitable[Answer]]", done: "Callable[[Answer], bool]") -> None:
    """Ask again until the answer is the one wanted: a real server serves new things a bit later."""
    async with asyncio.timeout(WITHIN_S):
        while not done(await ask()):  # noqa: ASYNC110  # the event happens in another process
            await asyncio.sleep(0.02)


class Widgets:
    """A custom resource of this test's own."""

    def __init__(self, group: str, path: str) -> None:
        self.group = group
        self.path = path

    def make(self, name: str, spec: object = None, **more: object) -> Json:
        body: Json = {
            "apiVersion": f"{self.group}/v1",
            "kind": "Widget",
            "metadata": {"name": name},
            **more,
        }
        if spec is not None:
            body["spec"] = spec
        return body


class Hooks:
    """Registers webhooks for one namespace, waits until they are called, and removes them."""

    def __init__(self, api: Api, namespace: str, server: "WebhookServer") -> None:
        self._api = api
        self._registered: list[str] = []
        self.namespace = namespace
        self.server = server

    async def register(self, kind: str, name: str, *webhooks: Json) -> None:
        """Store a configuration; `kind` is Mutating or Validating."""
        path = f"{_REGISTRATION}/{kind.lower()}webhookconfigurations"
        name = f"{name}-{self.namespace}"
        body = {"metadata": {"name": name}, "webhooks": list(webhooks)}
        await self._api.created(path, body)
        self._registered.append(f"{path}/{name}")

    async def wait_until_called(self, *paths: str) -> None:
        """Send dry runs until each of these was called, then forget the calls."""

        async def probe() -> "Answer":
            return await self._api.post(
                f"/api/v1/namespaces/{self.namespace}/pods", a_pod("probe"), dryRun="All"
            )

        await until(probe, lambda _: all(self.server.calls.get(path) for path in paths))
        self.server.calls.clear()
        self.server.order.clear()

    async def mutating(self, answer: "Callable[[Json], Json]", **changes: object) -> None:
        """Have `/mutate` asked, with this answer."""
        self.server.answers["/mutate"] = answer
        config = self.server.config("/mutate", self.namespace, **changes)
        await self.register("Mutating", "m", config)
        await self.wait_until_called("/mutate")

    async def validating(
        self, answer: "Callable[[Json], Json] | None" = None, **changes: object
    ) -> None:
        """Have `/validate` asked, from then on with this answer."""
        config = self.server.config("/validate", self.namespace, **changes)
        await self.register("Validating", "v", config)
        await self.wait_until_called("/validate")
        if answer is not None:
            self.server.answers["/validate"] = answer

    async def remove(self) -> None:
        for path in self._registered:
            await self._api.delete(path)


def a_pod(
    name: str, *, metadata: Json | None = None, limits: Json | None = None, **spec: Any
) -> Json:
    container: Json = {"name": "main", "image": "localhost/image:1"}
    if limits is not None:
        container["resources"] = {"limits": limits}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**({"name": name} if name else {}), **(metadata or {})},
        "spec": {"containers": [container], **spec},
    }
