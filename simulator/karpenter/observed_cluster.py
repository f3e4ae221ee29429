"""What Karpenter reads: pods, nodes, NodeClaims and NodePools, and what it remembers between two looks."""

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.foreign.core import Node, NodeSpec, NodeStatus, Pod
from api.foreign.karpenter import (
    INITIALIZED,
    LAUNCHED,
    NODE_POOL_LABEL,
    REGISTERED,
    Disruption,
    NodePoolStatus,
)
from api.meta import Condition, Model, ObjectMeta
from api.quantity import parse_milli
from api.status_conditions import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from simulator.karpenter.instance_types import InstanceType
    from simulator.karpenter.karpenter_settings import CloudFaults, KarpenterTimes

Json = dict[str, Any]
Amounts = dict[str, int]
"""Resource -> thousandths."""

TERMINATION_FINALIZER: Final = "karpenter.sh/termination"
PODS_RESOURCE: Final = "pods"


class SeenPod(Pod, frozen=True):
    """A pod that Karpenter may count."""

    @property
    def is_provisionable(self) -> bool:
        """Return whether Karpenter counts the pod as demand."""
        return (
            any(
                (condition.type, condition.reason) == ("PodScheduled", "Unschedulable")
                for condition in self.status.conditions or ()
            )
            and not self.spec.node_name
            and not self.status.nominated_node_name
            and not self.is_terminal
            and self.metadata.deletion_timestamp is None
            and not self.is_of_node
        )

    @property
    def is_of_node(self) -> bool:
        """Return whether it comes and goes with nodes: of a DaemonSet, or of the Node itself."""
        owners = self.metadata.owner_references or ()
        return any(owner.kind in {"DaemonSet", "Node"} for owner in owners)

    @property
    def keeps_node(self) -> bool:
        """Return whether a node is not empty because of it; a very low priority makes an eviction free."""
        cost = 1 + (self.spec.priority or 0) / 2**25
        return (
            not self.is_terminal
            and self.metadata.deletion_timestamp is None
            and not self.is_of_node
            and cost > 0
        )

    @property
    def requests(self) -> Amounts:
        """Return what it requests; a limit without a request is the request."""
        return {**requests_of(self), PODS_RESOURCE: 1000}


class _SeenNodeSpec(NodeSpec, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class SeenNode(Node, frozen=True):
    spec: _SeenNodeSpec = _SeenNodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def allocatable(self) -> Amounts:
        return amounts(self.status.allocatable)


class _SeenClaimStatus(Model, frozen=True):
    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    allocatable: dict[str, str | int | float] | None = None
    conditions: list[Condition] | None = None
    last_pod_event_time: str | None = None


class SeenClaim(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Json = msgspec.field(default_factory=dict)
    status: _SeenClaimStatus = _SeenClaimStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def node_pool(self) -> str:
        return self.metadata.label(NODE_POOL_LABEL) or ""

    @property
    def is_going(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def condition(self, type_: str) -> Condition | None:
        return next((item for item in self.status.conditions or () if item.type == type_), None)

    def has(self, type_: str) -> bool:
        found = self.condition(type_)
        return found is not None and found.status == "True"

    def since(self, type_: str) -> dt.datetime | None:
        """Return the time of a condition's last transition."""
        found = self.condition(type_)
        return parse_time(found.last_transition_time) if found else None

    @property
    def is_launched(self) -> bool:
        return self.has(LAUNCHED)

    @property
    def is_registered(self) -> bool:
        return self.has(REGISTERED)

    @property
    def is_initialized(self) -> bool:
        return self.has(INITIALIZED)


class _SeenNodePoolSpec(Model, frozen=True):
    template: Json = msgspec.field(default_factory=dict)
    disruption: Disruption = Disruption()
    limits: dict[str, str | int | float] | None = None
    weight: int | None = None
    replicas: int | None = None


class SeenNodePool(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _SeenNodePoolSpec = _SeenNodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> "Mapping[str, str]":
        found: dict[str, str] = (self.spec.template.get("metadata") or {}).get("labels") or {}
        return found

    @property
    def node_spec(self) -> Json:
        """Return `spec.template.spec`: what NodeClaims have of it."""
        found: Json = self.spec.template.get("spec") or {}
        return found


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSight:
    """All objects at one time."""

    pods: "Mapping[str, SeenPod]"
    """By uid."""
    nodes: "Mapping[str, SeenNode]"
    claims: "Mapping[str, SeenClaim]"
    node_pools: "Mapping[str, SeenNodePool]"
    types: "Mapping[str, InstanceType]"

    def node_of(self, claim: SeenClaim) -> SeenNode | None:
        """Return the Node whose provider id is the claim's."""
        wanted = claim.status.provider_id
        if not wanted:
            return None
        return next((node for node in self.nodes.values() if node.spec.provider_id == wanted), None)

    def claims_of(self, node_pool: str) -> list[SeenClaim]:
        return [claim for claim in self.claims.values() if claim.node_pool == node_pool]

    def pods_on(self, node: str) -> list[SeenPod]:
        return [pod for pod in self.pods.values() if pod.spec.node_name == node]


@final
@dataclass(slots=True, kw_only=True)
class Memory:
    """What is in no object; a restart forgets it."""

    batch_from: dt.datetime | None = None
    batch_until: dt.datetime | None = None
    triggered: dict[str, tuple[str, dt.datetime]] = field(default_factory=dict)
    # uid of a pod -> its version, and when it last made the batch wait
    awaited: set[str] = field(default_factory=set)
    # names of NodeClaims that were created and are not seen yet
    nominated: dict[str, dt.datetime] = field(default_factory=dict)
    # node -> until when it is kept for a pod
    unavailable: dict[tuple[str, str, str], dt.datetime] = field(default_factory=dict)
    # instance type, zone, capacity type -> until when it is not tried again
    recorded: dict[tuple[str, str, str], dt.datetime] = field(default_factory=dict)
    # uid, reason, note of an Event -> until when it is not repeated
    on_node: dict[str, tuple[str, str]] = field(default_factory=dict)
    # uid of a bound pod -> its node, and what of its life Karpenter noticed last
    validating: tuple[dt.datetime, tuple[str, ...]] | None = None
    # end of the validation, and the empty NodeClaims
    looked: dt.datetime | None = None
    # last look for nodes to disrupt
    launches: dict[str, dt.datetime] = field(default_factory=dict)
    # uid of a NodeClaim -> when its launch began
    created: int = 0
    # number of NodeClaims, for their names


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All that a decision is made of."""

    sight: ClusterSight
    memory: Memory
    now: dt.datetime
    times: "KarpenterTimes"
    faults: "CloudFaults"

    def has_passed(self, since: dt.datetime | None, seconds: float) -> bool:
        return since is not None and self.now - since >= dt.timedelta(seconds=seconds)

    def after(self, seconds: float) -> dt.datetime:
        return self.now + dt.timedelta(seconds=seconds)


def amounts(quantities: "Mapping[str, str | int | float] | None") -> Amounts:
    return {name: parse_milli(str(value)) for name, value in (quantities or {}).items()}


def requests_of(pod: Pod) -> Amounts:
    """Return the requests of a pod's containers together, or of its largest init container."""
    containers: Amounts = {}
    for container in pod.spec.containers or ():
        if container.resources is not None:
            add(
                containers,
                amounts(
                    {**(container.resources.limits or {}), **(container.resources.requests or {})}
                ),
            )
    for container in pod.spec.init_containers or ():
        if container.resources is not None:
            own = amounts(
                {**(container.resources.limits or {}), **(container.resources.requests or {})}
            )
            for name, amount in own.items():
                containers[name] = max(containers.get(name, 0), amount)
    return containers


def add(total: Amounts, more: "Mapping[str, int]") -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def fits(requested: "Mapping[str, int]", available: "Mapping[str, int]") -> bool:
    """Return whether a request fits; a resource that is absent is zero."""
    return all(amount <= available.get(name, 0) for name, amount in requested.items() if amount)


def total_of(many: "Iterable[Mapping[str, int]]") -> Amounts:
    total: Amounts = {}
    for item in many:
        add(total, item)
    return total
