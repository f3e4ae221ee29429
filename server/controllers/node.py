"""A leader's controllers of nodes and their cards: inventory, readiness, health, assignment."""

import datetime as dt
from typing import TYPE_CHECKING, Final

from api.names import NodeName
from inventory.debounce import DebounceTerms
from inventory.discovery.node import InventoryTerms
from inventory.health.device import HealthDebounceTerms
from inventory.readiness.software import BootstrapTerms, Operand
from reconciler.assignment.controller import DeviceAssignment
from reconciler.assignment.events import AssignmentEvents
from reconciler.assignment.pool_conflicts import DELAY_S as CONFLICT_DELAY_S
from reconciler.assignment.pool_conflicts import Conflicts, PoolConflicts
from reconciler.assignment.triggers import AssignmentRouter
from reconciler.assignment.view import AssignmentSources
from reconciler.dcgm.exporter import ExporterClient
from reconciler.dcgm.scraper import WORKERS as SCRAPE_WORKERS
from reconciler.dcgm.scraper import DcgmScraper, ScrapeTerms
from reconciler.device.fault_events import FaultEvents
from reconciler.device.health import DeviceHealthController, HealthSources
from reconciler.inventory.controller import KnownDevices, NodeInventory
from reconciler.readiness.controller import NodeBootstrap, NodeSources
from reconciler.sinks.agent_reports import AgentReports

if TYPE_CHECKING:
    from server.controllers.manager import ControllerManager

NODE_WORKERS: Final = 8
"""Nodes at a time whose devices are written; 5,000 nodes that join at once are 40,000 devices."""


def add_inventory(term: "ControllerManager") -> None:
    """Add `node.inventory`, told of nodes, features, devices and inventories."""
    context, caches = term.context, term.context.caches
    settings = context.settings.inventory
    inventory = NodeInventory(
        context.client,
        KnownDevices(
            index=caches.index,
            devices=caches.devices,
            inventories=caches.inventories,
            features=caches.features,
        ),
        context.recorder,
        now=context.clock.instant,
        terms=InventoryTerms(
            managed_label=settings.managed_label,
            is_managed_by_default=settings.managed_by_default,
            fresh_for=dt.timedelta(seconds=settings.freshness_s),
            gone_for=dt.timedelta(seconds=settings.node_gone_s),
        ),
    )
    term.stack.callback(inventory.forget_all)
    controller = term.controller("node.inventory", inventory.reconcile, workers=NODE_WORKERS)

    def enqueue(node: str) -> None:
        controller.enqueue(NodeName(node))

    for listeners in (
        caches.devices.changes,
        caches.inventories.changes,
        caches.features.changes,
    ):
        term.tell(listeners, enqueue)
    term.of_nodes.append(controller.enqueue)
    controller.enqueue_all(node.name for node in caches.index.nodes.values())
    # Of nodes that are gone, what was made for them may be left.
    controller.enqueue_all(list(caches.devices.nodes()))
    controller.enqueue_all(NodeName(name) for name in caches.inventories.by_name)


async def add_readiness_and_health(term: "ControllerManager") -> None:
    """Add `node.dcgm`, `node.bootstrap` and `device.health`, which tell themselves."""
    context, caches, now = term.context, term.context.caches, term.context.clock.instant
    settings, terms = context.settings.health, context.settings.bootstrap
    exporters = ExporterClient(timeout_s=settings.scrape_timeout_s)
    await term.stack.enter_async_context(exporters)
    scraping = DcgmScraper(
        exporters,
        caches.operands,
        caches.devices,
        terms=ScrapeTerms(
            period_s=settings.scrape_period_s, per_second=settings.scrapes_per_second
        ),
        now=now,
    )
    if settings.dcgm:
        pages = term.controller("node.dcgm", scraping.reconcile, workers=SCRAPE_WORKERS)
        term.stack.enter_context(scraping.fed(pages))
    agents = AgentReports(
        caches.features, freshness_s=context.settings.inventory.freshness_s, now=now
    )
    bootstrap = NodeBootstrap(
        context.client,
        NodeSources(
            inventories=caches.inventories,
            devices=caches.devices,
            operands=caches.operands,
            index=caches.index,
            heartbeats=(scraping.heartbeat_age_s, agents.heartbeat_age_s),
        ),
        terms=BootstrapTerms(
            requirements={
                Operand.VALIDATOR: terms.validator,
                Operand.GFD: terms.gfd,
                Operand.DCGM: terms.dcgm,
                Operand.DCGM_EXPORTER: terms.dcgm_exporter,
            },
            debounce=DebounceTerms(
                good_samples=terms.good_samples,
                bad_samples=terms.bad_samples,
                period_s=terms.period_s,
            ),
            heartbeat_freshness_s=terms.heartbeat_freshness_s,
        ),
        now=now,
    )
    nodes = term.controller("node.bootstrap", bootstrap.reconcile, workers=NODE_WORKERS)
    term.stack.enter_context(bootstrap.fed(nodes))
    health = DeviceHealthController(
        context.client,
        caches.devices,
        HealthSources(
            page=scraping.seen,
            reports=agents.health,
            changes=(scraping.changes, caches.features.changes),
        ),
        events=FaultEvents(context.recorder, caches.reader),
        terms=HealthDebounceTerms(
            ignored_xids=frozenset(settings.ignored_xids),
            clean_samples=settings.clean_samples,
            period_s=settings.period_s,
            freshness_s=terms.heartbeat_freshness_s,
        ),
        now=now,
    )
    devices = term.controller("device.health", health.reconcile, workers=NODE_WORKERS)
    term.stack.enter_context(health.fed(devices))


def add_assignment(term: "ControllerManager") -> AssignmentRouter:
    """Add `device.assignment` and `pool.conflict`; return who is to be told of the index's changes."""
    context, caches, now = term.context, term.context.caches, term.context.clock.instant
    sources = AssignmentSources(
        devices=caches.devices,
        inventories=caches.inventories,
        pools=caches.catalog.pools,
        index=caches.index,
        reader=caches.reader,
        verdicts=term.rules.verdict,
    )
    found = Conflicts()
    conflicts = term.controller(
        "pool.conflict",
        PoolConflicts(
            context.client,
            found,
            caches.catalog.pools,
            recorder=context.recorder,
            is_complete=lambda: found.covers(caches.devices.nodes()),
            now=now,
        ).reconcile,
    )
    assignment = DeviceAssignment(
        context.client,
        sources,
        found,
        events=AssignmentEvents(context.recorder, now),
        now=now,
        on_conflict=lambda pool: conflicts.enqueue(pool, delay_s=CONFLICT_DELAY_S),
    )
    nodes = term.controller("device.assignment", assignment.reconcile, workers=NODE_WORKERS)
    router = AssignmentRouter(sources, nodes.enqueue)
    term.tell(caches.devices.changes, router.devices_changed)
    term.tell(caches.inventories.changes, router.inventory_changed)
    term.tell(term.rules.changes, router.pool_changed)
    term.of_pools.append(router.pool_changed)
    term.of_pools.append(conflicts.enqueue)
    router.enqueue_all()
    # A conflict that an earlier leader found may be over.
    conflicts.enqueue_all(list(caches.catalog.pools), delay_s=CONFLICT_DELAY_S)
    return router
