"""What the server may do at the API server: every part's own rules, and nothing more."""

from typing import TYPE_CHECKING, Final

from agent import rbac as agents
from certs import kubernetes as certificates
from manifests import constants
from manifests.install.rbac import (
    PolicyRule,
    build_device_plugin_rbac,
    build_namespace,
    build_node_agent_rbac,
    build_rbac,
    build_scheduler_rbac,
    build_user_roles,
)
from manifests.install.server_policy import OwnObjects
from reconciler.assignment import controller as device_assignment
from reconciler.assignment import pool_conflicts
from reconciler.device import health as device_health
from reconciler.device import state as device_state
from reconciler.inventory import controller as node_inventory
from reconciler.pod import nomination as nominating
from reconciler.pod import requeue
from reconciler.pool import lifecycle as pool_life
from reconciler.pool import node_labels as node_marks
from reconciler.pool import status as pool_status
from reconciler.pool import workloads as pool_workloads
from reconciler.readiness import controller as node_bootstrap
from reconciler.runtime import eviction as evicting
from reconciler.sinks import devices, namespaces, node_features, nodes, pods, pools
from reconciler.sinks import operand_pods as operands
from server import binder as binding
from server import events as announcing
from server import reservation_signer as sealing
from server.leadership import fence as fencing

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
    *requeue.RBAC,
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


def _in_our_namespace(own: OwnObjects) -> tuple[PolicyRule, ...]:
    leases = ("leases",)
    return (
        # A create carries no name: `manifests.install.server_policy` limits that.
        PolicyRule(group="coordination.k8s.io", resources=leases, verbs=("create",)),
        PolicyRule(
            group="coordination.k8s.io",
            resources=leases,
            verbs=("get", "update"),
            names=(own.lease,),
        ),
        *pool_workloads.NAMESPACED_RBAC,
        *certificates.namespaced_rbac(own.serving_secret, constants.SCHEDULER_SECRET),
        *sealing.NAMESPACED_RBAC,
    )
