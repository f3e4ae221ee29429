"""Which backend a pool gets: its own, or a lesser one with a reason, by settings and by what the cluster offers."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from api.kinds.autoscaling import ScalingBackend
from kube.errors import KubeError, NotFound, Undecodable
from kube.resources import NODE_OVERLAYS
from reconciler.scaling.probe import PROBE_S, BackendProbe, ChosenBackend
from telemetry.conditions import BackendReady
from tests.component.reconciler.scaling_run import ScalingRun, a_scaling_run
from tests.support.node_requests import some_terms

pytestmark = pytest.mark.looptime

SIGNAL, NATIVE = ScalingBackend.KARPENTER_SIGNAL, ScalingBackend.KARPENTER_NATIVE
BUFFER, NONE = ScalingBackend.CAPACITY_BUFFER, ScalingBackend.NONE
TERMS = some_terms()


@pytest.fixture
async def run() -> AsyncIterator[ScalingRun]:
    async with a_scaling_run() as opened:
        yield opened


def a_probe(run: ScalingRun, *enabled: ScalingBackend) -> BackendProbe:
    return BackendProbe(run.client, run.clock.instant, enabled=enabled or tuple(ScalingBackend))


async def chosen(
    run: ScalingRun, wanted: ScalingBackend, *enabled: ScalingBackend
) -> ChosenBackend:
    return await a_probe(run, *enabled).choose(replace(TERMS, backend=wanted))


async def add_overlay(run: ScalingRun, resource: str, **status: Any) -> None:
    body = {
        "apiVersion": NODE_OVERLAYS.api_version,
        "kind": NODE_OVERLAYS.kind,
        "metadata": {"name": "training"},
        "spec": {"capacity": {resource: "8"}},
        "status": status,
    }
    await run.admin.create(NODE_OVERLAYS, body)
    await run.admin.merge_patch(
        NODE_OVERLAYS, {"status": status}, name="training", subresource="status"
    )


@pytest.mark.parametrize("wanted", [SIGNAL, BUFFER, ScalingBackend.KARPENTER_STATIC])
async def test_a_backend_that_the_cluster_offers_is_used(run: ScalingRun, wanted: ScalingBackend):
    found = await chosen(run, wanted)
    assert (found.backend, found.reason, found.fault) == (wanted, BackendReady.READY, "")


async def test_without_karpenter_no_node_is_asked_for():
    async with a_scaling_run(has_karpenter=False) as run:
        for wanted in (SIGNAL, NATIVE, BUFFER):
            found = await chosen(run, wanted)
            assert (found.backend, found.reason) == (NONE, BackendReady.NO_KARPENTER)
            assert "install Karpenter" in found.fault


async def test_backend_none_is_no_fault_of_the_cluster(run: ScalingRun):
    found = await chosen(run, NONE)
    assert (found.backend, found.reason) == (NONE, BackendReady.READY)
    assert "name another backend" in found.fault


async def test_a_backend_that_settings_do_not_name_gives_way_to_signals(run: ScalingRun):
    found = await chosen(run, BUFFER, SIGNAL)
    assert (found.backend, found.reason) == (SIGNAL, BackendReady.NOT_ENABLED)
    assert "autoscaling.backends" in found.message
    assert found.fault == ""


async def test_where_settings_name_no_signals_either_nothing_is_asked_for(run: ScalingRun):
    found = await chosen(run, BUFFER, ScalingBackend.BALLOON)
    assert (found.backend, found.reason) == (NONE, BackendReady.NOT_ENABLED)
    assert found.fault


async def test_a_ready_overlay_of_the_resource_lets_karpenter_see_the_pods(run: ScalingRun):
    ready = [{"type": "Ready", "status": "True"}]
    await add_overlay(run, "gpu.deckhouse.io/training", conditions=ready)
    assert (await chosen(run, NATIVE)).backend is NATIVE


@pytest.mark.parametrize(
    ("resource", "conditions", "text"),
    [
        pytest.param("other/r", [], "create it", id="of another resource"),
        pytest.param("gpu.deckhouse.io/training", [], "not Ready", id="not evaluated"),
        pytest.param(
            "gpu.deckhouse.io/training",
            [{"type": "Ready", "status": "False", "message": "conflict"}],
            "conflict",
            id="refused",
        ),
    ],
)
async def test_without_a_ready_overlay_signals_are_used(
    run: ScalingRun, resource: str, conditions: list[Any], text: str
):
    await add_overlay(run, resource, conditions=conditions)
    found = await chosen(run, NATIVE)
    assert (found.backend, found.reason) == (SIGNAL, BackendReady.NO_OVERLAY)
    assert text in found.message


async def test_the_cluster_is_asked_once_a_minute():
    async with a_scaling_run(has_karpenter=False) as run:
        probe = a_probe(run)
        assert (await probe.choose(TERMS)).backend is NONE
        run.api.requests.clear()
        assert (await probe.choose(TERMS)).backend is NONE
        assert not list(run.api.requests)
        run.clock.offset_s += PROBE_S
        await probe.choose(TERMS)
        assert list(run.api.requests)


async def test_silence_of_the_api_server_is_no_answer(run: ScalingRun):
    run.api.faults.fail("GET", "/nodepools", 500)
    probe = a_probe(run)
    with pytest.raises(KubeError):
        await probe.choose(TERMS)
    assert (await probe.choose(TERMS)).backend is SIGNAL


async def test_one_404_of_a_kind_that_is_served_is_no_answer(run: ScalingRun):
    run.api.faults.fail("GET", "/nodepools", 404)
    probe = a_probe(run)
    with pytest.raises(NotFound):
        await probe.choose(TERMS)
    assert (await probe.choose(TERMS)).backend is SIGNAL


async def test_an_overlay_that_cannot_be_read_is_no_answer(run: ScalingRun):
    await add_overlay(run, "gpu.deckhouse.io/training", conditions="of the next version")
    with pytest.raises(Undecodable):
        await chosen(run, NATIVE)
