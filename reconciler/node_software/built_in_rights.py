"""Rights of every server on the operands of the built-in policy: on their objects by name, and those that it passes on.

The API server lets nobody grant a right that it lacks. So the server holds what the roles of the operands have, and
needs neither `escalate` nor `bind`.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from manifests.constants import FEATURE_DISCOVERY, FORMER_OPERANDS
from manifests.install.rbac import PolicyRule
from operands.nvidia.policy_states import all_built_in_objects
from reconciler.node_software.objects import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_OBJECTS: Final = all_built_in_objects()
_OF_POOLS_TOO: Final = frozenset({"ConfigMap", "DaemonSet"})
"""Kinds on which `pool.workloads` has the same rights, for any name."""
FORMER: Final = {
    "ServiceAccount": {FEATURE_DISCOVERY, *FORMER_OPERANDS},
    "Service": {*FORMER_OPERANDS},
    "ServiceMonitor": {FORMER_OPERANDS[1]},
    "ClusterRole": {FEATURE_DISCOVERY},
    "ClusterRoleBinding": {FEATURE_DISCOVERY},
    "Role": {FEATURE_DISCOVERY},
    "RoleBinding": {FEATURE_DISCOVERY},
}
"""Objects of earlier versions, which the server deletes."""


def names_by_kind() -> dict[str, tuple[str, ...]]:
    """Return the names of all objects that operands may have."""
    found: dict[str, set[str]] = defaultdict(set)
    for item in _OBJECTS:
        found[item["kind"]].add(item["metadata"]["name"])
    return {kind: tuple(sorted(names)) for kind, names in sorted(found.items())}


def deleted_names(kind: str) -> tuple[str, ...]:
    """Return the names of objects of a kind that operands may have, or had in an earlier version."""
    return tuple(sorted({*names_by_kind().get(kind, ()), *FORMER.get(kind, ())}))


def _on_objects(*, namespaced: bool) -> "Iterator[PolicyRule]":
    for kind, names in names_by_kind().items():
        resource = RESOURCES[kind]
        if resource.namespaced is namespaced and kind not in _OF_POOLS_TOO:
            group, target = resource.group, (resource.plural,)
            # A create carries no name: `manifests.install.server_policy` limits that.
            yield PolicyRule(group=group, resources=target, verbs=("create", "list"))
            yield PolicyRule(group=group, resources=target, verbs=("patch",), names=names)
            yield PolicyRule(
                group=group, resources=target, verbs=("delete",), names=deleted_names(kind)
            )


def passed_on(objects: "Iterable[Mapping[str, Any]]", kind: str) -> tuple[PolicyRule, ...]:
    """Return the rights that the roles of a kind grant among the objects."""
    found = (
        PolicyRule(
            group=group,
            resources=tuple(rule["resources"]),
            verbs=tuple(rule["verbs"]),
            names=tuple(rule.get("resourceNames", ())),
        )
        for item in objects
        if item["kind"] == kind
        for rule in item["rules"]
        for group in rule["apiGroups"]
    )
    return tuple(dict.fromkeys(found))


PASSED_ON: Final = passed_on(_OBJECTS, "ClusterRole")
PASSED_ON_IN_NAMESPACE: Final = passed_on(_OBJECTS, "Role")
RBAC: Final = (*_on_objects(namespaced=False), *PASSED_ON)
NAMESPACED_RBAC: Final = (*_on_objects(namespaced=True), *PASSED_ON_IN_NAMESPACE)
