"""Refusals of operands' objects by the API server: the text and the cure that an Event shows. Pure."""

from dataclasses import dataclass
from typing import Final, final

from api.text import truncate
from kube.errors import ApiError, BadRequest, Forbidden, Invalid, NotFound

MAX_ANSWER: Final = 512
"""Characters of the API server's answer in an Event."""
_SETTINGS: Final = {"dcgm-exporter": "dcgm_exporter", "telemetry": "dcgm_exporter"}
"""Section of a state below `bootstrap`, where its name is another."""


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

    @property
    def cure(self) -> str:
        """Return what to do, as a sentence."""
        section = f"bootstrap.{_SETTINGS.get(self.state, self.state)}"
        match self.error:
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
