"""A short fault run of a fixed seed: `make fault-test SEED=… STEPS=…` makes longer ones."""

from typing import TYPE_CHECKING

import pytest

from tests.fault.fleet import Fleet
from tests.fault.run import Run
from tests.fault.steps import INJECTIONS, make_steps

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.components import Kubelets
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

SEED = 8
STEPS = 120
"""In which every kind of injection comes up."""
REPLICAS = 2


@pytest.fixture
async def fleet(
    control_plane: "ControlPlane", kubectl: "Kubectl", kubelets: "Kubelets"
) -> "AsyncIterator[Fleet]":
    """Two servers behind a Service, each with a proxy to the API server, and kube-scheduler."""
    made = Fleet(control_plane, kubectl, replicas=REPLICAS, name="fault-run")
    async with made.installed():
        yield made


async def test_nothing_is_booked_twice_or_lost_whatever_goes_wrong(
    fleet: Fleet,
    api: "ApiClient",
    control_plane: "ControlPlane",
    progress: "Callable[[str], None]",
):
    steps = make_steps(SEED, STEPS)

    report = await Run(api, control_plane, fleet, progress).carry_out(steps)

    assert not report.violations, f"{report.violations[0]}\n{report.story()}"
    missing = {kind.value for kind in INJECTIONS} - set(report.used)
    assert not missing, f"never happened: {', '.join(sorted(missing))}"
    assert len(report.bound) >= 50
