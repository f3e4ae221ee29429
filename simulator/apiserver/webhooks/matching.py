"""Rules and label selectors of webhooks."""

from typing import TYPE_CHECKING, Any

import msgspec

from api.meta import LabelSelector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulator.apiserver.resource_types import ResourceType

Json = dict[str, Any]


def matches_rules(
    webhook: Json, resource: "ResourceType", *, subresource: str, operation: str
) -> bool:
    """Return whether a rule of the webhook names this kind and operation."""
    path = f"{resource.plural}/{subresource}" if subresource else resource.plural
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return any(
        _has(rule.get("operations"), operation)
        and _has(rule.get("apiGroups"), resource.group)
        and _has(rule.get("apiVersions"), resource.version)
        and rule.get("scope", "*") in {"*", scope}
        and any(_is_path(item, path) for item in rule.get("resources") or ())
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
    """Return whether a label selector selects these labels; without one, all match."""
    return not selector or msgspec.convert(selector, LabelSelector).matches(labels)
