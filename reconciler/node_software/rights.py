"""Rights of the controllers of node software: on their objects, and those that they pass on to the operands.

The API server lets nobody grant a right that it lacks. So the server holds what the roles of the operands have, and
needs neither `escalate` nor `bind`. Only a server with `node_software.enabled` has any of this.

Objects of NVIDIADrivers are named after them, and RuntimeClasses as a ClusterPolicy says, so no names limit these
rights: `manifests.install.server_policy` limits them by the label of a state.
"""

from typing import TYPE_CHECKING, Final

from kube.resources import CLUSTER_POLICIES, DAEMON_SETS, GPU_CLUSTERS, NVIDIA_DRIVERS
from manifests.install.rbac import PolicyRule
from operands.asset_files import load_assets
from operands.nvidia.policy_states import POLICY_STATES
from reconciler.node_software import daemon_pods
from reconciler.node_software.built_in_rights import passed_on
from reconciler.node_software.objects import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

_ASSETS: Final = tuple(asset for state in POLICY_STATES for asset in load_assets(state.name))
KINDS: Final = tuple(
    resource
    for kind, resource in RESOURCES.items()
    if kind not in {"ConfigMap", "DaemonSet", "VerticalPodAutoscaler"}
)
"""Those of a ClusterPolicy's objects, but for those on which `pool.workloads` has the same rights, for any name."""
_VERBS: Final = ("create", "delete", "list", "patch")


def _on_objects(*, namespaced: bool) -> "Iterator[PolicyRule]":
    for resource in KINDS:
        if resource.namespaced is namespaced:
            yield PolicyRule(group=resource.group, resources=(resource.plural,), verbs=_VERBS)


_OWN_KINDS: Final = tuple(
    rule
    for resource in (CLUSTER_POLICIES, NVIDIA_DRIVERS)
    for rule in (
        PolicyRule(group=resource.group, resources=(resource.plural,), verbs=("patch",)),
        PolicyRule(
            group=resource.group, resources=(f"{resource.plural}/status",), verbs=("patch",)
        ),
    )
)
PASSED_ON: Final = passed_on(_ASSETS, "ClusterRole")
PASSED_ON_IN_NAMESPACE: Final = passed_on(_ASSETS, "Role")
RBAC: Final = (
    *_OWN_KINDS,
    PolicyRule(group=GPU_CLUSTERS.group, resources=(GPU_CLUSTERS.plural,), verbs=("list",)),
    # Those of other clients, beside which nothing is started.
    PolicyRule(group=DAEMON_SETS.group, resources=(DAEMON_SETS.plural,), verbs=("list",)),
    *_on_objects(namespaced=False),
    *PASSED_ON,
)
NAMESPACED_RBAC: Final = (
    *_on_objects(namespaced=True),
    *daemon_pods.NAMESPACED_RBAC,
    *PASSED_ON_IN_NAMESPACE,
)
"""They are no part of the controllers' specs, whose rights every server has."""
