"""What a state of the node software is to have, and what became of it in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from api.names import OPERAND_LABEL
from kube.errors import Forbidden, NotFound
from operands.nvidia.policy_status import StateReason

if TYPE_CHECKING:
    from enum import Enum

    from reconciler.runtime.object_applier import Refusal

Json = dict[str, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """What a state is to have."""

    name: str
    is_enabled: bool = True
    objects: Sequence[Json] = ()
    """Objects with the hash of their content (`manifests.node.device_plugin.signed`)."""
    fault: "tuple[Enum, str] | None" = None
    """Why its objects cannot be built; what it has stays then."""


@final
@dataclass(slots=True, kw_only=True)
class StateOutcome:
    """What became of a state in one pass."""

    objects: int = 0
    fault: "tuple[Enum, str] | None" = None
    left: list[str] = field(default_factory=list)
    daemon_sets: list[Json] = field(default_factory=list)
    """Those that are there and as they should be, as they were read."""
    refusals: "list[Refusal]" = field(default_factory=list)
    """Refusals of the API server."""

    def note(self, refusal: "Refusal") -> None:
        self.refusals.append(refusal)
        self.fault = self.fault or (StateReason.OBJECT_NOT_APPLIED, refusal_text(refusal))


def refusal_text(refusal: "Refusal") -> str:
    """Return object, answer and cure."""
    return f"{refusal.text}. {cure_of(refusal)}"


def cure_of(refusal: "Refusal") -> str:
    """Return what to do, as a sentence."""
    match refusal.error:
        case Forbidden():
            return (
                "Unless the answer has the cure, apply `render rbac` and `render policy` with the settings of"
                " the server"
            )
        case NotFound():
            return "Create the namespace, or correct the server's setting namespace"
        case _:
            return "It is tried again"


def state_of(found: Json) -> str:
    state: str = (found["metadata"].get("labels") or {}).get(OPERAND_LABEL, "")
    return state


def unobserved(body: Json, found: Json | None) -> Json:
    """Return a DaemonSet that was just written, with the status of before, which does not count for it."""
    before: Json = found or {}
    generation = before.get("metadata", {}).get("generation", 0) + 1
    metadata = {**body["metadata"], "uid": before.get("metadata", {}).get("uid", "")}
    return {
        **body,
        "metadata": {**metadata, "generation": generation},
        "status": before.get("status"),
    }
