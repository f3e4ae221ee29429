"""`clusterpolicy.index`: ClusterPolicies and NVIDIADrivers, whole: a cluster has a handful of them.

Both kinds have an informer each, where `node_software` is enabled; their definitions may be absent.
"""

from typing import TYPE_CHECKING, Final, final

from api.kinds.nvidia.clusterpolicy import ClusterPolicy, active_policy
from kube.event_source import EventSource
from kube.resources import CLUSTER_POLICIES, NVIDIA_DRIVERS
from kube.store import Store
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.nvidia.nvidiadriver import NVIDIADriver

RBAC: Final = (
    PolicyRule(
        group=CLUSTER_POLICIES.group,
        resources=(CLUSTER_POLICIES.plural, NVIDIA_DRIVERS.plural),
        verbs=("list", "watch"),
    ),
)
"""Rights of a server that serves both kinds."""


@final
class OperatorObjects:
    """ClusterPolicies and NVIDIADrivers by name, and which policy counts."""

    def __init__(self) -> None:
        self.policy_store: Store[ClusterPolicy] = Store()
        """Sink of the informer of ClusterPolicies."""
        self.driver_store: Store[NVIDIADriver] = Store()
        """Sink of the informer of NVIDIADrivers."""
        self.changes: EventSource[str] = EventSource()
        """`<Kind>/<name>` of each object that changed."""
        self.policy_store.changes.subscribe(
            lambda name: self.changes.publish(f"{CLUSTER_POLICIES.kind}/{name}")
        )
        self.driver_store.changes.subscribe(
            lambda name: self.changes.publish(f"{NVIDIA_DRIVERS.kind}/{name}")
        )

    @property
    def policies(self) -> "Mapping[str, ClusterPolicy]":
        """The objects by name: a view, to be read at once."""
        return self.policy_store.by_name

    @property
    def drivers(self) -> "Mapping[str, NVIDIADriver]":
        """The objects by name: a view, to be read at once."""
        return self.driver_store.by_name

    @property
    def unread(self) -> tuple[str, ...]:
        """`<Kind> <name>` of each object that exists and cannot be read, by name.

        As long as there is one, it is unknown which policy counts, or which driver owns a node.
        """
        return (
            *(f"{CLUSTER_POLICIES.kind} {name}" for name in sorted(self.policy_store.unread)),
            *(f"{NVIDIA_DRIVERS.kind} {name}" for name in sorted(self.driver_store.unread)),
        )

    @property
    def active(self) -> ClusterPolicy | None:
        """The policy that counts, terminating or not; None without any."""
        return active_policy(self.policies.values())
