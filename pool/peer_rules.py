"""Rules of a pod on the nodes of other pods: required and preferred pod affinity, anti-affinity and topology spread.

`pool.peer_fit` decides by them.
"""

from enum import Enum

import msgspec

from api.well_known_labels import HOSTNAME_LABEL


class PeerKind(Enum):
    """How the places of other pods decide about those of a pod."""

    AFFINITY = "podAffinity"
    ANTI_AFFINITY = "podAntiAffinity"
    SPREAD = "topologySpreadConstraints"

    @property
    def field(self) -> str:
        """Path of the pod's field that has such rules."""
        return f"spec.{self.value}" if self is PeerKind.SPREAD else f"spec.affinity.{self.value}"


class PeerRule(msgspec.Struct, frozen=True, gc=False):
    """Other pods, and the label of their nodes by which a pod must be near them, apart from them, or spread among them."""

    kind: PeerKind
    key: str
    """Key of the label: `kubernetes.io/hostname`, a zone."""
    selector: str | None
    """Selector of the pods, in the API's text form; None selects none."""
    namespaces: tuple[str, ...] = ()
    namespace_selector: str | None = None
    """Namespace selector of further namespaces."""
    counts_itself: bool = False
    """The pod is one of them."""
    max_skew: int = 1
    min_domains: int = 1
    honors_taints: bool = False
    """Nodes whose taints keep the pod away have no part in spreading."""
    weight: int = 0
    """Weight of a preference; 0: required."""

    def __str__(self) -> str:
        return f"{self.kind.value} by {self.key}"

    @property
    def selects_namespaces(self) -> bool:
        """Whether labels of namespaces decide which pods these are."""
        return bool(self.namespace_selector)

    @property
    def forbids_two_on_a_node(self) -> bool:
        """Whether two pods with this rule are never on one node."""
        is_by_node = self.key == HOSTNAME_LABEL
        return is_by_node and self.kind is PeerKind.ANTI_AFFINITY and self.counts_itself


class Peer(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """What rules about other pods select a pod by, and the rules by which it keeps others away; equal for pods of a workload."""

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted."""
    anti_affinity: tuple[PeerRule, ...] = ()
    """Its required podAntiAffinity."""
