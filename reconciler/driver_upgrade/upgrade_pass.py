"""`driver.upgrade`: one pass over all nodes, which reads, decides (`operands.upgrade`), writes and reports, in this order.

Nothing is kept from pass to pass but what may be forgotten: which evictions were refused a moment ago, and which pods a node
that waits had. A read that fails ends the pass before anything is written. A node whose write fails rests for a growing
time, and no other one waits for it. The tasks of a leader that is deposed are cancelled: every action may be the last.
"""

import asyncio
import datetime as dt
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from api.driver_upgrade import UPGRADE_STATE_LABEL, UpgradeState
from kube.backoff import Backoff
from kube.errors import KubeError, NotFound
from operands.nvidia.driver_owners import owner_value
from operands.upgrade.actions import WaitUntil
from operands.upgrade.cluster import CLUSTER_POLICY, plan_upgrades
from operands.upgrade.facts import UpgradeTimes
from operands.upgrade.out_of_service import is_decided_by_pods
from operands.upgrade.parameters import OFF
from operands.upgrade.record import read_record
from reconciler.controller_spec import OPERANDS, ControllerContext, ControllerSpec, Trigger
from reconciler.driver_upgrade import node_actions, reader, status
from reconciler.driver_upgrade.eviction_budgets import RefusedEvictions
from reconciler.driver_upgrade.found_processes import found_on
from reconciler.driver_upgrade.node_actions import NodeActions, OvertakenError
from reconciler.driver_upgrade.owners import upgrade_owners
from reconciler.driver_upgrade.reader import UpgradeReader
from reconciler.driver_upgrade.reports import UpgradeReports, upgrade_reports
from reconciler.driver_upgrade.status import UpgradeStatus
from reconciler.operator_gauges import UpgradeFigures, show_upgrades
from reconciler.pool.index_changes import NODES as INDEX_NODES
from reconciler.sinks.agent_reports import AgentReports

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from api.clock import Instant
    from api.foreign.core import Taint
    from api.kinds.gpunodeinventory import DriverProcess
    from api.kinds.nvidia.operator_status import NodeUpgradeStatus
    from api.names import NodeName, PodUid
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from operands.upgrade.actions import NodeUpgrade
    from operands.upgrade.cluster import OwnerUpgrade
    from operands.upgrade.facts import EvictionAnswer, PodOnNode, UpgradeNode
    from operands.upgrade.parameters import UpgradeParameters
    from reconciler.driver_upgrade.reader import ObservedCluster, PoolTaints
    from reconciler.sinks.operator_objects import OperatorObjects

KEY: Final = "upgrade"
BUSY_S: Final = 5.0
"""Seconds between two passes while a node is being upgraded, or is to be: pods leave and drivers start without any
change of the Node."""
PAUSE_S: Final = 20.0
"""A new revision of a driver's DaemonSet is seen within this."""
GATHER_S: Final = 1.0
"""Changes of nodes within this cause one pass."""
SHARE: Final = 0.2
"""Share of the time that passes may read: each lists every node with a driver, and most changes of nodes are none
for it.
What they write ends by itself, and is not counted."""
AT_A_TIME: Final = 8
"""Nodes that are written at a time."""
FIRST_PAUSE_S: Final = 5.0
LONGEST_PAUSE_S: Final = 300.0
"""Longest pause, in seconds, of a node whose write failed."""
CANDIDATES: Final = 32
"""Nodes that wait for their turn, and whose pods are read in one pass: that decides about their order only."""
CANDIDATE_S: Final = 300.0
"""How long the pods of a node that waits are remembered."""

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeTools:
    """What a pass asks besides."""

    namespace: str
    """Namespace of the operands."""
    pools: "Callable[[], Collection[str]]"
    """Returns the names of the GPUPools."""
    now: "Callable[[], Instant]"
    pool_taints: "PoolTaints" = lambda _node: ()
    found: "Callable[[NodeName], Iterable[DriverProcess]]" = lambda _node: ()
    """Returns what a node's agent finds with the driver open, as long as the agent is heard."""


@final
class DriverUpgrades:
    """Upgrades the drivers of all nodes of all owners."""

    def __init__(
        self,
        client: "KubeClient",
        recorder: "EventRecorder",
        *,
        objects: "OperatorObjects",
        reports: UpgradeReports,
        tools: UpgradeTools,
    ) -> None:
        """Take ClusterPolicies and NVIDIADrivers, and what gets the outcome of each pass."""
        self._objects = objects
        self._reports = reports
        self._pools = tools.pools
        self._found = tools.found
        self._now = now = tools.now
        self._reader = UpgradeReader(client, tools.namespace, tools.pool_taints)
        self._refused = RefusedEvictions()
        self._status = UpgradeStatus(client)
        self._actions = NodeActions(
            client, recorder, self._refused, monotonic=lambda: now().monotonic
        )
        self._led_from: float | None = None
        # monotonic: a wall clock that is set back would put off every deadline
        self._candidates: dict[NodeName, tuple[float, tuple[PodOnNode, ...]]] = {}
        # node in upgrade-required -> when its pods were read, and the pods
        self._pauses: dict[NodeName, tuple[Backoff, float]] = {}
        # node whose last write failed -> until when it rests
        self._pauses_until = 0.0

    async def reconcile(self, _key: str) -> float | None:
        """Make one pass, unless the last one was a moment ago; return the seconds until the next one."""
        started = self._now().monotonic
        if started < self._pauses_until:
            return self._pauses_until - started
        if self._objects.unread or self._objects.active is None:
            # Which upgrade goes on is unknown: every node stays as it is, in service or out of it.
            return PAUSE_S
        if self._led_from is None:
            self._led_from = started
            self._reports.seed(self._written())
        owners = upgrade_owners(
            self._objects.policies.values(), self._objects.drivers.values(), self._pools()
        )
        seen = await self._reader.cluster()
        upgrades = await self._decide(owners, seen)
        read_at = self._now().monotonic
        self._pauses_until = read_at + min((read_at - started) * (1 / SHARE - 1), BUSY_S)
        failed = await self._execute(upgrades, seen)
        self._record(owners, upgrades, failed)
        await self._status.write(self._objects, self._reports)
        return self._next_s(upgrades)

    async def _decide(
        self, owners: "Mapping[str, UpgradeParameters]", seen: "ObservedCluster"
    ) -> "dict[str, OwnerUpgrade]":
        """Return what is done now; pods are read where they decide, and of some nodes that wait where one could start."""
        entries = self._reports.by_node()
        reasons = {name: entry.reason for name, entry in entries.items()}
        facts = {name: seen.facts(name, reported=reasons.get(name, "")) for name in seen.nodes}
        read = [name for name, node in facts.items() if self._is_decided_by_pods(node)]
        pods = await self._reader.pods(sorted(read), self._refusal)
        for name, found in self._cached_pods(facts).items():
            pods.setdefault(name, found)

        def plan() -> "dict[str, OwnerUpgrade]":
            now = self._now()
            led_for_s = 0.0 if self._led_from is None else now.monotonic - self._led_from
            times = UpgradeTimes(
                now=now.utc, leading_since=now.utc - dt.timedelta(seconds=led_for_s)
            )
            nodes = (
                seen.facts(
                    name,
                    pods.get(name),
                    found=self._found(name) if name in pods else (),
                    reported=reasons.get(name, ""),
                )
                for name in facts
            )
            return plan_upgrades(owners, nodes, times)

        upgrades = plan()
        unread = [
            item.progress.node
            for owner, upgrade in upgrades.items()
            if owners.get(owner, OFF).auto_upgrade and upgrade.counts.available
            for item in upgrade.nodes
            if _is_waiting(facts[item.progress.node]) and item.progress.node not in pods
        ]
        if not unread:
            return upgrades
        waiting = await self._reader.pods(unread[:CANDIDATES], self._refusal)
        read_at = self._now().monotonic
        self._candidates |= {name: (read_at, item) for name, item in waiting.items()}
        pods |= waiting
        return plan()

    def _is_decided_by_pods(self, node: "UpgradeNode") -> bool:
        return is_decided_by_pods(read_record(node, self._now().utc))

    def _refusal(self, uid: "PodUid") -> "tuple[EvictionAnswer, str] | None":
        return self._refused.answer(uid, self._now().monotonic)

    def _cached_pods(
        self, facts: "Mapping[NodeName, UpgradeNode]"
    ) -> "dict[NodeName, tuple[PodOnNode, ...]]":
        oldest = self._now().monotonic - CANDIDATE_S
        self._candidates = {
            name: (read_at, pods)
            for name, (read_at, pods) in self._candidates.items()
            if name in facts and _is_waiting(facts[name]) and read_at >= oldest
        }
        return {name: pods for name, (_, pods) in self._candidates.items()}

    async def _execute(
        self, upgrades: "Mapping[str, OwnerUpgrade]", seen: "ObservedCluster"
    ) -> "set[NodeName]":
        """Carry out the actions of all nodes, some at a time; return the nodes that are not where they should be."""
        answers = [item for upgrade in upgrades.values() for item in upgrade.nodes]
        self._pauses = {name: pause for name, pause in self._pauses.items() if name in seen.nodes}
        failed: set[NodeName] = set()
        turns = asyncio.Semaphore(AT_A_TIME)

        async def carry_out(answer: "NodeUpgrade") -> None:
            async with turns:
                if not await self._carry_out(answer, seen):
                    failed.add(answer.progress.node)

        async with asyncio.TaskGroup() as group:
            for answer in answers:
                if any(not isinstance(action, WaitUntil) for action in answer.actions):
                    group.create_task(carry_out(answer), name=f"upgrade of {answer.progress.node}")
        return failed

    async def _carry_out(self, answer: "NodeUpgrade", seen: "ObservedCluster") -> bool:
        name = answer.progress.node
        backoff, until = self._pauses.get(name, (None, 0.0))
        if until > self._now().monotonic:
            return False
        try:
            await self._actions.carry_out(answer, seen.nodes[name])
        except NotFound:
            return False
        except OvertakenError as error:
            _log.info("driver upgrade was overtaken", node=name, error=str(error))
            return False
        except KubeError as error:
            backoff = backoff or Backoff(base_s=FIRST_PAUSE_S, cap_s=LONGEST_PAUSE_S)
            pause_s = backoff.fail()
            self._pauses[name] = (backoff, self._now().monotonic + pause_s)
            _log.warning(
                "driver upgrade cannot go on",
                node=name,
                state=answer.progress.state.value,
                retry_in_s=round(pause_s, 1),
                error=str(error),
            )
            return False
        self._pauses.pop(name, None)
        return True

    def _record(
        self,
        owners: "Mapping[str, UpgradeParameters]",
        upgrades: "Mapping[str, OwnerUpgrade]",
        failed: "Collection[NodeName]",
    ) -> None:
        before = self._reports.by_node()
        entries = {
            owner: tuple(_entries(upgrade, failed, before)) for owner, upgrade in upgrades.items()
        }
        answers = [node.progress for upgrade in upgrades.values() for node in upgrade.nodes]
        self._reports.replace_all(
            entries, {owner: upgrade.counts for owner, upgrade in upgrades.items()}
        )
        show_upgrades(
            UpgradeFigures(
                is_automatic=any(parameters.auto_upgrade for parameters in owners.values()),
                counts=tuple(upgrade.counts for upgrade in upgrades.values()),
                nodes=Counter(answer.state for answer in answers),
                overdue=Counter(answer.state for answer in answers if answer.is_overdue),
            )
        )

    def _next_s(self, upgrades: "Mapping[str, OwnerUpgrade]") -> float:
        now = self._now().utc
        answers = [node for upgrade in upgrades.values() for node in upgrade.nodes]
        is_busy = any(answer.progress.state in _BUSY for answer in answers)
        waits = [
            max(0.0, (action.until - now).total_seconds())
            for answer in answers
            for action in answer.actions
            if isinstance(action, WaitUntil)
        ]
        return min((BUSY_S if is_busy else PAUSE_S, *waits))

    def _written(self) -> "dict[str, tuple[NodeUpgradeStatus, ...]]":
        """Return the entries that an earlier leader wrote."""
        active = self._objects.active
        found = {CLUSTER_POLICY: tuple((active.status.upgrade or ()) if active else ())}
        for name, driver in self._objects.drivers.items():
            found[owner_value(name)] = tuple(driver.status.upgrade or ())
        return found


_BUSY: Final = frozenset(UpgradeState) - {
    UpgradeState.UNKNOWN,
    UpgradeState.UPGRADE_DONE,
    UpgradeState.UPGRADE_FAILED,
    UpgradeState.NODE_MAINTENANCE_REQUIRED,
    UpgradeState.POST_MAINTENANCE_REQUIRED,
}


def _is_waiting(node: "UpgradeNode") -> bool:
    return node.labels.get(UPGRADE_STATE_LABEL) == UpgradeState.UPGRADE_REQUIRED.value


def _entries(
    upgrade: "OwnerUpgrade",
    failed: "Collection[NodeName]",
    before: "Mapping[str, NodeUpgradeStatus]",
) -> "Iterable[NodeUpgradeStatus]":
    """Yield the entries of an owner; a node whose actions failed keeps the one that it had."""
    for entry in upgrade.entries():
        kept = before.get(entry.node) if entry.node in failed else entry
        if kept is not None:
            yield kept


def _upgrades(context: ControllerContext) -> DriverUpgrades:
    inventories = context.stores.inventories
    agents = AgentReports(context.stores.features, now=context.now)
    pools, index = context.catalog.pools, context.index

    def pool_taints(node: "NodeName") -> "Iterable[Taint]":
        return [
            taint for name in index.pools_on(node) if name in pools for taint in pools[name].taints
        ]

    return DriverUpgrades(
        context.client,
        context.recorder,
        objects=context.stores.operator_objects,
        reports=context.shared(upgrade_reports),
        tools=UpgradeTools(
            namespace=context.settings.node_software.namespace,
            pools=pools.keys,
            pool_taints=pool_taints,
            now=context.now,
            found=lambda node: found_on(node, inventories.by_name, agents),
        ),
    )


def _key(_context: ControllerContext, _changed: object) -> tuple[str, ...]:
    return (KEY,)


FURTHER_RBAC: Final = (*reader.RBAC, *node_actions.RBAC, *status.RBAC)
"""Rights of a server with `node_software.enabled`: not among the rights that every server has."""
FURTHER_NAMESPACED_RBAC: Final = (*reader.NAMESPACED_RBAC, *node_actions.NAMESPACED_RBAC)

SPEC: Final = ControllerSpec(
    name="driver.upgrade",
    triggers=(
        Trigger(source=INDEX_NODES.source, keys=_key, delay_s=GATHER_S),
        Trigger(source=OPERANDS.source, keys=_key, delay_s=GATHER_S),
        Trigger(
            source=lambda context: context.stores.operator_objects.changes,
            keys=_key,
            delay_s=GATHER_S,
        ),
    ),
    initial=lambda _context: (KEY,),
    is_enabled=lambda settings: settings.node_software.is_enabled,
    build=lambda context: _upgrades(context).reconcile,
)
