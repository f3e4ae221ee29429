"""An API server for one server under measurement: it stores what the benchmark says and counts requests.

Only what our server asks of it, and cheap: LIST, WATCH, Bindings, patches; no validation, no admission.
It keeps its own account of who has which unit, from the Bindings alone.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import jsonpatch
import msgspec
from aiohttp import web

from api.annotations import decode_devices
from api.names import DEVICES_ANNOTATION

Json = dict[str, Any]

HISTORY = 20_000
"""Changes of a kind that a watch can resume behind."""


class Kind:
    """All objects of one resource, and who watches them."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.history: deque[tuple[int, bytes]] = deque(maxlen=HISTORY)
        self.changed = asyncio.Event()

    def send(self, version: int, event: str, body: Json) -> None:
        self.history.append((version, msgspec.json.encode({"type": event, "object": body}) + b"\n"))
        self.changed.set()
        self.changed = asyncio.Event()

    def after(self, version: int) -> list[tuple[int, bytes]]:
        """Return the changes after a version, oldest first."""
        found = []
        for change in reversed(self.history):
            if change[0] <= version:
                break
            found.append(change)
        return found[::-1]


class DrivenApi:
    """The server, and what the benchmark does to its objects."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: Counter[str] = Counter()
        """`METHOD resource[/subresource]` of one object, or `LIST`, `WATCH` -> how many."""
        self.owners: dict[str, str] = {}
        """Unit -> name of the pod that was bound with it and has not ended."""
        self.violations: list[str] = []
        self._version = 1
        self._kinds: dict[str, Kind] = {}

    # --- what the benchmark does -------------------------------------------------------------------

    def put(self, resource: str, objects: Iterable[Json]) -> None:
        """Create objects, or take these as their new state."""
        for body in objects:
            self._store(resource, body)

    def pod(self, name: str) -> Json:
        return self._kind("pods").objects[name]

    def finish(self, name: str) -> None:
        """Have a pod's containers end well."""
        pod = self.pod(name)
        self._forget_units(pod)
        self._store("pods", {**pod, "status": {**pod.get("status", {}), "phase": "Succeeded"}})

    def delete(self, name: str) -> None:
        """Delete a pod at once."""
        pod = self._kind("pods").objects.pop(name)
        self._forget_units(pod)
        self._send("pods", "DELETED", pod)

    async def until_ungated(self, name: str) -> None:
        """Wait until nothing keeps a pod from being scheduled."""
        kind = self._kind("pods")
        while kind.objects[name]["spec"].get("schedulingGates"):
            await kind.changed.wait()

    # --- what it stores ----------------------------------------------------------------------------

    def _kind(self, resource: str) -> Kind:
        return self._kinds.setdefault(resource, Kind())

    def _store(self, resource: str, body: Json) -> Json:
        name = body["metadata"]["name"]
        event = "MODIFIED" if name in self._kind(resource).objects else "ADDED"
        stored = self._send(resource, event, body)
        self._kind(resource).objects[name] = stored
        return stored

    def _send(self, resource: str, event: str, body: Json) -> Json:
        self._version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self._version)}
        metadata.setdefault("uid", f"{resource}-{metadata['name']}")
        reported = {**body, "metadata": metadata}
        self._kind(resource).send(self._version, event, reported)
        return reported

    def _forget_units(self, pod: Json) -> None:
        for unit in _units_of(pod):
            if self.owners.get(unit) == pod["metadata"]["name"]:
                del self.owners[unit]

    def _bind(self, name: str, binding: Json) -> web.Response:
        pod = self._kind("pods").objects.get(name)
        if pod is None or pod["metadata"]["uid"] != binding["metadata"].get("uid"):
            return _status(404 if pod is None else 409, "NotFound" if pod is None else "Conflict")
        if pod["spec"].get("nodeName"):
            return _status(409, "Conflict")
        annotations = {
            **pod["metadata"].get("annotations", {}),
            **binding["metadata"].get("annotations", {}),
        }
        bound = {
            **pod,
            "metadata": {**pod["metadata"], "annotations": annotations},
            "spec": {**pod["spec"], "nodeName": binding["target"]["name"]},
            "status": {"phase": "Running"},
        }
        units = _units_of(bound)
        if not units:
            self.violations.append(f"{name} was bound without devices")
        for unit in units:
            owner = self.owners.setdefault(unit, name)
            if owner != name:
                self.violations.append(f"{unit} was given to {name} and is {owner}'s")
        self._store("pods", bound)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    # --- HTTP --------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        resource, name, subresource = _parts_of(request.path)
        if not name and request.method == "GET":
            if request.query.get("watch") == "true":
                self.requests[f"WATCH {resource}"] += 1
                return await self._watch(request, resource)
            self.requests[f"LIST {resource}"] += 1
            return self._list(resource)
        place = f"{resource}/{subresource}" if subresource else resource
        self.requests[f"{request.method} {place}"] += 1
        if request.method == "POST":
            body = msgspec.json.decode(await request.read())
            if subresource == "binding":
                return self._bind(name, body)
            return web.json_response(body, status=201)
        stored = self._kind(resource).objects.get(name)
        if stored is None:
            return _status(404, "NotFound")
        if request.method == "PATCH":
            stored = self._store(resource, _patched(stored, await request.read(), request))
        return web.Response(body=msgspec.json.encode(stored), content_type="application/json")

    def _list(self, resource: str) -> web.Response:
        body = {
            "kind": "List",
            "metadata": {"resourceVersion": str(self._version)},
            "items": list(self._kind(resource).objects.values()),
        }
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def _watch(self, request: web.Request, resource: str) -> web.StreamResponse:
        kind, version = self._kind(resource), int(request.query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        while True:
            changed = kind.changed
            news = kind.after(version)
            if news:
                version = news[-1][0]
                await response.write(b"".join(line for _, line in news))
            else:
                await changed.wait()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()


def _parts_of(path: str) -> tuple[str, str, str]:
    """Return resource, name and subresource."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    resource, name, subresource = (*parts, "", "")[:3]
    return resource, name, subresource


def _patched(stored: Json, patch: bytes, request: web.Request) -> Json:
    change = msgspec.json.decode(patch)
    if request.content_type == "application/json-patch+json":
        patched: Json = jsonpatch.apply_patch(stored, change)
        return patched
    merged = _merged(stored, change)
    assert isinstance(merged, dict)
    return merged


def _merged(old: Any, new: Any) -> Any:
    """Return a merge patch's outcome."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    kept = {key: value for key, value in old.items() if key not in new}
    added = {key: _merged(old.get(key), value) for key, value in new.items() if value is not None}
    return {**kept, **added}


def _units_of(pod: Json) -> list[str]:
    note = pod["metadata"].get("annotations", {}).get(DEVICES_ANNOTATION)
    given = decode_devices(note) if note else None
    return sorted({str(unit) for units in (given or {}).values() for unit in units})


def _status(code: int, reason: str) -> web.Response:
    body = {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": reason,
        "details": {"name": "named"},  # a 404 without it is none of the API server
    }
    return web.json_response(body, status=code)
