"""Which backend a pool gets: its own, or a lesser one with a reason, by settings and by what the cluster offers."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from api.kinds.autoscaling import ScalingBackend
from kube.errors import KubeError, NotFound
from reconciler.scaling.probe import PROBE_S, BackendProbe, ChosenBackend
from telemetry.conditions import BackendReady
from tests.component.reconciler.scaling_run import ScalingRun, a_scaling_run
from tests.support.node_requests import some_parameters

pytestmark = pytest.mark.looptime

SIGNAL, BALLOON = ScalingBackend.KARPENTER_SIGNAL, ScalingBackend.BALLOON
STATIC, NONE = ScalingBackend.KARPENTER_STATIC, ScalingBackend.NONE
PARAMETERS = some_parameters()


@pytest.fixture
async def run() -> AsyncIterator[ScalingRun]:
    async with a_scaling_run() as opened:
        yield opened


def a_probe(run: ScalingRun, *enabled: ScalingBackend) -> BackendProbe:
    return BackendProbe(run.client, run.clock.instant, enabled=enabled or tuple(ScalingBackend))


async def chosen(
    run: ScalingRun, backend: ScalingBackend, *enabled: ScalingBackend
) -> ChosenBackend:
    return await a_probe(run, *enabled).choose(replace(PARAMETERS, backend=backend))


@pytest.mark.parametrize("backend", [SIGNAL, BALLOON])
async def test_a_backend_that_the_cluster_offers_is_used(run: ScalingRun, backend: ScalingBackend):
    found = await chosen(run, backend)
    assert (found.backend, found.reason, found.fault) == (backend, BackendReady.READY, "")


async def test_without_karpenter_no_node_is_asked_for():
    async with a_scaling_run(has_karpenter=False) as run:
        found = await chosen(run, SIGNAL)
        assert (found.backend, found.reason) == (NONE, BackendReady.NO_KARPENTER)
        assert "install Karpenter" in found.fault


async def test_backend_none_is_no_fault_of_the_cluster(run: ScalingRun):
    found = await chosen(run, NONE)
    assert (found.backend, found.reason) == (NONE, BackendReady.READY)
    assert "name another backend" in found.fault


async def test_a_backend_that_settings_do_not_name_gives_way_to_signals(run: ScalingRun):
    found = await chosen(run, BALLOON, SIGNAL)
    assert (found.backend, found.reason) == (SIGNAL, BackendReady.NOT_ENABLED)
    assert "autoscaling.backends" in found.message
    assert found.fault == ""


async def test_where_settings_name_no_signals_either_nothing_is_asked_for(run: ScalingRun):
    found = await chosen(run, SIGNAL, BALLOON)
    assert (found.backend, found.reason) == (NONE, BackendReady.NOT_ENABLED)
    assert found.fault


@pytest.mark.parametrize("named", [SIGNAL, STATIC])
async def test_a_removed_backend_is_served_by_signals(run: ScalingRun, named: ScalingBackend):
    """A setting that still names a removed one names signals."""
    found = await chosen(run, STATIC, named)
    assert (found.backend, found.reason, found.fault) == (SIGNAL, BackendReady.REMOVED, "")
    assert "set spec.autoscaling.backend to karpenter-signal" in found.message


async def test_a_removed_backend_is_not_asked_for_without_karpenter():
    async with a_scaling_run(has_karpenter=False) as run:
        found = await chosen(run, STATIC)
        assert (found.backend, found.reason) == (NONE, BackendReady.REMOVED)
        assert "no node is asked for" in found.fault


async def test_the_cluster_is_asked_once_a_minute():
    async with a_scaling_run(has_karpenter=False) as run:
        probe = a_probe(run)
        assert (await probe.choose(PARAMETERS)).backend is NONE
        run.api.requests.clear()
        assert (await probe.choose(PARAMETERS)).backend is NONE
        assert not list(run.api.requests)
        run.clock.offset_s += PROBE_S
        await probe.choose(PARAMETERS)
        assert list(run.api.requests)


async def test_silence_of_the_api_server_is_no_answer(run: ScalingRun):
    run.api.faults.fail("GET", "/nodepools", 500)
    probe = a_probe(run)
    with pytest.raises(KubeError):
        await probe.choose(PARAMETERS)
    assert (await probe.choose(PARAMETERS)).backend is SIGNAL


async def test_one_404_of_a_kind_that_is_served_is_no_answer(run: ScalingRun):
    run.api.faults.fail("GET", "/nodepools", 404)
    probe = a_probe(run)
    with pytest.raises(NotFound):
        await probe.choose(PARAMETERS)
    assert (await probe.choose(PARAMETERS)).backend is SIGNAL
