"""Projections of Karpenter's kinds (karpenter.sh/v1)."""

from typing import Final

import msgspec

from api.foreign.core import NodeTaint
from api.meta import Condition, Model, ObjectMeta

NODE_POOL_LABEL: Final = "karpenter.sh/nodepool"
CAPACITY_TYPE_LABEL: Final = "karpenter.sh/capacity-type"
REGISTERED_LABEL: Final = "karpenter.sh/registered"
INITIALIZED_LABEL: Final = "karpenter.sh/initialized"
DISRUPTED_TAINT: Final = "karpenter.sh/disrupted"
"""NoSchedule: Karpenter is about to remove the node."""
UNREGISTERED_TAINT: Final = "karpenter.sh/unregistered"
DO_NOT_DISRUPT_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
LAUNCHED: Final = "Launched"
REGISTERED: Final = "Registered"
INITIALIZED: Final = "Initialized"


class NodeRequirement(Model, frozen=True):
    """A requirement on a label; operators are those of a node selector, and Gte, Lte, Gt and Lt."""

    key: str
    operator: str
    values: list[str] | None = None
    min_values: int | None = None


class ResourceRequests(Model, frozen=True):
    requests: dict[str, str | int | float] | None = None


class NodeClaimSpec(Model, frozen=True):
    requirements: list[NodeRequirement] | None = None
    resources: ResourceRequests = ResourceRequests()
    taints: list[NodeTaint] | None = None
    startup_taints: list[NodeTaint] | None = None
    expire_after: str = ""


class NodeClaimStatus(Model, frozen=True):
    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    capacity: dict[str, str | int | float] | None = None
    allocatable: dict[str, str | int | float] | None = None
    conditions: list[Condition] | None = None


class NodeClaim(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeClaimSpec = NodeClaimSpec()
    status: NodeClaimStatus = NodeClaimStatus()


class NodeTemplateMetadata(Model, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NodeTemplate(Model, frozen=True):
    """`spec.template` of a NodePool."""

    metadata: NodeTemplateMetadata = NodeTemplateMetadata()
    spec: NodeClaimSpec = NodeClaimSpec()


class Disruption(Model, frozen=True):
    consolidation_policy: str = ""
    consolidate_after: str = ""


class NodePoolSpec(Model, frozen=True):
    template: NodeTemplate = NodeTemplate()
    disruption: Disruption = Disruption()
    limits: dict[str, str | int | float] | None = None
    replicas: int | None = None
    """Set: a static NodePool (gate StaticCapacity)."""


class NodePoolStatus(Model, frozen=True):
    resources: dict[str, str | int | float] | None = None
    """What its nodes have together, with `nodes`."""
    conditions: list[Condition] | None = None


class NodePool(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()
