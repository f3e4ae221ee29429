"""Rights that an uninstall needs, as the chart's pre-delete hook.

The hook leaves what Helm applied to Helm, so it needs no right on roles, Services or CRDs. An
administrator who runs the command without `--keep-applied` needs these rights too.
"""

from typing import TYPE_CHECKING, Any

from cli.uninstall.own_kinds import RemovalOptions, RemovalStage, own_kinds
from kube.resources import PODS
from manifests.install.rbac import PolicyRule
from manifests.install.uninstall_hook import HookPod, build_uninstall_hook

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.uninstall.own_kinds import OwnKind
    from manifests.install.server_policy import OwnObjects


def build_hook(own: "OwnObjects", pod: HookPod, *, is_forced: bool = False) -> list[dict[str, Any]]:
    """Return the chart's pre-delete hook with the rights that an uninstall needs."""
    return build_uninstall_hook(
        cluster_rules(own),
        namespaced_rules=namespaced_rules(own),
        own=own,
        pod=pod,
        is_forced=is_forced,
    )


def cluster_rules(own: "OwnObjects") -> tuple[PolicyRule, ...]:
    """Return the rights in the whole cluster."""
    return (
        PolicyRule(resources=("pods",), verbs=("list",)),
        PolicyRule(resources=("nodes",), verbs=("list", "patch")),
        PolicyRule(resources=("namespaces",), verbs=("get", "patch"), names=(own.namespace,)),
        *_on_own_kinds(own, namespaced=False),
    )


def namespaced_rules(own: "OwnObjects") -> tuple[PolicyRule, ...]:
    """Return the rights in the namespace of the control plane."""
    leases = next(kind for kind in own_kinds() if kind.resource.plural == "leases")
    return (
        PolicyRule(group="apps", resources=("deployments",), verbs=("list",)),
        # Not `deployments`, which would be a right to run any image in a privileged namespace.
        PolicyRule(group="apps", resources=("deployments/scale",), verbs=("patch",)),
        PolicyRule(
            group=leases.resource.group,
            resources=("leases",),
            verbs=("update",),
            names=leases.names,
        ),
        *_on_own_kinds(own, namespaced=True),
    )


def _on_own_kinds(own: "OwnObjects", *, namespaced: bool) -> "Iterator[PolicyRule]":
    options = RemovalOptions(own=own, with_applied=False)
    for kind in own_kinds():
        is_there = own.runs_node_software or not kind.of_node_software
        if options.reads(kind.stage) and is_there and bool(kind.namespace_in(own)) is namespaced:
            yield from _rules(kind)


def _rules(kind: "OwnKind") -> "Iterator[PolicyRule]":
    group, resources = kind.resource.group, (kind.resource.plural,)
    write = "patch" if kind.stage is RemovalStage.FINALIZERS else "delete"
    if kind.names:
        yield PolicyRule(group=group, resources=resources, verbs=("get", write), names=kind.names)
        return
    if kind.resource != PODS:  # which are read in the whole cluster
        yield PolicyRule(group=group, resources=resources, verbs=("list",))
    yield PolicyRule(group=group, resources=resources, verbs=(write,), names=kind.deletable)
