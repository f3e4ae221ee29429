"""Which webhooks a request is for: rules, selectors, match conditions.

Match conditions are CEL on the real server. Here they are a port, and its default knows exactly the
clauses that this project's manifests render, joined by `||`; any other text is refused loudly.
"""

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from api.meta import LabelSelector
from api.names import RESOURCE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from simulator.apiserver.resources.types import ResourceType

Json = dict[str, Any]


class MatchCondition(Protocol):
    """Evaluates one expression of a webhook's `matchConditions`."""

    def __call__(self, expression: str, request: "Mapping[str, Any]") -> bool:
        """Say whether the AdmissionReview's `request` meets the expression.

        Raises:
            UnknownExpression: it cannot be evaluated here.
        """


class UnknownExpressionError(ValueError):
    """A CEL expression that the match-condition port cannot evaluate."""


def _names_a_pool(request: "Mapping[str, Any]") -> bool:
    spec = request["object"].get("spec") or {}
    containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    return any(
        key.startswith(RESOURCE_PREFIX)
        for container in containers
        for amounts in (container.get("resources") or {}).values()
        if isinstance(amounts, dict)
        for key in amounts
    )


def _has_our_annotation(request: "Mapping[str, Any]") -> bool:
    annotations = request["object"]["metadata"].get("annotations") or {}
    return any(key.startswith(RESOURCE_PREFIX) for key in annotations)


_CLAUSES: Final[dict[str, "Callable[[Mapping[str, Any]], bool]"]] = {
    "(object.spec.containers+object.spec.?initContainers.orValue([])).exists(c,"
    f"(c.?resources.?limits.orValue({{}})).exists(k,k.startsWith('{RESOURCE_PREFIX}'))||"
    f"(c.?resources.?requests.orValue({{}})).exists(k,k.startsWith('{RESOURCE_PREFIX}')))": (
        _names_a_pool
    ),
    "object.metadata.?annotations.orValue({})"
    f".exists(k,k.startsWith('{RESOURCE_PREFIX}'))": _has_our_annotation,
}


def evaluate_rendered(expression: str, request: "Mapping[str, Any]") -> bool:
    """Evaluate an expression that our manifests render: the default `MatchCondition`."""
    rest = "".join(expression.split()).replace('"', "'")
    matches = False
    while rest:
        for clause, predicate in _CLAUSES.items():
            if rest.startswith(clause):
                matches = matches or predicate(request)
                rest = rest.removeprefix(clause).removeprefix("||")
                break
        else:
            raise UnknownExpressionError(
                f"this API server evaluates no CEL and does not know the expression {expression!r}: "
                "give it a match_condition that does"
            )
    return matches


def matches_rules(
    webhook: Json, resource: "ResourceType", *, subresource: str, operation: str
) -> bool:
    """Say whether any rule of the webhook names this kind and operation."""
    path = f"{resource.plural}/{subresource}" if subresource else resource.plural
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return any(
        _has(rule.get("operations"), operation)
        and _has(rule.get("apiGroups"), resource.group)
        and _has(rule.get("apiVersions"), resource.version)
        and rule.get("scope", "*") in {"*", scope}
        and any(_is_path(each, path) for each in rule.get("resources") or ())
        for rule in webhook.get("rules") or ()
    )


def _has(values: list[str] | None, wanted: str) -> bool:
    return values is not None and not {wanted, "*"}.isdisjoint(values)


def _is_path(pattern: str, path: str) -> bool:
    """Compare as Kubernetes does: `*` is every main resource, `*/*` everything."""
    plural, _, subresource = path.partition("/")
    wanted_plural, slash, wanted_subresource = pattern.partition("/")
    if wanted_plural not in {"*", plural}:
        return False
    if not slash:
        return not subresource
    # `pods/*` is pods and all their subresources.
    return wanted_subresource in {"*", subresource}


def webhook_matches(selector: "Mapping[str, Any] | None", labels: "Mapping[str, str]") -> bool:
    """Say whether a label selector selects these labels; none selects everything."""
    return not selector or msgspec.convert(selector, LabelSelector).matches(labels)
