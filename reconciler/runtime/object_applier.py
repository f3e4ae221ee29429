"""Writes of rendered objects of any kind: one server-side apply where a field is missing or wrong, one deletion by uid.

An object that the API server, or a webhook, stores otherwise than it was written is written once: what was written is
remembered with what the answer had. One that another client changes or deletes is put back at once, and then later each
time that this happens again. Both are reported once on the object, and counted.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import structlog

from api.meta import PartialObjectMetadata, compared
from api.names import CONFIG_HASH_ANNOTATION
from api.quantity import canonical_quantity
from api.text import truncate
from kube.backoff import Backoff
from kube.errors import ApiError, Forbidden, MethodNotAllowed, NotFound
from kube.event_recorder import ObjectReference
from operands.operand_state import OPTIONAL_KINDS
from telemetry.metrics import OBJECT_CONFLICTS
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from api.meta import ObjectMeta
    from kube.client import KubeClient, Propagation
    from kube.event_recorder import EventRecorder
    from kube.resources import Resource
    from reconciler.runtime.live_objects import ObjectName

_AMOUNTS: Final = ("requests", "limits")
"""Their quantities are stored in another form than they may be written in."""


def first_difference(desired: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Return the path of a field of the desired object that the live one lacks or has otherwise; empty: there is none.

    `apiVersion` and `kind` do not count.
    """
    fields = {key: value for key, value in desired.items() if key not in {"apiVersion", "kind"}}
    return _difference(fields, current, "").removeprefix(".")


def _difference(desired: object, current: object, path: str) -> str:
    """Return the path of the first difference.

    Items of keyed lists are found by their key, since an apply leaves those of others there; all other
    lists are one value.
    """
    match desired, current:
        case dict(), dict():
            pairs = [(f".{key}", value, current.get(key)) for key, value in desired.items()]
            if path.endswith(_AMOUNTS):
                pairs = [(key, _stored(value), amount) for key, value, amount in pairs]
        case list(), list():
            key = _key_of(desired)
            if key is None:
                is_same = len(desired) == len(current) and not any(
                    _difference(item, other, "[]")
                    for item, other in zip(desired, current, strict=True)
                )
                return "" if is_same else path
            by_key = {item.get(key): item for item in current}
            pairs = [(f"[{item[key]}]", item, by_key.get(item[key])) for item in desired]
        case _:
            return "" if desired == current else path
    found = (_difference(value, other, path + key) for key, value, other in pairs)
    return next(filter(None, found), "")


def _stored(amount: object) -> object:
    """Return a quantity as the API server stores it."""
    try:
        return canonical_quantity(str(amount))
    except ValueError:
        return amount


def _key_of(items: Sequence[object]) -> str | None:
    """Return the merge key of a list's items; None for an atomic list."""
    for key in ("mountPath", "uid", "name"):
        if items and all(isinstance(item, dict) and key in item for item in items):
            return key
    return None


Json = dict[str, Any]

ACTION: Final = "ApplyOperand"
"""Action of events."""
MAX_ANSWER: Final = 512
"""Characters of the API server's answer in a text."""
FIRST_PAUSE_S: Final = 10.0
MOST_PAUSE_S: Final = 600.0
"""Least and most time between two writes by which an object is put back."""
_TERMINATING: Final = "custom resource definition is terminating"
"""Ends the API server's refusal (403) to create an object whose definition is being deleted."""

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True)
class Refusal:
    """An object that the API server did not let us write or read."""

    state: str
    """Empty where a kind cannot be read."""
    kind: str
    name: str
    error: ApiError

    @property
    def text(self) -> str:
        """Return object and answer; the message of an admission policy, which is its only cause, as a whole."""
        error = self.error
        causes = (error.details.causes if error.details else None) or ()
        answers = (": ".join(filter(None, (cause.field, cause.message))) for cause in causes)
        answer = "; ".join(filter(None, answers)) or error.message
        reason = error.reason or type(error).__name__
        words = f"{error.status} {reason}: {answer}".split()
        return f"{self.kind} {self.name or '*'}: {truncate(' '.join(words), MAX_ANSWER)}"


@final
@dataclass(slots=True)
class _Applied:
    """The last version of an object that is as it should be, or as the API server stored it."""

    digest: str
    uid: str
    version: str
    stored: Json | None = None
    """What the API server stored instead of what was written; None: just that."""
    conflict: Backoff = field(
        default_factory=lambda: Backoff(base_s=FIRST_PAUSE_S, cap_s=MOST_PAUSE_S, jitter=0)
    )
    """Its failures are the times that another client undid the last write."""
    until: float = 0.0
    """Monotonic time before which the object is not put back again."""

    def is_newer_than(self, found: Mapping[str, str]) -> bool:
        """Say whether this version came after the one with the metadata that was found."""
        order = compared(found["resourceVersion"], self.version)
        return found["uid"] == self.uid and order is not None and order < 0

    def undone(self, found: Json | None, meta: "ObjectMeta") -> str:
        """Return what another client did to the object, by what was found and by the answer to a further write.

        What was found may be older than this version.
        """
        if meta.uid != self.uid:
            return "deleted"
        order = compared(found["metadata"]["resourceVersion"], self.version) if found else 0
        return "changed" if order is None or order > 0 else ""


@final
class ObjectApplier:
    """Applies and deletes signed objects (`manifests.node.device_plugin.signed`) of some kinds as one field manager."""

    def __init__(
        self,
        client: "KubeClient",
        resources: "Mapping[str, Resource]",
        *,
        field_manager: str,
        recorder: "EventRecorder",
        now: "Callable[[], Instant]",
        source: str,
    ) -> None:
        """Take the services; `source` names, in Events, what asks for the objects: "change ... instead"."""
        self._client = client
        self._resources = resources
        self._field_manager = field_manager
        self._recorder = recorder
        self._now = now
        self._source = source
        self._applied: dict[ObjectName, _Applied] = {}

    def differs(self, body: Json, found: Json | None) -> bool:
        """Say whether an object has to be written, of which `found` is there."""
        if found is None:
            return True
        name, digest, meta = _name_of(body), _digest_of(body), found["metadata"]
        applied = self._applied.get(name)
        if applied is None or applied.digest != digest:
            if applied is not None and applied.is_newer_than(meta):
                # Another write of ours followed, which the watch has not delivered yet.
                return True
            applied = _Applied(digest, meta["uid"], "")
        if applied.version == meta["resourceVersion"]:
            return False
        if first_difference(body, found) and applied.stored != _content(body, found):
            return True
        applied.version = meta["resourceVersion"]
        self._applied[name] = applied
        return False

    def uid_of(self, name: "ObjectName") -> str:
        """Return the uid that an object had in the last answer; empty where there was none."""
        applied = self._applied.get(name)
        return applied.uid if applied is not None else ""

    async def put(self, body: Json, found: Json | None) -> "ObjectMeta | None":
        """Apply an object that differs; return the answer's metadata.

        None: another client undid the last write, so that the next one waits.

        Raises:
            KubeError: it was not written, or that is not known.
        """
        name, digest = _name_of(body), _digest_of(body)
        before = self._applied.get(name)
        is_same = before is not None and before.digest == digest
        if before is not None and is_same and self._now().monotonic < before.until:
            return None
        answer = await self._client.apply(
            self._resources[name[0]], body, field_manager=self._field_manager
        )
        meta, stored = answer.decode(PartialObjectMetadata).metadata, answer.decode(dict[str, Any])
        applied = self._applied[name] = _Applied(digest, meta.uid, meta.resource_version)
        if before is not None and is_same:
            applied.conflict, applied.until = before.conflict, before.until
            if was := before.undone(found, meta):
                self._note_conflict(name[0], meta, applied=applied, was=was)
        if difference := first_difference(body, stored):
            applied.stored = _content(body, stored)
            if before is None or not is_same or before.stored is None:
                self._report(
                    name[0],
                    meta,
                    f"another client, such as a mutating webhook, stores {truncate(difference)} of this object otherwise"
                    " than it is written, which stays so: exempt our namespace from it",
                )
        return meta

    async def write(self, state: str, body: Json, found: Json | None) -> Refusal | None:
        """Apply an object that differs, unless another client undid that just now; return the API server's refusal.

        Raises:
            KubeError: it is not known whether the object was written.
        """
        kind, name = _name_of(body)
        try:
            written = await self.put(body, found)
        except ApiError as error:
            if kind in OPTIONAL_KINDS and _is_undefined(error):
                # Its definition went since the list, or is on its way.
                return None
            return Refusal(state, kind, name, error)
        if written is not None:
            _log.info("operand applied", operand=state, kind=kind, object=name)
        return None

    async def delete(
        self,
        state: str,
        name: "ObjectName",
        found: Json,
        *,
        propagation: "Propagation | None" = None,
    ) -> Refusal | None:
        """Delete an object that is there, unless that is under way; return the API server's refusal.

        Raises:
            KubeError: it is not known whether the object was deleted.
        """
        kind, meta = name[0], found["metadata"]
        if meta.get("deletionTimestamp"):
            return None
        self._applied.pop(name, None)
        try:
            with contextlib.suppress(NotFound):
                await self._client.delete(
                    self._resources[kind],
                    name[1],
                    namespace=meta.get("namespace"),
                    uid=meta["uid"],
                    propagation=propagation,
                )
        except ApiError as error:
            return Refusal(state, kind, name[1], error)
        _log.info("operand deleted", operand=state, kind=kind, object=name[1])
        return None

    def _note_conflict(self, kind: str, meta: "ObjectMeta", *, applied: _Applied, was: str) -> None:
        """Have the object wait before it is put back again; report the first time in a row."""
        if was == "deleted" and kind in OPTIONAL_KINDS:
            return  # together with its definition
        now = self._now().monotonic
        if now > applied.until + MOST_PAUSE_S:
            applied.conflict.succeed()
        if applied.conflict.failures:
            OBJECT_CONFLICTS.labels(kind).inc()
        else:
            self._report(
                kind,
                meta,
                f"another client {was} this object: it is put back, later each time while that goes on. Change"
                f" {self._source} instead, or stop that client",
            )
        applied.until = now + applied.conflict.fail()

    def _report(self, kind: str, meta: "ObjectMeta", note: str) -> None:
        OBJECT_CONFLICTS.labels(kind).inc()
        regarding = ObjectReference.to(self._resources[kind], meta)
        self._recorder.warning(regarding, EventReason.OPERAND_RESTORED, note, action=ACTION)
        _log.warning("object changed by another client", kind=kind, object=meta.name, note=note)


def _is_undefined(error: ApiError) -> bool:
    is_terminating = isinstance(error, Forbidden) and _TERMINATING in error.message
    return is_terminating or isinstance(error, NotFound | MethodNotAllowed)


def _name_of(body: Json) -> "ObjectName":
    return body["kind"], body["metadata"]["name"]


def _digest_of(body: Json) -> str:
    digest: str = (body["metadata"].get("annotations") or {}).get(CONFIG_HASH_ANNOTATION, "")
    return digest


def _content(body: Json, stored: Json) -> Json:
    """Return what a write of ours may have set: neither status nor what every write changes."""
    meta = stored["metadata"]
    kept = {key: meta.get(key) for key in ("labels", "annotations", "ownerReferences")}
    return {
        key: stored.get(key)
        for key in body
        if key not in {"apiVersion", "kind", "metadata", "status"}
    } | {"metadata": kept}
