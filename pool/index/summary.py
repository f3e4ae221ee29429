"""What is free on one node, summed over the pool's devices there."""

from typing import TYPE_CHECKING

from pool.index.node_view import PoolNode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pool.index.devices import DeviceEntry
    from pool.refusal import NodeReason


def summarize(
    entries: "Iterable[DeviceEntry]",
    *,
    unaccounted: int,
    is_placeable: bool,
    closed: "NodeReason | None" = None,
) -> PoolNode | None:
    """Return a node's figures; None when its devices have no unit.

    Args:
        entries: the pool's devices on the node.
        unaccounted: units of the pool's pods there of which nobody knows the devices.
        is_placeable: whether holds may be taken on the node.
        closed: why the whole pool gives out nothing, where it does not.
    """
    total = used = held = unconfirmed = free = unhealthy = partial = unusable = 0
    for entry in entries:
        observed = entry.observed
        firm = observed | entry.confirmed
        count = idle = len(entry.layout.ids)
        total += count
        if firm:
            used += observed.bit_count()
            held += (firm & ~observed).bit_count()
            idle = (entry.layout.full & ~firm).bit_count()
        if not entry.is_usable:
            unhealthy += idle
            unusable += count
            continue
        loose = entry.assumed & ~firm
        if loose:
            unconfirmed += loose.bit_count()
            idle -= loose.bit_count()
        free += idle
        if firm or loose:
            partial += idle
    if not total:
        return None
    return PoolNode(
        total=total,
        used=used,
        held=held,
        free=free,
        unhealthy=unhealthy,
        partial=partial,
        unaccounted=unaccounted,
        unconfirmed=unconfirmed,
        is_placeable=is_placeable,
        unusable=unusable,
        closed=closed,
    )
