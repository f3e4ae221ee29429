"""What NVIDIA's GPU Operator has in a cluster, and how it is handed over to this control plane.

An object of the operator is one whose controller is the ClusterPolicy that counts, or an NVIDIADriver. In our namespace it
gets the label of its state; of any other kind than a DaemonSet it loses its owner, since an order and not the garbage
collector removes it. Nodes are marked so that the operator's labels count as ours. Whatever is handed over already stays as
it is, so that the hand-over can be run again.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from api.foreign.core import Node
from api.kinds.nvidia.clusterpolicy import ClusterPolicy, active_policy
from api.names import (
    DEPLOY_LABELS_ANNOTATION,
    OPERAND_LABEL,
    POLICY_DRIVER_LABEL,
    UPGRADE_ENABLED_ANNOTATION,
)
from api.well_known_labels import APP_COMPONENT_LABEL
from kube.errors import NotFound
from kube.resources import CLUSTER_POLICIES, DAEMON_SETS, DEPLOYMENTS, NODES, NVIDIA_DRIVERS
from operands.asset_files import load_assets
from operands.nvidia.adoption import APP, NAMED_AFTER_DRIVERS, component_of
from operands.nvidia.deploy_record import ADOPT, adopted, parse_record
from operands.nvidia.driver_owners import owner_value
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_states import POLICY_STATES, STATE_NAMES
from operands.nvidia.states import driver
from reconciler.node_software.objects import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kube.client import KubeClient
    from kube.resources import Resource

Json = dict[str, Any]

_ASSETS: Final = [(state, asset) for state in STATE_NAMES for asset in load_assets(state)]
_STATE_BY_OBJECT: Final = {
    (asset["kind"], asset["metadata"]["name"]): state
    for state, asset in _ASSETS
    if asset["kind"] != "DaemonSet"
}
_STATE_BY_COMPONENT: Final = {
    component_of(asset): state for state, asset in _ASSETS if asset["kind"] == "DaemonSet"
} | dict.fromkeys(NAMED_AFTER_DRIVERS, driver.NAME)
_OPERATOR: Final = "gpu-operator"
_RELEASE: Final = "meta.helm.sh/release-name"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorObject:
    """An object of the operator, and the state that it belongs to."""

    resource: "Resource"
    name: str
    namespace: str | None
    state: str
    driver: str = ""
    """The NVIDIADriver that is its owner."""
    is_off: bool = False
    """Whether the ClusterPolicy switches the state off, so that the object goes."""

    @property
    def ref(self) -> str:
        return f"{self.resource.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorInstallation:
    """What there is to hand over."""

    policy: str
    operators: tuple[tuple[str, str, str], ...] = ()
    """Namespace and name of each Deployment of the operator that runs, and the name of its Helm release, if it has one."""
    objects: list[OperatorObject] = field(default_factory=list)
    """Those to hand over, DaemonSets at last."""
    elsewhere: list[OperatorObject] = field(default_factory=list)
    """DaemonSets that do what a state does, and cannot be handed over."""
    nodes: tuple[str, ...] = ()
    """Nodes with labels that the operator set."""


async def find_operator(client: "KubeClient", namespace: str) -> OperatorInstallation | None:
    """Return what the operator has; None without a ClusterPolicy.

    Args:
        client: of the API server.
        namespace: of this control plane.

    Raises:
        KubeError: something cannot be read.
    """
    policies = await client.list_(CLUSTER_POLICIES, ClusterPolicy)
    policy = active_policy(policies.items)
    if policy is None:
        return None
    drivers = await _listed(client, NVIDIA_DRIVERS)
    owners = {item["metadata"]["uid"]: str(item["metadata"]["name"]) for item in drivers}
    operands = PolicyOperands(name=policy.metadata.name, spec=policy.spec, namespace=namespace)
    off = {state.name for state in POLICY_STATES if state.why_off(operands)}
    own: list[OperatorObject] = []
    elsewhere: list[OperatorObject] = []
    daemon_sets = await client.list_(DAEMON_SETS, Json, label_selector=f"{APP},!{OPERAND_LABEL}")
    for item in daemon_sets.items:
        state = _STATE_BY_COMPONENT.get(component_of(item), "")
        if not state:
            continue
        owner = _controller(item)
        found = OperatorObject(
            resource=DAEMON_SETS,
            name=item["metadata"]["name"],
            namespace=item["metadata"]["namespace"],
            state=state,
            driver=owners.get(owner, ""),
            is_off=state in off and owner not in owners,
        )
        is_own = found.namespace == namespace and owner in {policy.metadata.uid, *owners}
        (own if is_own else elsewhere).append(found)
    left = {item.state for item in elsewhere}
    others = await _objects(client, namespace, policy.metadata.uid)
    objects = [*(item for item in others if item.state not in left), *own]
    return OperatorInstallation(
        policy=policy.metadata.name,
        operators=tuple(await _operators(client)),
        objects=objects,
        elsewhere=elsewhere,
        nodes=tuple(await _nodes(client)),
    )


async def hand_over(client: "KubeClient", found: OperatorInstallation) -> None:
    """Mark nodes and objects for the control plane, which goes on with them.

    Raises:
        KubeError: one of them was not written; the command can be run again.
    """
    for node in found.nodes:
        annotations = {DEPLOY_LABELS_ANNOTATION: ADOPT}
        await client.merge_patch(NODES, {"metadata": {"annotations": annotations}}, name=node)
    for item in found.objects:
        labels = {OPERAND_LABEL: item.state}
        if item.driver:
            labels[POLICY_DRIVER_LABEL] = owner_value(item.driver)
        metadata: Json = {"labels": labels}
        if item.resource != DAEMON_SETS:
            metadata["ownerReferences"] = None
        await client.merge_patch(
            item.resource, {"metadata": metadata}, name=item.name, namespace=item.namespace
        )


async def _operators(client: "KubeClient") -> "list[tuple[str, str, str]]":
    listing = await client.list_(
        DEPLOYMENTS, Json, label_selector=f"{APP_COMPONENT_LABEL}={_OPERATOR}"
    )
    return [
        (meta["namespace"], meta["name"], (meta.get("annotations") or {}).get(_RELEASE, ""))
        for meta, spec in ((item["metadata"], item["spec"]) for item in listing.items)
        if spec.get("replicas", 1)
    ]


async def _objects(client: "KubeClient", namespace: str, policy_uid: str) -> "list[OperatorObject]":
    """Return the objects beside DaemonSets."""
    found = []
    for kind, resource in RESOURCES.items():
        if kind == "DaemonSet":
            continue
        where = namespace if resource.namespaced else None
        for item in await _listed(client, resource, namespace=where):
            name = item["metadata"]["name"]
            if (kind, name) in _STATE_BY_OBJECT and _controller(item) == policy_uid:
                state = _STATE_BY_OBJECT[kind, name]
                found.append(
                    OperatorObject(resource=resource, name=name, namespace=where, state=state)
                )
    return found


async def _listed(
    client: "KubeClient", resource: "Resource", *, namespace: str | None = None
) -> list[Json]:
    """Return the objects of a kind without the label of a state; the cluster may lack the kind."""
    selector = f"!{OPERAND_LABEL}"
    try:
        listing = await client.list_(resource, Json, namespace=namespace, label_selector=selector)
    except NotFound:
        if not await client.serves(resource):
            return []
        raise
    return listing.items


async def _nodes(client: "KubeClient") -> "Iterator[str]":
    listing = await client.list_(NODES, Node)
    return (item.metadata.name for item in listing.items if _is_to_be_marked(item))


def _is_to_be_marked(node: Node) -> bool:
    annotations = node.metadata.annotations or {}
    record = annotations.get(DEPLOY_LABELS_ANNOTATION, "")
    enabled = annotations.get(UPGRADE_ENABLED_ANNOTATION, "")
    theirs = adopted({**(node.metadata.labels or {}), UPGRADE_ENABLED_ANNOTATION: enabled})
    return record != ADOPT and bool(theirs.keys() - parse_record(record).keys())


def _controller(item: Json) -> str:
    """Return the UID of the object's controller."""
    references = item["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in references if owner.get("controller")), "")
