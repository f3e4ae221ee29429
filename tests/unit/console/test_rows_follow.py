"""Rows that are made again for what has changed are those that would be made of everything."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from api.names import NodeName
from console.data.read_scope import ReadScope
from console.data.tables.cluster_rows import ClusterRows
from console.data.tables.pod_rows import WaitEntry
from console.data.tables.table import SECTIONS
from tests.support.console_feed import WHOLE, ConsoleFeed
from tests.support.console_worlds import ConsoleWorld

SCOPES = (
    WHOLE,
    ReadScope(all_pods=True, nodes=False, inventories=False),
    ReadScope(all_pods=False, namespace="northern", nodes=True, inventories=True),
    ReadScope(all_pods=False, nodes=False, inventories=False),
)


def rows_from_nothing(feed: ConsoleFeed) -> ClusterRows:
    """Make all rows, as a console does that has just started."""
    state, rows = feed.state, ClusterRows(feed.state)
    state.changed.devices |= {device.facts.name for device in state.index.devices.all()}
    state.changed.nodes |= {device.facts.node for device in state.index.devices.all()}
    state.changed.nodes |= {NodeName(name) for name in state.inventories.by_name}
    state.changed.pools |= set(state.catalog.pools)
    state.changed.pods |= {pod.uid for pod in state.reader.pods.all()}
    state.changed.reservations |= {reservation.id for reservation in state.reader.ledger.all()}
    rows.step()
    while rows.is_behind or rows.has_moved:
        rows.step()
    return rows


def current(rows: ClusterRows) -> dict[str, dict[str, object]]:
    """Return the rows of a table, without explanations, which come later."""
    found: dict[str, dict[str, object]] = {}
    for section in SECTIONS:
        found[section] = {
            key: msgspec.structs.replace(row.row, reason="", message="")
            if isinstance(row, WaitEntry)
            else row
            for key, row in rows.table.section(section).items()
        }
    return found


@given(
    seed=st.integers(0, 10**9),
    scope=st.sampled_from(SCOPES),
    ticks=st.lists(st.integers(0, 12), min_size=1, max_size=6),
)
def test_rows_follow_whatever_changes(seed: int, scope: ReadScope, ticks: list[int]):
    feed = ConsoleFeed(scope=scope)
    world = ConsoleWorld(feed, seed)
    for changes in ticks:
        for _ in range(changes):
            world.change()
        feed.tick()
    feed.flush()
    assert current(feed.rows) == current(rows_from_nothing(feed))
    assert {item.ref for item in feed.state.reader.pods.all_waiting()} == set(
        feed.section("waiting")
    )
