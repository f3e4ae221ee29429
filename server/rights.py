"""What the server may do at the API server: every part's own rules, and nothing more."""

from typing import TYPE_CHECKING, Final

from agent import rights as agents
from certs import kubernetes as certificates
from manifests import constants
from manifests.rbac import (
    Rule,
    build_device_plugin_rbac,
    build_namespace,
    build_node_agent_rbac,
    build_rbac,
    build_scheduler_rbac,
    build_user_roles,
)
from manifests.server_policy import OwnObjects
from reconciler import (
    device_assignment,
    device_health,
    device_state,
    devices,
    evicting,
    namespaces,
    node_bootstrap,
    node_features,
    node_inventory,
    node_marks,
    nodes,
    nominating,
    operands,
    pods,
    pool_conflicts,
    pool_life,
    pool_status,
    pool_workloads,
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
    *operands.RBAC,
    *node_features.RBAC,
    *node_inventory.RBAC,
    *node_bootstrap.RBAC,
    *device_health.RBAC,
    *device_assignment.RBAC,
    *device_state.RBAC,
    *node_marks.RBAC,
    *pool_conflicts.RBAC,
    *pool_life.RBAC,
    *pool_status.RBAC,
    *evicting.RBAC,
    *waking.RBAC,
    *nominating.RBAC,
    *binding.RBAC,
    *fencing.RBAC,
    *announcing.RBAC,
    *certificates.RBAC,
)


def build_roles(own: OwnObjects) -> "list[dict[str, Any]]":
    """Return our namespace, and accounts, roles and bindings of server, scheduler, agents and users."""
    namespace = own.namespace
    return [
        build_namespace(namespace),
        *build_rbac(EVERYWHERE, namespaced_rules=_in_our_namespace(own), namespace=namespace),
        *build_scheduler_rbac(namespace),
        *build_node_agent_rbac(
            agents.RBAC, namespaced_rules=agents.NAMESPACED_RBAC, namespace=namespace
        ),
        *build_device_plugin_rbac(agents.PLUGIN_RBAC, namespace),
        *build_user_roles(),
    ]


def _in_our_namespace(own: OwnObjects) -> tuple[Rule, ...]:
    leases = ("leases",)
    return (
        # A create carries no name: `manifests.server_policy` limits that.
        Rule(group="coordination.k8s.io", resources=leases, verbs=("create",)),
        Rule(
            group="coordination.k8s.io",
            resources=leases,
            verbs=("get", "update"),
            names=(own.lease,),
        ),
        *pool_workloads.NAMESPACED_RBAC,
        *certificates.namespaced_rbac(own.serving_secret, constants.SCHEDULER_SECRET),
        *sealing.NAMESPACED_RBAC,
    )
