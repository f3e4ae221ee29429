"""A pod's way through both webhooks, as cheap to drive as can be.

The API server applies the patch and sends the patched pod to the validating webhook. Pods of one kind
get the same patch but for the annotation of their reservation, so one pod is patched by jsonpatch, checked, and made a
template; of the others only name, uid and note are filled in.
"""

import base64
from typing import TYPE_CHECKING, Any

import jsonpatch
import msgspec

from api.names import RESERVATION_ANNOTATION
from tests.bench import world
from tests.bench.report import checked
from tests.bench.wire import request_bytes

if TYPE_CHECKING:
    from tests.bench.wire import Connection, Visit

MUTATE = "/mutate/pods"
VALIDATE = "/validate/pods"
_NOTE = "note-of-the-reservation"


class RefusedError(Exception):
    """A webhook refused a pod."""


class _Step(msgspec.Struct):
    op: str
    path: str
    value: Any = None


class _Response(msgspec.Struct):
    allowed: bool
    patch: str = ""
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class _Answer(msgspec.Struct):
    response: _Response


_ANSWERS = msgspec.json.Decoder(_Answer)
_STEPS = msgspec.json.Decoder(list[_Step])
_NOTE_PATH = "/metadata/annotations/" + RESERVATION_ANNOTATION.replace("/", "~1")


class PodKind:
    """Pods that ask for the same, by their templates."""

    def __init__(self, pod: dict[str, Any], patched: dict[str, Any]) -> None:
        self._name, self._uid = pod["metadata"]["name"], patched["metadata"]["uid"]
        self._mutation = msgspec.json.encode(world.review(pod, f"mutate-{self._name}"))
        self._validation = msgspec.json.encode(world.review(patched, f"validate-{self._name}"))
        self._patched = msgspec.json.encode(patched)

    @classmethod
    async def learn(cls, connection: "Connection", pool: str, units: int) -> "PodKind":
        """Have one pod mutated and validated, both answers checked in full."""
        pod = world.a_pod(f"first-of-{pool}-{units}", pool, units)
        mutation = request_bytes(MUTATE, msgspec.json.encode(world.review(pod, "first")))
        answer = msgspec.json.decode(await connection.send(mutation))["response"]
        assert answer["allowed"], answer
        assert answer["uid"] == "first"
        patched = jsonpatch.apply_patch(pod, base64.b64decode(answer["patch"]).decode())
        patched["metadata"]["uid"] = f"uid-of-first-{pool}-{units}"
        note = msgspec.json.decode(patched["metadata"]["annotations"][RESERVATION_ANNOTATION])
        held = note.get("devices", {}).get("main", [])
        if held:
            assert len({unit.split("::")[0] for unit in held}) == units, "on distinct devices"
        validation = request_bytes(VALIDATE, msgspec.json.encode(world.review(patched, "second")))
        judged = msgspec.json.decode(await connection.send(validation))["response"]
        assert judged["allowed"], judged
        checked("mutate and validate")
        patched["metadata"]["annotations"][RESERVATION_ANNOTATION] = _NOTE
        return cls(pod, patched)

    def visit(self, name: str, uid: str) -> "Visit":
        """Ask both webhooks about a pod; raise where one of them refuses it."""
        note = note_of((yield self.mutation(name)))
        check_allowed((yield self.validation(name, uid, note)))

    def mutation(self, name: str) -> bytes:
        """Return the request to the mutating webhook."""
        return request_bytes(MUTATE, self._mutation.replace(self._name.encode(), name.encode()))

    def validation(self, name: str, uid: str, note: str) -> bytes:
        """Return the request to the validating webhook."""
        return request_bytes(VALIDATE, self._fill(self._validation, name, uid, note))

    def pod(self, name: str, uid: str, note: str) -> dict[str, Any]:
        """Return the pod as the API server stores it."""
        stored: dict[str, Any] = msgspec.json.decode(self._fill(self._patched, name, uid, note))
        return stored

    def _fill(self, template: bytes, name: str, uid: str, note: str) -> bytes:
        return (
            template.replace(self._name.encode(), name.encode())
            .replace(self._uid.encode(), uid.encode())
            .replace(f'"{_NOTE}"'.encode(), msgspec.json.encode(note))
        )


def note_of(answer: bytes) -> str:
    """Return the annotation that the mutating webhook put into a pod."""
    response = _ANSWERS.decode(answer).response
    if not response.allowed:
        raise RefusedError(response.status.get("message"))
    for step in _STEPS.decode(base64.b64decode(response.patch)):
        if step.path == _NOTE_PATH:
            return str(step.value)
        if step.path == "/metadata/annotations":
            return str(step.value[RESERVATION_ANNOTATION])
    raise AssertionError("the patch has no reservation")


def check_allowed(answer: bytes) -> None:
    """Raise unless the validating webhook let the pod in."""
    response = _ANSWERS.decode(answer).response
    if not response.allowed:
        raise RefusedError(response.status.get("message"))
