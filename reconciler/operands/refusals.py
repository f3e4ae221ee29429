"""Cures of refusals of operands' objects by the API server, which an Event shows. Pure."""

from typing import TYPE_CHECKING, Final

from kube.errors import BadRequest, Forbidden, Invalid, NotFound

if TYPE_CHECKING:
    from reconciler.runtime.object_applier import Refusal

_SETTINGS: Final = {
    "gpu-feature-discovery": "gfd",
    "state-dcgm": "dcgm",
    "state-dcgm-exporter": "dcgm_exporter",
    "telemetry": "dcgm_exporter",
}
"""Section of a state below `bootstrap`, where its name is another."""


def cure_of(refusal: "Refusal") -> str:
    """Return what to do, as a sentence."""
    section = f"bootstrap.{_SETTINGS.get(refusal.state, refusal.state)}"
    match refusal.error:
        case Invalid() | BadRequest():
            return f"Correct {section} in the settings of the server"
        case NotFound():
            return "Create the namespace, or correct the server's setting namespace"
        case Forbidden():
            return (
                "Unless the answer has the cure, apply `render rbac` and `render policy` with the settings of"
                " the server"
            )
        case _:
            return "It is tried again every ten seconds"
