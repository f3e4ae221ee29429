"""What waiting pods demand beyond units: it is asked for, named where it is not, and free nodes that do not suit do not count."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.component.reconciler.scaling_run import POOL, Json, ScalingRun, a_scaling_run

pytestmark = pytest.mark.looptime

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
async def run() -> AsyncIterator[ScalingRun]:
    async with a_scaling_run() as found:
        yield found


def a_container() -> Json:
    given = {f"gpu.deckhouse.io/{POOL}": "1", "vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "1Gi"}
    return {
        "name": "c",
        "image": "cuda",
        "resources": {"limits": given, "requests": {"ephemeral-storage": "10Gi"}},
    }


async def test_all_resources_of_the_pods_are_summed_in_the_request(run: ScalingRun):
    await run.add_pods("a", "b", containers=[a_container()])
    await run.run_pass()
    (signal,) = await run.signals()
    resources = signal["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"vpc.amazonaws.com/efa": "8", "hugepages-2Mi": str(2 << 30)}
    assert resources["requests"]["vpc.amazonaws.com/efa"] == "8"
    assert resources["requests"]["ephemeral-storage"] == str(20 << 30)
    assert f"gpu.deckhouse.io/{POOL}" not in resources["requests"]


async def test_what_the_request_leaves_out_is_named_on_the_pod(run: ScalingRun):
    await run.add_node("n1", devices=0, labels={"example.com/rack": "r1"})
    await run.add_pods("other", units=2, nodeName="n1", schedulingGates=None)
    await run.add_pods("plain")
    near = {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}
    rack = {**near, "topologyKey": "example.com/rack"}
    later = {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = {"podAffinity": {required: [rack]}, "podAntiAffinity": {required: [later]}}
    await run.add_pods("a", affinity=terms)
    await run.run_pass()
    notes = [note for reason, note in run.notes() if reason == "GPUNodeRequested"]
    (reported,) = [note for note in notes if "leaves out" in note]
    assert "podAffinity by example.com/rack" in reported
    assert "podAntiAffinity that cannot be read" in reported
    assert len(notes) == 2


async def test_a_free_node_that_kube_scheduler_passes_over_does_not_count(run: ScalingRun):
    await run.add_node("n1", labels={ZONE: "a"})
    await run.add_pods("a", schedulingGates=None)
    await asyncio.sleep(61)
    await run.run_pass()
    ((reason, note),) = run.notes()
    assert (reason, "NotDevices" in note) == ("GPUNodeRequestBlocked", True)
    await asyncio.sleep(120)
    await run.run_pass()
    await run.run_pass()
    (signal,) = await run.signals()
    affinity = signal["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": ZONE, "operator": "NotIn", "values": ["a"]}]
    reported = [note for reason, note in run.notes() if reason == "GPUNodeRequested"]
    assert f"nodes with {ZONE} a" in reported[0]
