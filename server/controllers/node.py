"""A leader's controllers of nodes and their cards: inventory, readiness, health, assignment."""

import datetime as dt
from typing import TYPE_CHECKING, Final

from api.names import NodeName
from inventory.debounce import DebounceTerms
from inventory.discovery.node import InventoryTerms
from inventory.health.device import HealthDebounceTerms
from inventory.readiness.software import BootstrapTerms, Operand
from reconciler.assignment.conflicts import DELAY_S as CONFLICT_DELAY_S
from reconciler.assignment.conflicts import Conflicts, PoolConflicts
from reconciler.assignment.controller import DeviceAssignment
from reconciler.assignment.events import AssignmentEvents
from reconciler.assignment.triggers import AssignmentRouter
from reconciler.assignment.view import AssignmentSources
from reconciler.dcgm.client import ExporterClient
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
    around, stock = term.around, term.around.stock
    settings = around.settings.inventory
    inventory = NodeInventory(
        around.client,
        KnownDevices(
            index=stock.books.index,
            devices=stock.devices,
            inventories=stock.inventories,
            features=stock.features,
        ),
        around.recorder,
        now=around.clock.instant,
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
        stock.devices.listeners,
        stock.inventories.listeners,
        stock.features.listeners,
    ):
        term.tell(listeners, enqueue)
    term.of_nodes.append(controller.enqueue)
    controller.enqueue_all(node.name for node in stock.books.index.nodes())
    # Of nodes that are gone, what was made for them may be left.
    controller.enqueue_all(list(stock.devices.nodes()))
    controller.enqueue_all(NodeName(name) for name in stock.inventories.by_name)


async def add_readiness_and_health(term: "ControllerManager") -> None:
    """Add `node.dcgm`, `node.bootstrap` and `device.health`, which tell themselves."""
    around, stock, now = term.around, term.around.stock, term.around.clock.instant
    settings, terms = around.settings.health, around.settings.bootstrap
    exporters = ExporterClient(timeout_s=settings.scrape_timeout_s)
    await term.stack.enter_async_context(exporters)
    scraping = DcgmScraper(
        exporters,
        stock.operands,
        stock.devices,
        terms=ScrapeTerms(
            period_s=settings.scrape_period_s, per_second=settings.scrapes_per_second
        ),
        now=now,
    )
    if settings.dcgm:
        pages = term.controller("node.dcgm", scraping.reconcile, workers=SCRAPE_WORKERS)
        term.stack.enter_context(scraping.fed(pages))
    agents = AgentReports(
        stock.features, freshness_s=around.settings.inventory.freshness_s, now=now
    )
    bootstrap = NodeBootstrap(
        around.client,
        NodeSources(
            inventories=stock.inventories,
            devices=stock.devices,
            operands=stock.operands,
            index=stock.books.index,
            heartbeats=(scraping.heartbeat_age_s, agents.heartbeat_age_s),
        ),
        terms=BootstrapTerms(
            requirements={
                Operand.VALIDATOR: terms.validator,
                Operand.GFD: terms.gfd,
                Operand.DCGM: terms.dcgm,
                Operand.DCGM_EXPORTER: terms.dcgm_exporter,
            },
            steadiness=DebounceTerms(
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
        around.client,
        stock.devices,
        HealthSources(
            page=scraping.seen,
            reports=agents.health,
            listeners=(scraping.listeners, stock.features.listeners),
        ),
        events=FaultEvents(around.recorder, stock.books),
        terms=HealthDebounceTerms(
            ignored_xids=frozenset(settings.ignored_xids),
            clean_samples=settings.clean_samples,
            period_s=settings.period_s,
            freshness_s=terms.heartbeat_freshness_s,
        ),
        now=now,
    )
    cards = term.controller("device.health", health.reconcile, workers=NODE_WORKERS)
    term.stack.enter_context(health.fed(cards))


def add_assignment(term: "ControllerManager") -> AssignmentRouter:
    """Add `device.assignment` and `pool.conflict`; return who is to be told of the index's changes."""
    around, stock, now = term.around, term.around.stock, term.around.clock.instant
    sources = AssignmentSources(
        devices=stock.devices,
        inventories=stock.inventories,
        pools=stock.catalog.pools,
        books=stock.books,
        verdicts=term.rules.verdict,
    )
    found = Conflicts()
    conflicts = term.controller(
        "pool.conflict",
        PoolConflicts(
            around.client,
            found,
            stock.catalog.pools,
            recorder=around.recorder,
            is_complete=lambda: found.covers(stock.devices.nodes()),
            now=now,
        ).reconcile,
    )
    assignment = DeviceAssignment(
        around.client,
        sources,
        found,
        events=AssignmentEvents(around.recorder, now),
        now=now,
        on_conflict=lambda pool: conflicts.enqueue(pool, delay_s=CONFLICT_DELAY_S),
    )
    nodes = term.controller("device.assignment", assignment.reconcile, workers=NODE_WORKERS)
    router = AssignmentRouter(sources, nodes.enqueue)
    term.tell(stock.devices.listeners, router.devices_changed)
    term.tell(stock.inventories.listeners, router.inventory_changed)
    term.tell(term.rules.listeners, router.pool_changed)
    term.of_pools.append(router.pool_changed)
    term.of_pools.append(conflicts.enqueue)
    router.enqueue_all()
    # A conflict that an earlier leader found may be over.
    conflicts.enqueue_all(list(stock.catalog.pools), delay_s=CONFLICT_DELAY_S)
    return router
