"""200 nodes get another driver, and on a tenth of them it crashes: it ends, and no more than a quarter is ever away."""

import asyncio
import time
from typing import TYPE_CHECKING

from tests.cluster.environment import polling
from tests.cluster.upgrades.conftest import DONE, FAILED, CreateNodes, Upgrades, is_cordoned

if TYPE_CHECKING:
    from collections.abc import Callable

SOONER, BROKEN, LATER = 100, 20, 80
GOOD = SOONER + LATER
MOST_AWAY = 50
WITHIN_S = 480


async def test_200_nodes_of_which_a_tenth_fails(
    upgrades: Upgrades, gpu_nodes: CreateNodes, progress: "Callable[[str], None]"
):
    began = time.monotonic()
    first = await upgrades.roll_out()
    # By name, as nodes take their turns: some wait behind those that fail and stay away.
    sooner, broken, later = await asyncio.gather(
        gpu_nodes(SOONER, prefix="ahead"),
        gpu_nodes(BROKEN, prefix="broken"),
        gpu_nodes(LATER, prefix="later"),
    )
    good = [*sooner, *later]
    await upgrades.until_driven([*good, *broken], first, within=WITHIN_S / 2)
    ready = time.monotonic()
    async with upgrades.observed([*good, *broken]) as observer:
        second = await upgrades.roll_out(tag="-broken", maxUnavailable="25%")
        wanted = dict.fromkeys(good, DONE) | dict.fromkeys(broken, FAILED)

        def have_ended() -> bool:
            states = {name: observer.states[name] for name in wanted}
            odd = [
                name
                for name, seen in states.items()
                if (len(seen) > 1, seen[-1]) != (True, wanted[name])
            ]
            assert not odd, f"{len(odd)} nodes are not where they should be: {odd[:5]}"
            return True

        await polling.eventually(have_ended, what="all nodes have ended", within=WITHIN_S)
        await upgrades.until_driven(good, second)
    ended = time.monotonic()
    progress(
        f"{GOOD} of {GOOD + BROKEN} nodes upgraded and {BROKEN} failed in {ended - ready:.0f} s, "
        f"at most {observer.most_away} away; {ready - began:.0f} s until all had their first driver"
    )
    assert 0 < observer.most_away <= MOST_AWAY
    found = await upgrades.nodes([*good, *broken])
    assert not [name for name in good if is_cordoned(found[name])]
    assert all(is_cordoned(found[name]) for name in broken)
    entries = await upgrades.entries()
    failed = {name for name, item in entries.items() if item["state"] == FAILED}
    assert failed == set(broken)
    assert {entries[name]["reason"] for name in broken} == {"DriverCrashes"}
    for name in broken:
        reported = [event for event in await upgrades.events(name) if event["type"] == "Warning"]
        assert any("restarted 11 times" in item["note"] for item in reported), name
