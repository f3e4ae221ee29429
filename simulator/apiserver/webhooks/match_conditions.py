"""The match conditions of our webhook configurations, without CEL.

Keyed by the very expressions that `manifests.install.webhooks` renders, so that a changed expression is
refused here until somebody says what it means. The cluster tests evaluate the real text.
"""

from typing import TYPE_CHECKING, Any, Final

from api.names import ASSIGNMENT_ANNOTATION
from manifests.install.webhooks import (
    MIRRORED_EXPRESSION,
    NEW_ASSIGNMENT_EXPRESSION,
    SPEC_CHANGED_EXPRESSION,
)
from simulator.apiserver.webhooks.matching import evaluate_rendered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"


def evaluate(expression: str, request: "Mapping[str, Any]") -> bool:
    """Evaluate one of our expressions for an AdmissionReview's request."""
    predicate = _PREDICATES.get(expression)
    return evaluate_rendered(expression, request) if predicate is None else predicate(request)


def _is_no_mirror(request: "Mapping[str, Any]") -> bool:
    groups = request["userInfo"].get("groups") or ()
    return not (_MIRROR_ANNOTATION in _annotations(request["object"]) and "system:nodes" in groups)


def _is_newly_assigned(request: "Mapping[str, Any]") -> bool:
    assignment = _annotations(request["object"]).get(ASSIGNMENT_ANNOTATION, "")
    old = request.get("oldObject")
    return bool(assignment) and (
        old is None or assignment != _annotations(old).get(ASSIGNMENT_ANNOTATION, "")
    )


def _has_other_spec(request: "Mapping[str, Any]") -> bool:
    old = request.get("oldObject")
    return old is None or (request["object"].get("spec") or {}) != (old.get("spec") or {})


def _annotations(subject: "Mapping[str, Any]") -> "Mapping[str, str]":
    return subject["metadata"].get("annotations") or {}


_PREDICATES: "Final[dict[str, Callable[[Mapping[str, Any]], bool]]]" = {
    f"!{MIRRORED_EXPRESSION}": _is_no_mirror,
    NEW_ASSIGNMENT_EXPRESSION: _is_newly_assigned,
    SPEC_CHANGED_EXPRESSION: _has_other_spec,
}
