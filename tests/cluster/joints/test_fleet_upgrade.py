"""Another driver for nodes with the taints of pools, with mounted caches, beside Karpenter."""

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.environment import polling
from tests.cluster.joints.fleet_upgrade import PATIENCE_S, FleetUpgrade
from tests.cluster.system.installation import SERVER_USER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.cluster.environment.audit import AuditLog, Write
    from tests.cluster.environment.whole_cluster import WholeCluster

QUIET_S: Final = 600.0
SETTLED_S: Final = 90.0
"""Longer than a pool's status shows a request that was withdrawn."""
COMPILES: Final = "-compiles"
"""Tag of a driver that takes kwok a minute on Karpenter's nodes: by then Karpenter has seen that they are empty."""


@pytest.fixture
def fleet(
    create_kwok_nodes: "Callable[..., Awaitable[list[str]]]",
    whole: "WholeCluster",
    namespace: str,
    audit: "AuditLog",
    tmp_path: "Path",
) -> "Callable[..., FleetUpgrade]":
    """`fleet(static=46, bought=4, max_unavailable=25)`: the story with so many nodes, which are there until it is taken apart."""
    return partial(
        FleetUpgrade,
        cluster=whole,
        namespace=namespace,
        folder=tmp_path,
        audit=audit,
        create_nodes=create_kwok_nodes,
    )


async def test_each_node_is_upgraded_or_named_and_no_pod_of_others_leaves(
    fleet: "Callable[..., FleetUpgrade]", progress: "Callable[[str], None]"
):
    await upgrade_fleet(fleet(static=10, bought=2, max_unavailable=50), progress)


async def test_fifty_nodes_of_which_karpenter_could_take_the_emptied_ones(
    fleet: "Callable[..., FleetUpgrade]", progress: "Callable[[str], None]"
):
    await upgrade_fleet(fleet(static=46, bought=4, max_unavailable=25, tag=COMPILES), progress)


async def test_fifty_nodes_at_rest_have_no_write_but_leases_for_ten_minutes(
    fleet: "Callable[..., FleetUpgrade]", audit: "AuditLog", progress: "Callable[[str], None]"
):
    """kwok's agents are played: their heartbeats are the administrator's writes of NodeFeatures."""
    await fleet(static=46, bought=4, max_unavailable=25).begin()

    async def is_at_rest() -> bool:
        mark = await audit.mark()
        await asyncio.sleep(SETTLED_S)
        assert not await others_than_leases(audit, mark)
        return True

    await polling.eventually(is_at_rest, what="a server at rest", within=PATIENCE_S)
    mark = await audit.mark()

    # A stretch of real time is what this is about.
    await asyncio.sleep(QUIET_S)

    assert not await others_than_leases(audit, mark)
    everybody = Counter((write.user, write.resource) for write in await audit.writes(mark))
    progress(f"writes of {QUIET_S:g} quiet seconds: {everybody.most_common()}")


async def others_than_leases(audit: "AuditLog", mark: int) -> "list[Write]":
    written = await audit.writes(mark, user=SERVER_USER)
    return [write for write in written if write.resource != "leases"]


async def upgrade_fleet(story: FleetUpgrade, progress: "Callable[[str], None]") -> None:
    now = asyncio.get_running_loop().time
    began = now()
    await story.begin()
    ready = now()
    observer = await story.play()
    progress(
        f"{len(story.names) + len(story.claims)} nodes: first drivers in {ready - began:.0f} s, upgrades in"
        f" {now() - ready:.0f} s, at most {observer.most_away} away; {story.evictions} pods with devices evicted,"
        f" 0 others; {story.bought} NodeClaims stay, 1 for a pod that no returning unit could serve"
    )
