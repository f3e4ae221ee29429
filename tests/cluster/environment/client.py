"""A bare API client for tests: JSON in, JSON out, refusals as exceptions.

It shares no code with the product's client, so that a fault of that one cannot hide itself here.
"""

import asyncio
import contextlib
import json
import ssl
from typing import TYPE_CHECKING, Any, Literal, final

import aiohttp

from tests.cluster.environment import kubeconfigs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
    from pathlib import Path

JsonObject = dict[str, Any]

_PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_READ_BUFFER = 16 * 1024 * 1024
"""A watch event is one line, and etcd takes objects of up to 1.5 MiB; JSON escapes enlarge them."""

_RETRY_S = 0.1


class ApiRefusedError(Exception):
    """The API server answered with a failure."""

    def __init__(self, request: str, status: int, body: str) -> None:
        self.status = status
        self.reason = ""
        self.message = body
        with contextlib.suppress(ValueError, AttributeError):
            answer = json.loads(body)
            self.reason = answer.get("reason", "")
            self.message = answer.get("message", body)
        super().__init__(f"{request}: {status} {self.reason}: {self.message}")


@final
class ApiClient:
    """One session; belongs to the event loop that opened it. Use `open_client`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        context: ssl.SSLContext,
        *,
        headers: "Mapping[str, str] | None" = None,
    ) -> None:
        self._session = session
        self._url = url
        self._ssl = context
        self._headers = headers or {}

    def as_node(self, name: str) -> "ApiClient":
        """Return the client of the node's kubelet; the user must be allowed to impersonate."""
        headers = {"Impersonate-User": f"system:node:{name}", "Impersonate-Group": "system:nodes"}
        return ApiClient(self._session, self._url, self._ssl, headers=headers)

    async def get(self, path: str, **params: str) -> JsonObject:
        return await self._request("GET", path, params=params)

    async def find(self, path: str) -> JsonObject:
        """Return the object; an empty one where there is none, or none yet."""
        try:
            return await self.get(path)
        except ApiRefusedError as refused:
            if refused.status != 404:
                raise
            return {}

    async def status(self, path: str) -> JsonObject:
        """Return the status of the object; an empty one until a user has written it.

        A status is always a second write: an object is there before it has one.
        """
        status: JsonObject = (await self.find(path)).get("status") or {}
        return status

    async def conditions(self, path: str) -> dict[str, JsonObject]:
        """Return type -> condition of the object; none until a user has written them."""
        current: list[JsonObject] = (await self.status(path)).get("conditions") or []
        return {item["type"]: item for item in current}

    async def create(self, path: str, body: "Mapping[str, Any]", **params: str) -> JsonObject:
        return await self._request("POST", path, body=body, params=params)

    async def replace(self, path: str, body: "Mapping[str, Any]", **params: str) -> JsonObject:
        return await self._request("PUT", path, body=body, params=params)

    async def patch(
        self,
        path: str,
        body: Any,
        *,
        kind: Literal["merge", "strategic", "json", "apply"] = "merge",
        **params: str,
    ) -> JsonObject:
        """Patch; `apply` wants `fieldManager` among the parameters."""
        return await self._request(
            "PATCH", path, body=body, params=params, content_type=_PATCHES[kind]
        )

    async def delete(
        self, path: str, *, options: "Mapping[str, Any] | None" = None, **params: str
    ) -> JsonObject:
        """Delete; `options` are DeleteOptions (gracePeriodSeconds, preconditions)."""
        return await self._request("DELETE", path, body=options, params=params)

    async def kinds(self) -> "AsyncIterator[tuple[str, JsonObject]]":
        """Yield the resources that can be listed, each with the path of its group's preferred version."""
        groups = (await self.get("/apis"))["groups"]
        versions = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups]
        for version in ("/api/v1", *versions):
            # A kind may go meanwhile.
            for resource in (await self.find(version)).get("resources", ()):
                if "list" in resource["verbs"]:
                    yield version, resource

    async def watch(self, path: str, **params: str) -> "AsyncGenerator[JsonObject, None]":
        """Yield watch events until the server ends the watch; an ERROR event raises ApiRefused."""
        query = {**params, "watch": "true", "allowWatchBookmarks": "true"}
        # No total time-out: a watch lasts; the caller bounds it.
        timeout = aiohttp.ClientTimeout(total=None, connect=10)
        async with self._session.get(
            self._url + path, params=query, ssl=self._ssl, timeout=timeout
        ) as response:
            if response.status != 200:
                raise ApiRefusedError(f"watch {path}", response.status, await response.text())
            async for line in response.content:
                event: JsonObject = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiRefusedError(
                        f"watch {path}", status.get("code", 500), json.dumps(status)
                    )
                yield event

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: "Mapping[str, str]",
        content_type: str = "application/json",
    ) -> JsonObject:
        async with self._session.request(
            method,
            self._url + path,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type, **self._headers},
            params=params,
            ssl=self._ssl,
        ) as response:
            text = await response.text()
            if response.status >= 400:
                raise ApiRefusedError(f"{method} {path}", response.status, text)
            answer: JsonObject = json.loads(text)
            return answer


@contextlib.asynccontextmanager
async def open_client(kubeconfig: "Path") -> "AsyncIterator[ApiClient]":
    configuration = await kubeconfigs.read_kubeconfig(kubeconfig)
    if configuration.host is None:
        raise AssertionError(f"{kubeconfig} names no server")
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    authorization = await configuration.get_api_key_with_prefix("BearerToken")
    headers = {"Authorization": authorization} if authorization else {}
    async with aiohttp.ClientSession(
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=60),
        connector=aiohttp.TCPConnector(limit=64),
        read_bufsize=_READ_BUFFER,
    ) as session:
        yield ApiClient(session, configuration.host, context)


async def watch_until(
    api: ApiClient,
    path: str,
    *,
    satisfied: "Callable[[Mapping[str, JsonObject]], bool]",
    **params: str,
) -> dict[str, JsonObject]:
    """List and watch a collection; return its objects once they satisfy.

    The map is keyed by name, or by `namespace/name` where `path` spans namespaces.
    An unreachable server and a broken or expired watch start again from a list; other refusals
    pass. The caller bounds the time.
    """
    key = _name if "/namespaces/" in path else _namespace_and_name
    while True:
        try:
            listing = await api.get(path, **params)
            objects = {key(item): item for item in listing["items"]}
            if satisfied(objects):
                return objects
            version = listing["metadata"]["resourceVersion"]
            async with contextlib.aclosing(
                api.watch(path, resourceVersion=version, **params)
            ) as events:
                async for event in events:
                    if event["type"] == "BOOKMARK":
                        continue
                    if event["type"] == "DELETED":
                        objects.pop(key(event["object"]), None)
                    else:
                        objects[key(event["object"])] = event["object"]
                    if satisfied(objects):
                        return objects
        except (aiohttp.ClientError, TimeoutError):
            await asyncio.sleep(_RETRY_S)
        except ApiRefusedError as refused:
            if refused.status != 410 and refused.status < 500:
                raise
            await asyncio.sleep(_RETRY_S)


def _name(item: JsonObject) -> str:
    name: str = item["metadata"]["name"]
    return name


def _namespace_and_name(item: JsonObject) -> str:
    namespace = item["metadata"].get("namespace")
    return f"{namespace}/{_name(item)}" if namespace else _name(item)
