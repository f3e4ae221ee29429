"""What the server may do at the API server: every part's own rules, and nothing more."""

from typing import TYPE_CHECKING, Final

from agent import rbac as agents
from api.kinds.autoscaling import ScalingBackend
from certs import kubernetes as certificates
from http_edge.reviews import kube_reviews
from manifests import constants
from manifests.install import rbac
from manifests.install.server_policy import OwnObjects
from reconciler.driver_upgrade import upgrade_pass
from reconciler.node_software import rights as node_software_rights
from reconciler.scaling import removed_backends
from reconciler.sinks import operator_objects
from server import binder, informers
from server.configuration import config_store
from server.controllers.all import CONTROLLERS
from server.kernelcache import mutation_key_secret
from server.leadership import fence
from server.reservations import signer

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

EVENTS: Final = (
    rbac.PolicyRule(group="events.k8s.io", resources=("events",), verbs=("create", "patch")),
)
CLUSTER_RULES: Final = (
    *informers.RBAC,
    *(rule for spec in CONTROLLERS for rule in spec.rbac),
    *config_store.RBAC,
    *binder.RBAC,
    *fence.RBAC,
    *EVENTS,
    *kube_reviews.RBAC,
)


def build_roles(
    own: OwnObjects, backends: "Collection[ScalingBackend]" = ()
) -> "list[dict[str, Any]]":
    """Return our namespace, and accounts, roles and bindings of server, scheduler, agents and users.

    Args:
        own: what the server has.
        backends: the server's setting `autoscaling.backends`.
    """
    further = [item for item in BACKEND_RULES if item in backends]
    return [
        rbac.build_namespace(own.namespace),
        *build_server_roles(own),
        *(role for backend in further for role in build_backend_roles(own, backend)),
        *(build_node_software_roles(own) if own.runs_node_software else []),
        *rbac.build_scheduler_rbac(own.namespace),
        *build_agent_roles(own.namespace),
        *rbac.build_user_roles(),
    ]


def build_server_roles(own: OwnObjects) -> "list[dict[str, Any]]":
    certificates_rules = certificates.RBAC if own.issues_certificates else ()
    return rbac.build_rbac(
        (*CLUSTER_RULES, *certificates_rules),
        namespaced_rules=_in_our_namespace(own),
        namespace=own.namespace,
    )


BACKEND_RULES: Final[
    dict[ScalingBackend, tuple[tuple[rbac.PolicyRule, ...], tuple[rbac.PolicyRule, ...]]]
] = {
    ScalingBackend.CAPACITY_BUFFER: ((), removed_backends.BUFFER_RBAC),
    ScalingBackend.KARPENTER_STATIC: (removed_backends.REPLICAS_RBAC, ()),
}
"""Rights in the cluster, and in our namespace, that the server has only where its setting `autoscaling.backends` names
the backend."""


def build_backend_roles(own: OwnObjects, backend: ScalingBackend) -> "list[dict[str, Any]]":
    """Return the server's rights to give back what was bought by a removed backend of autoscaling."""
    rules, namespaced = BACKEND_RULES[backend]
    return rbac.build_further_rights(
        f"{constants.NAME}-{backend.value}",
        rules,
        namespaced_rules=namespaced,
        namespace=own.namespace,
    )


NODE_SOFTWARE_RULES: Final = (
    *operator_objects.RBAC,
    *node_software_rights.RBAC,
    *upgrade_pass.FURTHER_RBAC,
)
NODE_SOFTWARE_NAMESPACED_RULES: Final = (
    *node_software_rights.NAMESPACED_RBAC,
    *upgrade_pass.FURTHER_NAMESPACED_RBAC,
)


def build_node_software_roles(own: OwnObjects) -> "list[dict[str, Any]]":
    """Return the server's rights with its setting `node_software.enabled`, and only then."""
    return rbac.build_further_rights(
        f"{constants.NAME}-node-software",
        tuple(dict.fromkeys(NODE_SOFTWARE_RULES)),
        namespaced_rules=tuple(dict.fromkeys(NODE_SOFTWARE_NAMESPACED_RULES)),
        namespace=own.namespace,
    )


def build_agent_roles(namespace: str = constants.DEFAULT_NAMESPACE) -> "list[dict[str, Any]]":
    return [
        *rbac.build_rbac(
            agents.RBAC,
            name=constants.NODE_AGENT,
            namespaced_rules=agents.NAMESPACED_RBAC,
            namespace=namespace,
        ),
        *rbac.build_rbac(
            agents.DETECTOR_RBAC,
            name=constants.NODE_DETECTOR,
            namespaced_rules=agents.DETECTOR_NAMESPACED_RBAC,
            namespace=namespace,
        ),
        *rbac.build_rbac(agents.PLUGIN_RBAC, name=constants.DEVICE_PLUGIN, namespace=namespace),
    ]


def _in_our_namespace(own: OwnObjects) -> tuple[rbac.PolicyRule, ...]:
    leases = ("leases",)
    return (
        # A create carries no name: `manifests.install.server_policy` limits that.
        rbac.PolicyRule(group="coordination.k8s.io", resources=leases, verbs=("create",)),
        rbac.PolicyRule(
            group="coordination.k8s.io",
            resources=leases,
            verbs=("get", "update"),
            names=(constants.LEASE_NAME,),
        ),
        *(rule for spec in CONTROLLERS for rule in spec.namespaced_rbac),
        *(rule for spec in CONTROLLERS for rule in spec.own_rbac(own)),
        *(
            certificates.namespaced_rbac(constants.SERVING_SECRET, constants.SCHEDULER_SECRET)
            if own.issues_certificates
            else ()
        ),
        *config_store.NAMESPACED_RBAC,
        *signer.NAMESPACED_RBAC,
        *mutation_key_secret.NAMESPACED_RBAC,
    )
