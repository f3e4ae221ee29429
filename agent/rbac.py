"""What agents may do at the API server, apart from their code, so that whoever renders roles loads no gRPC.

All agents of a cluster have one service account for each kind of them. That an agent speaks of its own node
only is `manifests.install.agent_policy`'s.
"""

from typing import Final

from api.names import GROUP
from manifests.install.rbac import PolicyRule

_OF_BOTH: Final = (
    # Whose pods are on the node, and which devices they were promised.
    PolicyRule(resources=("pods",), verbs=("list", "watch")),
    PolicyRule(group="events.k8s.io", resources=("events",), verbs=("create", "patch")),
)
RBAC: Final = (
    PolicyRule(group=GROUP, resources=("gpudevices", "gpupools"), verbs=("list", "watch")),
    PolicyRule(group=GROUP, resources=("gpunodeinventories",), verbs=("get",)),
    PolicyRule(group=GROUP, resources=("gpunodeinventories/status",), verbs=("patch",)),
    # Its Node owns what it publishes, so that one goes with the other.
    PolicyRule(resources=("nodes",), verbs=("get",)),
    *_OF_BOTH,
)
"""Of the node agent."""
NAMESPACED_RBAC: Final = (
    PolicyRule(
        group="nfd.k8s-sigs.io", resources=("nodefeatures",), verbs=("create", "get", "patch")
    ),
)
"""Of the node agent in our namespace, where it publishes what it finds."""
PLUGIN_RBAC: Final = _OF_BOTH
"""Of a pool's own device plugin."""
