"""What a leader runs: its controllers, what each is told of, and the tasks beside them.

Built anew for each term, from what the watches have shown by then. A controller is told keys, never events;
at the start everything is looked at once.
"""

import contextlib
from typing import TYPE_CHECKING

from reconciler.pod.binding_recovery import BindingRecovery
from reconciler.pod.nomination import NominationWriter
from reconciler.pod.requeue import SchedulerRequeue
from reconciler.pool.index_changes import IndexChangeDispatcher
from server.controllers.manager import ControllerManager
from server.controllers.node import add_assignment, add_inventory, add_readiness_and_health
from server.controllers.pool import add_life, add_status, add_workloads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pool.index.change_log import Changes
    from server.controllers.manager import ControllerContext, Works


@contextlib.asynccontextmanager
async def leaders_works(context: "ControllerContext") -> "AsyncIterator[Works]":
    """Build everything and yield the tasks by name; gauges and subscriptions end with the context."""
    async with contextlib.AsyncExitStack() as stack:
        term = ControllerManager(context, stack)
        await _add_controllers(term)
        _add_tasks(term)
        yield term.works


async def _add_controllers(term: ControllerManager) -> None:
    context, caches = term.context, term.context.caches
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

    pump = IndexChangeDispatcher(
        caches.index,
        caches.catalog,
        context.clock.instant,
        reader=caches.reader,
        pools=pools,
        devices=devices,
        nodes=nodes,
        on_changes=route,
    )
    term.works.append(("index.changes", pump.run))


def _add_tasks(term: ControllerManager) -> None:
    client, caches, now = term.context.client, term.context.caches, term.context.clock.instant
    term.works += [
        ("pod.waking", SchedulerRequeue(client, caches.index, now, reader=caches.reader).run),
        ("binding.settling", BindingRecovery(term.context.scheduling).run),
    ]
    if term.context.settings.placement == "Nominated":
        term.works.append(("pod.nominating", NominationWriter(client, caches.reader, now).run))
