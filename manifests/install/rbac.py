"""Roles and bindings: for the control plane from its controllers' rules, for users, for the scheduler.

Each controller declares its rules beside its code; here they are merged and bound. RBAC knows no
`pods/*`: every subresource is named.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from api.names import GKM_GROUP, GROUP
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_RBAC: Final = "rbac.authorization.k8s.io"
_SCHEDULER_CLUSTER_ROLES: Final = ("system:kube-scheduler", "system:volume-scheduler")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """Verbs on resources of one API group; on named objects only, if there are names."""

    group: str = ""
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.resources or not self.verbs:
            raise ValueError(f"a rule needs resources and verbs: {self}")
        if self.names and (unnamed := {"create", "deletecollection"} & set(self.verbs)):
            raise ValueError(
                f"{', '.join(sorted(unnamed))} of {', '.join(self.resources)} cannot be limited to"
                " names: the request carries none"
            )


def build_rbac(
    rules: "Sequence[PolicyRule]",
    *,
    name: str = constants.NAME,
    namespaced_rules: "Sequence[PolicyRule]" = (),
    namespace: str = constants.DEFAULT_NAMESPACE,
) -> list[dict[str, Any]]:
    """Return a service account, its rights in the cluster, and further ones in its namespace."""
    account = _service_account(name, namespace)
    objects = [
        account,
        _cluster_role(name, rules),
        _binding(name, "ClusterRole", name, subject=account),
    ]
    if namespaced_rules:
        objects += [
            _role(name, namespace, namespaced_rules),
            _binding(name, "Role", name, subject=account, namespace=namespace),
        ]
    return objects


def build_further_rights(
    name: str,
    rules: "Sequence[PolicyRule]",
    *,
    namespaced_rules: "Sequence[PolicyRule]" = (),
    namespace: str = constants.DEFAULT_NAMESPACE,
) -> list[dict[str, Any]]:
    """Return roles of this name with rights that the control plane's account has besides its own."""
    account = _service_account(constants.NAME, namespace)
    objects = []
    if rules:
        objects += [
            _cluster_role(name, rules),
            _binding(name, "ClusterRole", name, subject=account),
        ]
    if namespaced_rules:
        objects += [
            _role(name, namespace, namespaced_rules),
            _binding(name, "Role", name, subject=account, namespace=namespace),
        ]
    return objects


def build_namespace(namespace: str = constants.DEFAULT_NAMESPACE) -> dict[str, Any]:
    """Return the namespace, which must exist before its objects.

    It admits the privileged node agent: a user who may create pods there controls every node.
    """
    labels = {**constants.LABELS, **constants.POD_SECURITY_LABELS}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace, "labels": labels},
    }


def build_user_roles() -> list[dict[str, Any]]:
    """Return the roles that extend `view` (and through it `edit`) and `admin`, those that read usage and look at the console.

    Users with `view` in a namespace see pools, devices and nodes' inventories. Pools span
    namespaces, so only users bound to `admin` in the whole cluster can write them; a RoleBinding to
    `admin` has no effect here, because the kinds are cluster-scoped.
    """
    view = PolicyRule(
        group=GROUP, resources=("gpudevices", "gpunodeinventories", "gpupools"), verbs=_READ
    )
    edit = PolicyRule(
        group=GROUP,
        resources=("gpupools",),
        verbs=_WRITE,
    )
    # Only cluster-admin writes settings: who does decides which images run on every node.
    config = PolicyRule(group=GROUP, resources=("gpucontrolplaneconfigs",), verbs=_READ)
    return [
        _cluster_role(f"{constants.NAME}-view", [view], aggregate_to="view"),
        _cluster_role(f"{constants.NAME}-edit", [edit, config], aggregate_to="admin"),
        _metrics_reader(),
        _console_viewer(view),
    ]


def _console_viewer(view: PolicyRule) -> dict[str, Any]:
    """Return the role of people who read the console, without a binding; pods are a matter of `view`."""
    nodes = PolicyRule(resources=("nodes",), verbs=_READ)
    return _cluster_role(constants.CONSOLE_VIEWER, [view, nodes])


def _metrics_reader() -> dict[str, Any]:
    """Return the role that reads the metrics of namespaces and pods, without a binding."""
    role = _cluster_role(constants.METRICS_READER, [])
    rules = [{"nonResourceURLs": [constants.USAGE_METRICS_PATH], "verbs": ["get"]}]
    return {**role, "rules": rules}


def build_pool_viewers(subjects: "Sequence[dict[str, Any]]") -> list[dict[str, Any]]:
    """Return the role that reads pools, bound to the subjects in the whole cluster.

    A RoleBinding to `view` has no effect on cluster-scoped kinds, so users with rights in one
    namespace need this to see which pools there are. Devices and inventories are not part of it.
    """
    name = constants.POOL_VIEWER
    return [
        _cluster_role(name, [PolicyRule(group=GROUP, resources=("gpupools",), verbs=_READ)]),
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": dict(constants.LABELS)},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": list(subjects),
        },
    ]


def group_subjects(groups: "Iterable[str]") -> list[dict[str, Any]]:
    return [{"apiGroup": _RBAC, "kind": "Group", "name": group} for group in groups]


def build_cache_roles() -> list[dict[str, Any]]:
    """Return the role for pull secrets, without a binding, and roles that extend `view`, `edit` and `admin`.

    Who may write a GKMCache in a namespace is a matter of `edit` there; a ClusterGKMCache is served to all namespaces, so
    that only users bound to `admin` in the whole cluster can write it. No role writes a status.
    """
    everything = ("clustergkmcaches", "clustergkmcachenodes", "gkmcaches", "gkmcachenodes")
    view = PolicyRule(group=GKM_GROUP, resources=everything, verbs=_READ)
    edit = PolicyRule(group=GKM_GROUP, resources=("gkmcaches",), verbs=_WRITE)
    admin = PolicyRule(group=GKM_GROUP, resources=("clustergkmcaches",), verbs=_WRITE)
    secrets = PolicyRule(resources=("secrets",), verbs=("get",))
    return [
        _cluster_role(constants.PULL_SECRETS_ROLE, [secrets]),
        _cluster_role(f"{constants.CACHES}-view", [view], aggregate_to="view"),
        _cluster_role(f"{constants.CACHES}-edit", [edit], aggregate_to="edit"),
        _cluster_role(f"{constants.CACHES}-admin", [admin], aggregate_to="admin"),
    ]


def build_pull_secret_rights(names: "Sequence[str]", namespace: str) -> list[dict[str, Any]]:
    """Return the right of server and agents to read these Secrets of our namespace; nothing without names."""
    if not names:
        return []
    rule = PolicyRule(resources=("secrets",), verbs=("get",), names=tuple(names))
    subjects = [
        _service_account_subject(account, namespace)
        for account in (constants.SERVICE_ACCOUNT, constants.NODE_AGENT)
    ]
    name = constants.PULL_SECRETS_ROLE
    return [
        _role(name, namespace, [rule]),
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace, "labels": dict(constants.LABELS)},
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": subjects,
        },
    ]


def build_scheduler_rbac(namespace: str = constants.DEFAULT_NAMESPACE) -> list[dict[str, Any]]:
    """Return the service account, roles and bindings of our kube-scheduler.

    The stock roles allow only the stock Lease, so its own Lease in our namespace has a role.
    """
    name = constants.SCHEDULER_SERVICE_ACCOUNT
    account = _service_account(name, namespace)
    lease_rules = [
        PolicyRule(group="coordination.k8s.io", resources=("leases",), verbs=("create",)),
        PolicyRule(
            group="coordination.k8s.io",
            resources=("leases",),
            verbs=("get", "update"),
            names=(constants.SCHEDULER_LEASE_NAME,),
        ),
    ]
    return [
        account,
        *(
            _binding(f"{name}:{role}", "ClusterRole", role, subject=account)
            for role in _SCHEDULER_CLUSTER_ROLES
        ),
        _binding(
            f"{name}:extension-apiserver-authentication-reader",
            "Role",
            "extension-apiserver-authentication-reader",
            subject=account,
            namespace="kube-system",
        ),
        _role(name, namespace, lease_rules),
        _binding(name, "Role", name, subject=account, namespace=namespace),
    ]


def merge_rules(rules: "Iterable[PolicyRule]") -> list[dict[str, Any]]:
    """Return equivalent rules, each verb of a resource once, in a fixed order."""
    verbs_by_target: dict[tuple[str, tuple[str, ...], str], set[str]] = defaultdict(set)
    for rule in rules:
        for resource in rule.resources:
            target = (rule.group, tuple(sorted(set(rule.names))), resource)
            verbs_by_target[target] |= set(rule.verbs)
    resources_by_right: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(
        list
    )
    for (group, names, resource), verbs in sorted(verbs_by_target.items()):
        resources_by_right[group, names, tuple(sorted(verbs))].append(resource)
    return [
        {"apiGroups": [group], "resources": resources}
        | ({"resourceNames": list(names)} if names else {})
        | {"verbs": list(verbs)}
        for (group, names, verbs), resources in resources_by_right.items()
    ]


def _service_account(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(constants.LABELS)},
    }


def _cluster_role(
    name: str, rules: "Sequence[PolicyRule]", *, aggregate_to: str | None = None
) -> dict[str, Any]:
    labels = dict(constants.LABELS)
    if aggregate_to is not None:
        labels[f"{_RBAC}/aggregate-to-{aggregate_to}"] = "true"
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels},
        "rules": merge_rules(rules),
    }


def _role(name: str, namespace: str, rules: "Sequence[PolicyRule]") -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(constants.LABELS)},
        "rules": merge_rules(rules),
    }


def _binding(
    name: str,
    role_kind: str,
    role: str,
    *,
    subject: dict[str, Any],
    namespace: str | None = None,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": dict(constants.LABELS)}
    if namespace is not None:
        metadata["namespace"] = namespace
    account = subject["metadata"]
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding" if namespace is None else "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": [_service_account_subject(account["name"], account["namespace"])],
    }


def _service_account_subject(name: str, namespace: str) -> dict[str, Any]:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}
