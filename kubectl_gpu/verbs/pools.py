"""`kubectl gpu pools`: what each pool has, as the leader last wrote it, and how many pods of each size still fit."""

from typing import TYPE_CHECKING, Final, final

import msgspec

from api.clock import Instant
from kubectl_gpu import verb_flags
from kubectl_gpu.answer_forms import (
    Cell,
    Document,
    Entry,
    Table,
    TableColumn,
    TableLayout,
    Tone,
    structured,
    table_text,
)
from kubectl_gpu.errors import ForbiddenError, NotFoundError
from kubectl_gpu.exit_codes import ANSWERED
from kubectl_gpu.waiting import pool_reading
from kubectl_gpu.waiting.allocation_copy import PoolObjects, allocation_of
from kubectl_gpu.watching import Entries
from pool.fitting_pods import SIZES, fitting_pods

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from api.kinds.gpupool import GPUPool
    from kubectl_gpu.cluster_lists import ClusterLists
    from kubectl_gpu.terminal import Terminal

_COLUMNS: Final = (
    TableColumn("POOL"),
    TableColumn("MODE", sacrifice=2),
    TableColumn("TOTAL", is_number=True),
    TableColumn("USED", is_number=True),
    TableColumn("RESERVED", is_number=True, sacrifice=3),
    TableColumn("FREE", is_number=True),
    TableColumn("LARGEST", is_number=True, sacrifice=4),
    TableColumn("WAITING", is_number=True, sacrifice=5),
    TableColumn("FITS 1/2/4/8", sacrifice=6),
    TableColumn("PHASE", sacrifice=1),
    TableColumn("WITHHELD", is_number=True, is_wide=True),
    TableColumn("NODES", is_number=True, is_wide=True),
    TableColumn("RESOURCE", is_wide=True),
    TableColumn("STRATEGY", is_wide=True),
    TableColumn("WHY", is_wide=True),
)
_READY: Final = "Ready"
_MOST_UNITS: Final = 2_000
"""Up to so many units it is tried unasked how many pods fit: reading that many devices takes half a second."""


@final
class PoolEntry(Entry, frozen=True, kw_only=True):
    """A pool; total = used + reserved + free + withheld."""

    name: str
    mode: str
    resource: str
    strategy: str
    phase: str
    why: str
    """Message of the condition Ready, where it is not true."""
    total: int
    used: int
    reserved: int
    free: int
    withheld: int
    largest_free: int
    """Most units that are free on one node."""
    waiting: int
    """Pods that wait for units."""
    nodes: int
    fits: dict[int, int] | None = None
    """Units of a pod -> how many such pods would be placed now; absent where that is not known."""


@final
class PoolList(Document, frozen=True, kw_only=True):
    """Document of the verb `pools`."""

    items: tuple[PoolEntry, ...]


def run_pools(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """List pools."""
    parser = verb_flags.verb_parser("pools", "List pools: used, reserved and free units.")
    parser.add_argument("pools", nargs="*", metavar="POOL", help="these pools alone")
    verb_flags.add_selector_flag(parser, "pools")
    verb_flags.add_watch_flag(parser)
    given = verb_flags.parse_verb(parser, arguments)
    return verb_flags.run_on_cluster(given, terminal, lambda lists: _answer(lists, given, terminal))


def _answer(lists: "ClusterLists", given: "argparse.Namespace", terminal: "Terminal") -> Entries:
    entries = _with_fits(lists, pools_of(lists, given), is_asked=given.output != "table")
    answer = PoolList(items=entries)
    names = (f"gpupool.gpu.deckhouse.io/{entry.name}" for entry in entries)
    text = structured(answer, names, form=given.output)
    return Entries(text if text is not None else _table(answer, given, terminal), ANSWERED)


def pools_of(lists: "ClusterLists", given: "argparse.Namespace") -> "list[GPUPool]":
    """Return the pools that are asked for, in alphabetical order.

    Raises:
        NotFoundError: there is none of a given name.
    """
    found = pool_reading.read_pools(lists, labels=given.selector)
    missing = set(given.pools) - {item.name for item in found}
    if missing:
        raise NotFoundError(
            f"there is no pool {', '.join(sorted(missing))}; `kubectl gpu pools` lists the pools"
        )
    return [item for item in found if not given.pools or item.name in given.pools]


def _with_fits(
    lists: "ClusterLists", pools: "list[GPUPool]", *, is_asked: bool
) -> tuple[PoolEntry, ...]:
    entries = tuple(map(pool_entry, pools))
    if not is_asked and sum(entry.total for entry in entries) > _MOST_UNITS:
        lists.gaps.append(
            f"the pools have more than {_MOST_UNITS} units: -o wide tries how many pods fit"
        )
        return entries
    try:
        fits = fits_of(lists, [pool for pool in pools if pool.status.capacity.total])
    except ForbiddenError as error:
        lists.gaps.append(f"how many pods fit is not known: {error}")
        return entries
    return tuple(msgspec.structs.replace(entry, fits=fits.get(entry.name)) for entry in entries)


def fits_of(lists: "ClusterLists", pools: "list[GPUPool]") -> "dict[str, dict[int, int]]":
    """Return how many pods of each size fit, by pool.

    Raises:
        ForbiddenError: devices, or pods of all namespaces, may not be listed.
    """
    if not pools:
        return {}
    objects = PoolObjects()
    for pool in pools:
        pool_reading.read_pool(lists, pool, objects)
    pool_reading.read_inventories(lists, objects)
    pool_reading.read_nodes_without_label(lists, objects)
    pool_reading.read_pods_of_nodes(lists, objects)
    now = Instant(0.0, lists.source.now())
    state = allocation_of(objects, now)
    return {pool.name: fitting_pods(state.index, pool.name) for pool in pools}


def pool_entry(pool: "GPUPool") -> PoolEntry:
    status = pool.status
    capacity = status.capacity
    ready = next(
        (condition for condition in status.conditions or () if condition.type == _READY), None
    )
    return PoolEntry(
        name=pool.name,
        mode=pool.allocation.mode.value,
        resource=", ".join(pool.resources),
        strategy=pool.strategy.value,
        phase=status.phase or "Unknown",
        why=ready.message if ready is not None and ready.status != "True" else "",
        total=capacity.total,
        used=capacity.used,
        reserved=capacity.reserved,
        free=capacity.available,
        withheld=capacity.unhealthy,
        largest_free=capacity.largest_free,
        waiting=status.waiting,
        nodes=status.nodes,
    )


def _table(answer: PoolList, given: "argparse.Namespace", terminal: "Terminal") -> str:
    if not answer.items:
        return "There is no pool.\n"
    table = Table(_COLUMNS)
    for item in answer.items:
        table.rows.append(
            (
                item.name,
                item.mode,
                str(item.total),
                str(item.used),
                str(item.reserved),
                Cell(str(item.free), Tone.GOOD if item.free else Tone.PLAIN),
                str(item.largest_free),
                Cell(str(item.waiting), Tone.WARNING if item.waiting else Tone.PLAIN),
                _fits_text(item),
                Cell(item.phase, Tone.GOOD if item.phase == _READY else Tone.WARNING),
                Cell(str(item.withheld), Tone.WARNING if item.withheld else Tone.PLAIN),
                str(item.nodes),
                item.resource,
                item.strategy,
                item.why,
            )
        )
    layout = TableLayout(is_wide=given.output == "wide", has_header=not given.no_headers)
    return table_text(table, terminal, layout)


def _fits_text(pool: PoolEntry) -> str:
    if pool.fits is None:
        return "-"
    return "/".join(str(pool.fits[size]) for size in SIZES)
