"""Write strategies of kinds: decode checks, defaults, first status, validation.

A `WriteStrategy` is four pure functions; kinds outside the table have none of their own.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from simulator.apiserver import cel_evaluator
from simulator.apiserver.errors import InvalidField, invalid_value, required, unsupported_value
from simulator.apiserver.strategies import (
    crd,
    daemonset,
    event,
    pod,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from simulator.apiserver.resource_types import ResourceType

Json = dict[str, Any]


def _unchanged(body: Json) -> None:
    """Leave the body as it is."""


def _no_status(body: Json, now: str) -> None:
    """Leave a new object's status as it is."""


def _no_rules(body: Json, old: Json | None) -> "Iterable[InvalidField]":
    return ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStrategy:
    """The behaviour of one kind. The first three work in place."""

    check: "Callable[[Json], None]" = _unchanged
    """Raise the 400 of a body that cannot be decoded."""
    default: "Callable[[Json], None]" = _unchanged
    """Fill in defaults; idempotent."""
    begin: "Callable[[Json, str], None]" = _no_status
    """Set the status of a new object, given the time."""
    validate: "Callable[[Json, Json | None], Iterable[InvalidField]]" = _no_rules
    """Return what is wrong with an object, or with the change from the older one."""


def strategy_of(resource: "ResourceType") -> WriteStrategy:
    schema = resource.schema
    if schema is None:
        return _BUILT_IN.get(resource.kind, _PLAIN)

    def drop_status(body: Json, _now: str) -> None:
        if resource.has_status:
            body.pop("status", None)

    return WriteStrategy(
        default=schema.default,
        begin=drop_status,
        validate=schema.validate,
    )


def _check_lease(body: Json) -> None:
    spec = body.get("spec") or {}
    for field in ("acquireTime", "renewTime"):
        event.check_micro_time("Lease", spec.get(field))


def _validate_lease(body: Json, _old: Json | None) -> "Iterator[InvalidField]":
    spec = body.get("spec") or {}
    for field, low in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(field)
        if value is not None and value < low:
            text = "must be greater than 0" if low else "must be greater than or equal to 0"
            yield invalid_value(f"spec.{field}", value, text)


def _default_namespace(body: Json) -> None:
    metadata = body["metadata"]
    if name := metadata.get("name"):
        labels = dict(metadata.get("labels") or {})
        labels["kubernetes.io/metadata.name"] = name
        metadata["labels"] = labels


def _begin_namespace(body: Json, _now: str) -> None:
    body["spec"] = {"finalizers": ["kubernetes"]}
    body["status"] = {"phase": "Active"}


_NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def _begin_node(body: Json, _now: str) -> None:
    """Taint a new node as not ready, as the API server does until a controller finds otherwise."""
    taints = body.setdefault("spec", {}).setdefault("taints", [])
    if not any(taint.get("key") == _NOT_READY["key"] for taint in taints):
        taints.append(dict(_NOT_READY))


def _default_node(body: Json) -> None:
    status = body.get("status") or {}
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))


_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")


def _default_webhooks(body: Json) -> None:
    for webhook in body.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("timeoutSeconds", 10)
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        if body["kind"] == "MutatingWebhookConfiguration":
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")


def _validate_webhooks(body: Json, _old: Json | None) -> "Iterator[InvalidField]":
    for index, webhook in enumerate(body.get("webhooks") or ()):
        at = f"webhooks[{index}]"
        name = webhook.get("name", "")
        if name.count(".") < 2:
            text = "should be a domain with at least three segments separated by dots"
            yield invalid_value(f"{at}.name", name, text)
        if webhook.get("sideEffects") not in _SIDE_EFFECTS:
            yield unsupported_value(
                f"{at}.sideEffects", webhook.get("sideEffects", ""), _SIDE_EFFECTS
            )
        if not webhook.get("admissionReviewVersions"):
            yield required(f"{at}.admissionReviewVersions", "must specify one of v1, v1beta1")
        client = webhook.get("clientConfig") or {}
        if ("url" in client) == ("service" in client):
            yield required(f"{at}.clientConfig", "exactly one of url or service is required")
        for number, condition in enumerate(webhook.get("matchConditions") or ()):
            expression = condition.get("expression", "")
            try:
                cel_evaluator.compile_expression(expression)
            except cel_evaluator.CelError as error:
                where = f"{at}.matchConditions[{number}].expression"
                yield invalid_value(where, expression, str(error))
        if not 1 <= webhook.get("timeoutSeconds", 10) <= 30:
            yield invalid_value(
                f"{at}.timeoutSeconds",
                webhook["timeoutSeconds"],
                "the timeout value must be between 1 and 30 seconds",
            )


def _begin_definition(body: Json, now: str) -> None:
    body["status"] = crd.established(body, now)


def _default_priority_class(body: Json) -> None:
    body.setdefault("preemptionPolicy", "PreemptLowerPriority")
    body.setdefault("value", 0)


_PLAIN = WriteStrategy()
_WEBHOOKS = WriteStrategy(default=_default_webhooks, validate=_validate_webhooks)
_BUILT_IN: Final = {
    "Pod": WriteStrategy(default=pod.default, begin=pod.begin, validate=pod.validate),
    "Node": WriteStrategy(default=_default_node, begin=_begin_node),
    "Namespace": WriteStrategy(default=_default_namespace, begin=_begin_namespace),
    "Event": WriteStrategy(check=event.check_times, validate=event.validate),
    "Lease": WriteStrategy(check=_check_lease, validate=_validate_lease),
    "DaemonSet": WriteStrategy(
        default=daemonset.default,
        begin=daemonset.begin,
        validate=daemonset.validate,
    ),
    "PriorityClass": WriteStrategy(default=_default_priority_class),
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "CustomResourceDefinition": WriteStrategy(
        default=crd.default, begin=_begin_definition, validate=crd.validate
    ),
}
