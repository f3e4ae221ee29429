"""Requests and their answers, without the way in which either travels (`http_edge`, `in_process`).

Every refusal is a `StatusError`, which this module alone turns into a response. Any other exception
is a fault of this server: logged, and a 500 for the client.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import structlog

from simulator.apiserver import patch as patching
from simulator.apiserver.errors import (
    StatusError,
    bad_request,
    internal,
    invalid,
    method_not_allowed,
    not_found,
    required,
    unauthorized,
    unsupported_media_type,
    unsupported_value,
)
from simulator.apiserver.exchange import (
    JSON,
    Answer,
    CompleteAnswer,
    ConnectionCut,
    IncomingRequest,
    WatchAnswer,
    refusal,
)
from simulator.apiserver.injection import Breakage, ErrorInjection, InjectedError
from simulator.apiserver.requestlog import LoggedRequest, RequestLog
from simulator.apiserver.resource_types import BINDINGS
from simulator.apiserver.routing import discover, resolve
from simulator.apiserver.store import list as listing
from simulator.apiserver.store.selectors import ListSelection
from simulator.apiserver.store.watch import WatchRequest, WatchStream
from simulator.apiserver.webhooks.chain import User
from simulator.apiserver.write import request_body as decoding
from simulator.apiserver.write.binding import PodBinder
from simulator.apiserver.write.delete import Deleter, decode_delete_options
from simulator.apiserver.write.eviction_subresource import Evictor
from simulator.apiserver.write.object_writer import Writer, WriteResult
from simulator.apiserver.write.request_body import Caller, RequestTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from simulator.apiserver.resource_types import Registry
    from simulator.apiserver.reviews import Reviewer
    from simulator.apiserver.store.objects import ObjectStore

Json = dict[str, Any]

_log = structlog.get_logger()

ADMINISTRATOR: Final = User(name="system:admin", groups=("system:masters",))
"""The user of all requests if no tokens are configured."""

_APPLY: Final = "application/apply-patch+yaml"
_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json", _APPLY)
_OBJECTS: Final = (JSON, "application/yaml", "application/vnd.kubernetes.protobuf")
_ACTIONS: Final = frozenset({"binding", "eviction"})
"""Subresources of pods that can only be created."""
_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The parts that process requests."""

    store: "ObjectStore"
    registry: "Registry"
    writer: Writer
    deleter: Deleter
    binder: PodBinder
    evictor: Evictor
    reviewer: "Reviewer"
    tokens: "Mapping[str, User] | None"
    bookmark_interval_s: float


@final
class Frontend:
    """Handles requests. `requests`, `faults`, `version` and `drop_watches` are for tests."""

    def __init__(self, backend: Backend) -> None:
        self.requests = RequestLog()
        self.faults = ErrorInjection()
        self.is_serving = False
        self.version = {
            "major": "1",
            "minor": "36",
            "gitVersion": "v1.36.0",
            "platform": "simulator",
        }
        self.open_watches: set[Callable[[], None]] = set()
        """Open watches: for each the call that cuts its connection."""
        self._backend = backend

    def drop_watches(self) -> None:
        for cut in list(self.open_watches):
            cut()

    def start(self) -> None:
        self.is_serving = True

    def stop(self) -> None:
        """Let all watches end in an orderly way."""
        self.is_serving = False
        for collection in self._backend.store.collections():
            collection.history.wake()

    async def handle(self, request: IncomingRequest) -> Answer:
        if request.path in _HEALTH:
            return CompleteAnswer(200, b"ok", content_type="text/plain")
        if request.path == "/version":
            return CompleteAnswer(200, msgspec.json.encode(self.version))
        try:
            user = self._authenticate(request)
        except StatusError as fault:
            return refusal(fault)
        is_dry = "dryRun" in request.query
        noted = LoggedRequest(
            method=request.method,
            path=request.path,
            user=user.name,
            query=request.query_string,
            dry_run=is_dry,
        )
        self.requests.append(noted)
        rule = self.faults.pick(noted)
        if rule is None:
            return await self._answer(request, user)
        return await self._fail(request, user, rule)

    async def _fail(self, request: IncomingRequest, user: User, rule: InjectedError) -> Answer:
        match rule.breakage:
            case Breakage.STATUS:
                fault = StatusError(rule.status, "", f"status {rule.status} on request of a test")
                return refusal(fault)
            case Breakage.RESET_BEFORE:
                return ConnectionCut()
            case Breakage.RESET_AFTER:
                await self._answer(request, user)
                return ConnectionCut()
            case Breakage.DELAY:
                await asyncio.sleep(rule.delay_s)
                return await self._answer(request, user)

    def _authenticate(self, request: IncomingRequest) -> User:
        tokens = self._backend.tokens
        if tokens is None:
            return ADMINISTRATOR
        scheme, _, token = request.authorization.partition(" ")
        user = tokens.get(token) if scheme == "Bearer" else None
        if user is None:
            raise unauthorized()
        return user

    async def _answer(self, request: IncomingRequest, user: User) -> Answer:
        warnings: list[str] = []
        try:
            if self._backend.reviewer.is_asked(request.method, request.path):
                body = decoding.decode_json(await _read_object(request), "Review")
                review = self._backend.reviewer.review(request.path, body)
                return CompleteAnswer(201, msgspec.json.encode(review))
            discovered = discover(request.path, self._backend.registry)
            if discovered is not None and request.method == "GET":
                return CompleteAnswer(200, msgspec.json.encode(discovered))
            target = resolve(request.path, self._backend.registry)
            if request.method == "GET":
                return self._read(request, target)
            caller = _caller_of(request, user, warnings)
            written = await self._write(request, target, caller)
        except StatusError as fault:
            return refusal(fault, warnings)
        except Exception as error:  # noqa: BLE001  # the request boundary
            _log.exception("request failed", method=request.method, path=request.path)
            return refusal(internal(f"{type(error).__name__}: {error}"[:256]), warnings)
        return CompleteAnswer(written.status, written.encoded, warnings)

    def _read(self, request: IncomingRequest, target: RequestTarget) -> Answer:
        if target.resource is BINDINGS or target.subresource in _ACTIONS:
            raise method_not_allowed()
        collection = self._backend.store.collection(target.resource)
        if target.name:
            stored = collection.get(target.namespace, target.name)
            if stored is None:
                raise not_found(target.resource, target.name)
            return CompleteAnswer(200, stored.encoded)
        query = request.query
        selection = ListSelection(
            target.resource,
            target.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
        )
        current = self._backend.store.revision.current
        if query.get("watch", "false") not in {"false", "0"}:
            return self._watch(request, target, selection)
        encoded = listing.encode_list(
            collection, target.resource, selection, current=current, query=query
        )
        return CompleteAnswer(200, encoded)

    def _watch(
        self, request: IncomingRequest, target: RequestTarget, selection: ListSelection
    ) -> Answer:
        query = request.query
        store = self._backend.store
        timeout = query.get("timeoutSeconds", "")
        watch = WatchRequest(
            resource=target.resource,
            selection=selection,
            version=listing.check_version(query.get("resourceVersion", ""), store.revision.current),
            bookmarks=query.get("allowWatchBookmarks") in {"true", "1"},
            sends_initial_events=query.get("sendInitialEvents") in {"true", "1"},
            timeout_s=float(timeout) if timeout.isdecimal() and int(timeout) else None,
        )
        stream = WatchStream(
            watch,
            store.collection(target.resource),
            store.revision,
            bookmark_interval_s=self._backend.bookmark_interval_s,
            is_stopping=lambda: not self.is_serving,
        )
        return WatchAnswer(stream)

    async def _write(
        self, request: IncomingRequest, target: RequestTarget, caller: Caller
    ) -> WriteResult:
        backend = self._backend
        is_action = target.resource is BINDINGS or target.subresource in _ACTIONS
        match request.method, bool(target.name):
            case "POST", True if target.subresource == "eviction":
                body = decoding.decode_json(await _read_object(request), "Eviction")
                return await backend.evictor.evict(target, caller, body)
            case "POST", named if is_action and named == (target.resource is not BINDINGS):
                body = decoding.decode_json(await _read_object(request), "Binding")
                return await backend.binder.bind(target, caller, body)
            case "POST", False if target.namespace or not target.resource.namespaced:
                body = decoding.decode_object(await _read_object(request), target)
                return await backend.writer.create(target, caller, body)
            case "PUT", True if not is_action:
                return await self._replace(request, target, caller)
            case "PATCH", True if not is_action:
                return await self._patch(request, target, caller)
            case "DELETE", True if not target.subresource:
                options = decode_delete_options(await request.read(), request.query)
                return await backend.deleter.delete(target, caller, options)
            case "DELETE", False if target.namespace or not target.resource.namespaced:
                return await self._delete_collection(request, target, caller)
            case _:
                raise method_not_allowed()

    async def _replace(
        self, request: IncomingRequest, target: RequestTarget, caller: Caller
    ) -> WriteResult:
        writer = self._backend.writer
        body = decoding.decode_object(await _read_object(request), target)
        collection = self._backend.store.collection(target.resource)
        if collection.get(target.namespace, target.name) is None:
            if target.resource.creates_on_update:
                return await writer.create(target, caller, body)
            raise not_found(target.resource, target.name)
        decoding.check_version_is_named(body, target.resource, target.name)
        return await writer.replace(target, caller, body)

    async def _patch(
        self, request: IncomingRequest, target: RequestTarget, caller: Caller
    ) -> WriteResult:
        writer = self._backend.writer
        content_type = request.content_type
        raw = await request.read()
        if content_type == _APPLY:
            _check_apply(request)
            config = _decode_config(raw, target.resource.kind)
            forced = request.query.get("force") in {"true", "1"}
            return await writer.apply(target, caller, config, forced=forced)
        if content_type not in _PATCHES:
            raise unsupported_media_type(_PATCHES)
        try:
            patch = msgspec.json.decode(raw)
        except msgspec.DecodeError as error:
            raise bad_request(f"error decoding patch: {error}") from error
        transform: Callable[[Json], Json]
        if content_type == "application/json-patch+json":
            transform = partial(patching.json_patch, patch=patch)
        else:
            transform = partial(patching.merge_patch, patch=patch)
        return await writer.patch(target, caller, transform)

    async def _delete_collection(
        self, request: IncomingRequest, target: RequestTarget, caller: Caller
    ) -> WriteResult:
        """Delete the selected objects one by one; the real server has no transaction either."""
        query, store = request.query, self._backend.store
        options = decode_delete_options(await request.read(), query)
        selection = ListSelection(
            target.resource,
            target.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
        )
        collection = store.collection(target.resource)
        encoded = listing.encode_list(
            collection, target.resource, selection, current=store.revision.current, query={}
        )
        for stored in list(collection.all(target.namespace)):
            if selection.matches(stored.body):
                namespace, name = stored.key
                child = RequestTarget(resource=target.resource, namespace=namespace, name=name)
                await self._backend.deleter.delete(child, caller, options)
        return WriteResult(status=200, encoded=encoded)


def _caller_of(request: IncomingRequest, user: User, warnings: list[str]) -> Caller:
    query = request.query
    kinds = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
    options = kinds.get(request.method, "DeleteOptions")
    validation = query.get("fieldValidation", "Warn")
    if validation not in decoding.FIELD_VALIDATIONS:
        error = unsupported_value("fieldValidation", validation, decoding.FIELD_VALIDATIONS)
        raise invalid(options, "", [error], group="meta.k8s.io")
    agent = (request.user_agent or "unknown").partition("/")[0]
    return Caller(
        user=user,
        manager=query.get("fieldManager") or agent,
        dry_run=decoding.check_dry_run(query.getall("dryRun", []), options),
        field_validation=validation,
        warnings=warnings,
    )


async def _read_object(request: IncomingRequest) -> bytes:
    if request.content_type not in {"", JSON}:
        raise unsupported_media_type(_OBJECTS)
    return await request.read()


def _check_apply(request: IncomingRequest) -> None:
    if not request.query.get("fieldManager"):
        error = required("fieldManager", "is required for apply patch")
        raise invalid("PatchOptions", "", [error], group="meta.k8s.io")


def _decode_config(raw: bytes, kind: str) -> Json:
    config = decoding.decode_json(raw, kind)
    if not config.get("kind") or not config.get("apiVersion"):
        raise bad_request("invalid object type: /, Kind=")
    if (config.get("metadata") or {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    return config
