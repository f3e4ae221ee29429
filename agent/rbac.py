"""RBAC rules of the agents, apart from their code, so that rendering them loads no gRPC.

All agents of a cluster share one service account for each kind. `manifests.install.agent_policy` limits each agent to
its own node.
"""

from typing import Final

from api.names import GKM_GROUP, GROUP
from manifests.install.rbac import PolicyRule

_OF_BOTH: Final = (
    # The pods of the node, and their assigned devices.
    PolicyRule(resources=("pods",), verbs=("list", "watch")),
    PolicyRule(group="events.k8s.io", resources=("events",), verbs=("create", "patch")),
)
RBAC: Final = (
    PolicyRule(group=GROUP, resources=("gpudevices", "gpupools"), verbs=("list", "watch")),
    PolicyRule(group=GROUP, resources=("gpunodeinventories",), verbs=("get",)),
    PolicyRule(group=GROUP, resources=("gpunodeinventories/status",), verbs=("patch",)),
    # Its Node owns the published NodeFeature, so that both are deleted together.
    PolicyRule(resources=("nodes",), verbs=("get",)),
    # kubelet asks for it: the settings of its TopologyManager.
    PolicyRule(resources=("nodes/configz",), verbs=("get",)),
    # Pull secrets of caches are read where a RoleBinding of their namespace allows it.
    PolicyRule(
        group=GKM_GROUP, resources=("gkmcaches", "clustergkmcaches"), verbs=("list", "watch")
    ),
    PolicyRule(
        group=GKM_GROUP,
        resources=("gkmcachenodes", "clustergkmcachenodes"),
        verbs=("create", "delete", "get", "list", "patch", "watch"),
    ),
    PolicyRule(
        group=GKM_GROUP,
        resources=("gkmcachenodes/status", "clustergkmcachenodes/status"),
        verbs=("update",),
    ),
    *_OF_BOTH,
)
"""Cluster-wide rules of the node agent."""
NAMESPACED_RBAC: Final = (
    PolicyRule(
        group="nfd.k8s-sigs.io", resources=("nodefeatures",), verbs=("create", "get", "patch")
    ),
)
"""Rules of the node agent in its namespace, where it publishes its NodeFeature."""
DETECTOR_RBAC: Final = (
    # Its Node owns the published NodeFeature, so that both are deleted together.
    PolicyRule(resources=("nodes",), verbs=("get",)),
)
"""Cluster-wide rules of the node detector."""
DETECTOR_NAMESPACED_RBAC: Final = (
    PolicyRule(
        group="nfd.k8s-sigs.io",
        resources=("nodefeatures",),
        verbs=("create", "delete", "get", "patch"),
    ),
)
"""Rules of the node detector in its namespace."""
PLUGIN_RBAC: Final = _OF_BOTH
"""Rules of a pool's own device plugin."""
