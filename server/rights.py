"""What the server may do at the API server: every part's own rules, and nothing more."""

from typing import TYPE_CHECKING, Final

from certs import kubernetes as certificates
from manifests.rbac import Rule, build_namespace, build_rbac, build_scheduler_rbac, build_user_roles
from reconciler import (
    device_state,
    devices,
    namespaces,
    node_labels,
    nodes,
    nominating,
    pods,
    pool_status,
    pools,
    waking,
)
from server import announcing, binding, fencing, sealing

if TYPE_CHECKING:
    from typing import Any

EVERYWHERE: Final = (
    *pools.RBAC,
    *devices.RBAC,
    *nodes.RBAC,
    *namespaces.RBAC,
    *pods.RBAC,
    *pool_status.RBAC,
    *device_state.RBAC,
    *node_labels.RBAC,
    *waking.RBAC,
    *nominating.RBAC,
    *binding.RBAC,
    *fencing.RBAC,
    *announcing.RBAC,
    *certificates.RBAC,
)
IN_OUR_NAMESPACE: Final = (
    Rule(
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("create", "get", "update"),
    ),
    *certificates.NAMESPACED_RBAC,
    *sealing.NAMESPACED_RBAC,
)


def build_roles(namespace: str) -> "list[dict[str, Any]]":
    """Return our namespace, and accounts, roles and bindings of server, scheduler and users."""
    return [
        build_namespace(namespace),
        *build_rbac(EVERYWHERE, namespaced_rules=IN_OUR_NAMESPACE, namespace=namespace),
        *build_scheduler_rbac(namespace),
        *build_user_roles(),
    ]
