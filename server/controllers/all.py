"""What a leader runs: its controllers, what each is told of, and the tasks beside them.

Built anew for each term, from what the watches have shown by then. A controller is told keys, never events;
at the start everything is looked at once.
"""

import contextlib
from typing import TYPE_CHECKING

from reconciler.pod.binding_recovery import Settling
from reconciler.pod.nomination import Nominating
from reconciler.pod.requeue import Waking
from reconciler.pool.index_changes import ChangePump
from server.controllers.manager import Term
from server.controllers.node import add_assignment, add_inventory, add_readiness_and_health
from server.controllers.pool import add_life, add_status, add_workloads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pool.index.change_log import Changes
    from server.controllers.manager import Surroundings, Works


@contextlib.asynccontextmanager
async def leaders_works(around: "Surroundings") -> "AsyncIterator[Works]":
    """Build everything and yield the tasks by name; gauges and subscriptions end with the context."""
    async with contextlib.AsyncExitStack() as stack:
        term = Term(around, stack)
        await _add_controllers(term)
        _add_tasks(term)
        yield term.works


async def _add_controllers(term: Term) -> None:
    around, stock = term.around, term.around.stock
    add_inventory(term)
    await add_readiness_and_health(term)
    router = add_assignment(term)
    add_workloads(term)
    pools, devices, nodes = add_status(term)
    add_life(term)

    def route(changes: "Changes") -> None:
        for pool in changes.pools:
            for told in term.of_pools:
                told(pool)
        for node in changes.nodes:
            for told_node in term.of_nodes:
                told_node(node)
        router.index_changed(changes)

    pump = ChangePump(
        stock.books,
        stock.catalog,
        around.clock.instant,
        pools=pools,
        devices=devices,
        nodes=nodes,
        on_changes=route,
    )
    term.works.append(("index.changes", pump.run))


def _add_tasks(term: Term) -> None:
    client, books, now = term.around.client, term.around.stock.books, term.around.clock.instant
    term.works += [
        ("pod.waking", Waking(client, books, now).run),
        ("binding.settling", Settling(term.around.scheduling).run),
    ]
    if term.around.settings.placement == "Nominated":
        term.works.append(("pod.nominating", Nominating(client, books, now).run))
