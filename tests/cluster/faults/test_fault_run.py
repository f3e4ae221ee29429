"""Short fault runs of fixed seeds: `make fault-test SEED=… STEPS=…` makes longer ones."""

from typing import TYPE_CHECKING

from tests.fault.run import Run
from tests.fault.steps import INJECTIONS, NODES, make_steps, named_like

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.faults.conftest import MakeFleet


async def test_nothing_is_booked_twice_or_lost_whatever_goes_wrong(
    a_fleet: "MakeFleet",
    api: "ApiClient",
    control_plane: "ControlPlane",
    progress: "Callable[[str], None]",
):
    steps = make_steps(811, 142)

    async with a_fleet("fault-run", replicas=2) as fleet:
        report = await Run(api, control_plane, fleet, progress).carry_out(steps)

    assert not report.violations, f"{report.violations[0]}\n{report.story()}"
    missing = {kind.value for kind in INJECTIONS} - set(report.used)
    # Not every watch has an event in time to be broken.
    late = {kind.value for kind in named_like(["watch"])} & missing
    assert missing == late, f"never happened: {', '.join(sorted(missing))}"
    assert len(late) <= 2
    assert len(report.bound) >= 30
    # A node that was created again had the newest driver at once.
    assert report.upgrades >= NODES // 2


async def test_a_server_whose_watches_lie_and_break_goes_on_serving(
    a_fleet: "MakeFleet",
    api: "ApiClient",
    control_plane: "ControlPlane",
    progress: "Callable[[str], None]",
):
    """Cut, slow, too old, duplicated, replayed and swapped, and nothing else: no pod is refused."""
    broken = named_like(["watch"])
    steps = make_steps(17, 80, broken, workload_share=0.8)

    async with a_fleet("watch-run", replicas=1) as fleet:
        report = await Run(api, control_plane, fleet, progress).carry_out(steps)
        ends = fleet.replicas[0].ends

    assert not report.violations, f"{report.violations[0]}\n{report.story()}"
    happened = set(report.used) & {kind.value for kind in INJECTIONS}
    # Likewise.
    kinds = {kind.value for kind in broken}
    assert happened <= kinds
    assert len(happened) >= len(kinds) - 2
    assert (ends, report.refused) == (0, 0)
    assert len(report.bound) >= 10
