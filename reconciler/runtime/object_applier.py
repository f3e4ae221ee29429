"""Writes of rendered objects of any kind: one server-side apply where a field is missing or wrong, one deletion by uid.

An object that the API server, or a webhook, stores otherwise than it was written is written once: what was written is
remembered with what the answer had.
"""

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import structlog

from api.text import truncate
from kube.errors import ApiError, MethodNotAllowed, NotFound
from operands.operand_state import OPTIONAL_KINDS
from reconciler.runtime.desired_fields import has_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kube.client import KubeClient, Propagation
    from kube.resources import Resource
    from reconciler.runtime.live_objects import ObjectName

Json = dict[str, Any]

MAX_ANSWER: Final = 512
"""Characters of the API server's answer in a text."""

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
        answers = (": ".join(filter(None, (one.field, one.message))) for one in causes)
        answer = "; ".join(filter(None, answers)) or error.message
        reason = error.reason or type(error).__name__
        shown = f"{error.status} {reason}: {answer}"
        return f"{self.kind} {self.name or '*'}: {truncate(' '.join(shown.split()), MAX_ANSWER)}"


@final
class ObjectApplier:
    """Applies and deletes objects of some kinds as one field manager."""

    def __init__(
        self, client: "KubeClient", resources: "Mapping[str, Resource]", *, field_manager: str
    ) -> None:
        self._client = client
        self._resources = resources
        self._field_manager = field_manager
        self._answered: dict[ObjectName, tuple[Json, Json]] = {}
        # object -> what was written last, and what the answer had

    def differs(self, body: Json, found: Json | None) -> bool:
        """Say whether an object has to be written, of which `found` is there."""
        if found is None:
            return True
        name = (body["kind"], body["metadata"]["name"])
        return not has_fields(body, found) and self._answered.get(name) != (body, _content(found))

    async def write(self, state: str, body: Json) -> Refusal | None:
        """Apply an object; return the API server's refusal.

        Raises:
            KubeError: it is not known whether the object was written.
        """
        kind, name = body["kind"], body["metadata"]["name"]
        try:
            written = await self._client.apply(
                self._resources[kind], body, field_manager=self._field_manager
            )
        except ApiError as error:
            if kind in OPTIONAL_KINDS and isinstance(error, NotFound | MethodNotAllowed):
                # Its definition went since the list, or is on its way.
                return None
            return Refusal(state, kind, name, error)
        self._answered[kind, name] = (body, _content(written.decode(dict[str, Any])))
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
        self._answered.pop(name, None)
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


def _content(shown: Json) -> Json:
    """Return what a write of ours may have set: neither status nor what every write changes."""
    meta = shown["metadata"]
    kept = {key: meta.get(key) for key in ("labels", "annotations")}
    return {
        key: value
        for key, value in shown.items()
        if key not in {"apiVersion", "kind", "metadata", "status"}
    } | {"metadata": kept}
