"""Reads of an upgrade's pass, each from the API server itself: a pass must see what the one before has written.

There is no cache of all pods: those of a node are listed while it is upgraded, or about to be.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

from api.driver_upgrade import AGENT_DEPLOY_LABEL, DRIVER_DEPLOY_LABEL, UPGRADE_STATE_LABEL
from api.foreign.core import Node
from api.names import ADOPTED_ANNOTATION, NodeName, PodUid
from api.well_known_labels import APP_COMPONENT_LABEL
from kube import resources
from kube.errors import KubeError, NotFound, Undecodable
from manifests.install.rbac import PolicyRule
from operands.upgrade.facts import UpgradeNode
from reconciler.driver_upgrade.daemons import (
    AgentDaemon,
    ObservedDriver,
    ObservedValidator,
    agent_daemons,
    driver_daemons,
    observed_driver,
    observed_validator,
    owner_uid,
    validator_pod,
)
from reconciler.driver_upgrade.eviction_budgets import eviction_answer
from reconciler.driver_upgrade.found_processes import with_driver_open
from reconciler.driver_upgrade.objects import (
    DRIVER_COMPONENT,
    DRIVER_SELECTOR,
    VALIDATOR_SELECTOR,
    ControllerRevision,
    DisruptionBudget,
    ResourceClaim,
    UpgradeDaemonSet,
    UpgradePod,
)
from reconciler.driver_upgrade.upgrading_nodes import UpgradingNode, upgrading_node
from reconciler.driver_upgrade.user_pods import claims_of, pod_on_node, uses_driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from api.foreign.core import Taint
    from api.kinds.gpunodeinventory import DriverProcess
    from kube.client import KubeClient
    from operands.upgrade.facts import EvictionAnswer, HostProcess, PodOnNode

    Refusal = Callable[[PodUid], tuple[EvictionAnswer, str] | None]
    """Returns the API server's refusal of a moment ago, if there was one."""
    PoolTaints = Callable[[NodeName], Iterable[Taint]]
    """Returns the taints that the pools of a node give it."""

RBAC: Final = (
    PolicyRule(resources=("nodes",), verbs=("get", "list")),
    PolicyRule(resources=("pods",), verbs=("list",)),
    PolicyRule(group="policy", resources=("poddisruptionbudgets",), verbs=("list",)),
    PolicyRule(group="resource.k8s.io", resources=("resourceclaims",), verbs=("get",)),
)
NAMESPACED_RBAC: Final = (
    PolicyRule(group="apps", resources=("controllerrevisions", "daemonsets"), verbs=("list",)),
)
AT_A_TIME: Final = 8
"""Nodes whose pods are read at a time."""
_PAGE: Final = 500
_SELECTORS: Final = (
    UPGRADE_STATE_LABEL,
    f"{DRIVER_DEPLOY_LABEL},!{UPGRADE_STATE_LABEL}",
    f"{AGENT_DEPLOY_LABEL},!{UPGRADE_STATE_LABEL},!{DRIVER_DEPLOY_LABEL}",
)
"""Selectors of nodes that are to have a driver, or that an upgrade has not put back yet; each is read once. Those
that an upgrade has begun with are the first, so that none of them is missed while another client labels it."""

T = TypeVar("T")
P = TypeVar("P")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCluster:
    """Nodes, and what of drivers is on them."""

    nodes: "Mapping[NodeName, UpgradingNode]"
    drivers: "Mapping[NodeName, Sequence[ObservedDriver]]"
    validators: "Mapping[NodeName, Sequence[ObservedValidator]]"

    def facts(
        self,
        name: "NodeName",
        pods: "tuple[PodOnNode, ...] | None" = None,
        *,
        found: "Iterable[DriverProcess]" = (),
        reported: str = "",
    ) -> UpgradeNode:
        """Return the facts of a node.

        Args:
            name: of one of the nodes.
            pods: the others on it; None: they are not read.
            found: what its agent finds with the driver open; of a node whose pods are read.
            reported: the reason of its entry in `status.upgrade`.
        """
        drivers, node = self.drivers.get(name, ()), self.nodes[name]
        obstacle = node.fact.driver_obstacle
        processes: tuple[HostProcess, ...] = ()
        if pods is not None:
            pods, processes = with_driver_open(pods, found, {driver.fact.uid for driver in drivers})
            obstacle = obstacle or node.shortage(pods)
        return replace(
            node.fact,
            driver_obstacle=obstacle,
            driver_pods=tuple(driver.fact for driver in drivers),
            validators=tuple(
                validator_pod(validator, drivers) for validator in self.validators.get(name, ())
            ),
            pods=pods,
            processes=processes,
            reported_reason=reported,
        )


@final
class UpgradeReader:
    """Reads the cluster, and pods of nodes."""

    def __init__(self, client: "KubeClient", namespace: str, pool_taints: "PoolTaints") -> None:
        self._client = client
        self._pool_taints = pool_taints
        self._namespace = namespace
        self._agents: Mapping[str, AgentDaemon] = {}
        """Agents as the last reading of the cluster found them."""
        self._held: frozenset[str] = frozenset()
        """UIDs of DaemonSets, by the same reading, whose pods NVIDIA's GPU Operator made."""

    async def cluster(self) -> ObservedCluster:
        """Return what is there.

        Raises:
            KubeError: a list failed, or an object cannot be read: one node less would be one more that may be away.
        """
        daemon_sets = await self._list(resources.DAEMON_SETS, UpgradeDaemonSet, _identity)
        self._agents = agent_daemons(daemon_sets)
        self._held = frozenset(
            item.metadata.uid
            for item in daemon_sets
            if item.metadata.annotation(ADOPTED_ANNOTATION)
        )
        daemons = driver_daemons(
            daemon_sets,
            await self._list(
                resources.CONTROLLER_REVISIONS, ControllerRevision, _identity, DRIVER_SELECTOR
            ),
        )

        def driver(pod: UpgradePod) -> "ObservedDriver | None":
            return observed_driver(pod, daemons)

        drivers = _by_node(await self._list(resources.PODS, UpgradePod, driver, DRIVER_SELECTOR))
        found = await self._list(resources.PODS, UpgradePod, observed_validator, VALIDATOR_SELECTOR)

        def node(node_object: Node) -> UpgradingNode:
            name = NodeName(node_object.metadata.name)
            owners = {pod.owner for pod in drivers.get(name, ())}
            agents, taints = self._agents.values(), self._pool_taints(name)
            return upgrading_node(node_object, daemons, owners, agents=agents, taints=taints)

        nodes = await self._nodes(node, drivers)
        return ObservedCluster(nodes=nodes, drivers=drivers, validators=_by_node(found))

    async def pods(
        self, nodes: "Iterable[NodeName]", refusal: "Refusal"
    ) -> "dict[NodeName, tuple[PodOnNode, ...]]":
        """Return the pods of nodes but for driver pods, with what their budgets say of an eviction now."""
        budgets = _Budgets(self._client)
        found: dict[NodeName, tuple[PodOnNode, ...]] = {}
        turns = asyncio.Semaphore(AT_A_TIME)

        async def read(name: "NodeName") -> None:
            async with turns:
                found[name] = await self._pods_of(name, budgets, refusal)

        try:
            async with asyncio.TaskGroup() as group:
                for name in nodes:
                    group.create_task(read(name), name=f"pods of {name}")
        except* KubeError as errors:
            raise errors.exceptions[0] from None
        return found

    async def _pods_of(
        self, name: "NodeName", budgets: "_Budgets", refusal: "Refusal"
    ) -> "tuple[PodOnNode, ...]":
        listing = await self._client.list_(
            resources.PODS, UpgradePod, field_selector=f"spec.nodeName={name}", page_size=_PAGE
        )
        if listing.undecodable:
            raise Undecodable(f"a pod on node {name} cannot be read")
        found: list[PodOnNode] = []
        for pod in listing.items:
            meta = pod.metadata
            if meta.namespace == self._namespace and (
                meta.label(APP_COMPONENT_LABEL) == DRIVER_COMPONENT
            ):
                continue
            if not pod.is_active and not pod.is_terminating:
                continue
            has_claim = await self._has_claim(pod)
            namespace_budgets = await budgets.of(meta.namespace)

            def read_eviction(
                asked: UpgradePod,
                namespace_budgets: "Sequence[DisruptionBudget]" = namespace_budgets,
            ) -> "tuple[EvictionAnswer, str]":
                reported = refusal(_uid(asked))
                return (
                    reported if reported is not None else eviction_answer(asked, namespace_budgets)
                )

            agent = self._agents.get(owner_uid(pod))
            found.append(
                pod_on_node(
                    pod,
                    namespace=self._namespace,
                    agent="" if agent is None else agent.name,
                    has_claim=has_claim,
                    is_held=owner_uid(pod) in self._held,
                    read_eviction=read_eviction,
                )
            )
        return tuple(found)

    async def _has_claim(self, pod: UpgradePod) -> bool:
        for name in sorted(set(claims_of(pod))):
            try:
                claim = await self._client.get(
                    resources.RESOURCE_CLAIMS, ResourceClaim, name, namespace=pod.metadata.namespace
                )
            except NotFound as error:
                if error.names_object:
                    continue
                raise  # served in another version only: it is unknown which driver it is of
            if uses_driver(claim):
                return True
        return False

    async def _nodes(
        self, project: "Callable[[Node], UpgradingNode]", drivers: "Iterable[NodeName]"
    ) -> "dict[NodeName, UpgradingNode]":
        found: dict[NodeName, UpgradingNode] = {}
        for selector in _SELECTORS:
            listing = await self._client.list_as(
                resources.NODES, Node, project, label_selector=selector, page_size=_PAGE
            )
            if listing.undecodable:
                raise Undecodable(f"a node with label {selector} cannot be read")
            found.update((item.fact.name, item) for item in listing.items)
        for name in sorted(set(drivers) - found.keys()):
            try:
                found[name] = project(await self._client.get(resources.NODES, Node, name))
            except NotFound:
                continue
        return found

    async def _list(  # noqa: PLR0917  # what is read, and of it what is kept
        self,
        resource: "resources.Resource",
        type_: type[T],
        project: "Callable[[T], P | None]",
        selector: str | None = None,
    ) -> list[P]:
        listing = await self._client.list_as(
            resource,
            type_,
            project,
            namespace=self._namespace,
            label_selector=selector,
            page_size=_PAGE,
        )
        if listing.undecodable:
            raise Undecodable(f"one of {resource.plural} cannot be read")
        return listing.items


@final
class _Budgets:
    """Disruption budgets of one moment, by namespace; each is listed once."""

    def __init__(self, client: "KubeClient") -> None:
        self._client = client
        self._found: dict[str, Sequence[DisruptionBudget]] = {}

    async def of(self, namespace: str) -> "Sequence[DisruptionBudget]":
        if namespace not in self._found:
            listing = await self._client.list_(
                resources.POD_DISRUPTION_BUDGETS, DisruptionBudget, namespace=namespace
            )
            if listing.undecodable:
                raise Undecodable(f"a disruption budget of namespace {namespace} cannot be read")
            self._found[namespace] = listing.items
        return self._found[namespace]


class _BoundPod(Protocol):
    @property
    def node(self) -> NodeName: ...


_AnyPod = TypeVar("_AnyPod", bound=_BoundPod)


def _by_node(pods: "Iterable[_AnyPod]") -> "dict[NodeName, list[_AnyPod]]":
    found: dict[NodeName, list[_AnyPod]] = defaultdict(list)
    for pod in pods:
        found[pod.node].append(pod)
    return dict(found)


def _identity(item: T) -> T:
    return item


def _uid(pod: UpgradePod) -> "PodUid":
    return PodUid(pod.metadata.uid)
