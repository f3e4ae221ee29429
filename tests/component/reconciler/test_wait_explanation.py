"""What waiting pods say of themselves: when it is written, how often, and what happens when it cannot be."""

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from api.names import (
    CAPACITY_GATE,
    UNITS_CONDITION,
)
from kube.resources import GPU_DEVICES, PODS
from pool.model import PodFacts
from pool.what_if.explanation import UnitWaitReason
from reconciler.pod import wait_explanation
from reconciler.pod.explanation_queue import AFTER_S, AGAIN_S, PAUSE_S, REFUSED_FOR_S, RESYNC_S
from reconciler.pod.shared_explanations import SharedExplanations, WaitText
from tests.component.reconciler.cluster import Cluster
from tests.component.reconciler.explained_pods import (
    NEVER_S,
    SOON_S,
    STATUS,
    Json,
    a_leader,
    add_bound_pod,
    add_pod,
    bind,
    condition,
    failures,
    patches,
    said,
)

pytestmark = pytest.mark.looptime


# --- when ----------------------------------------------------------------------------------------


async def test_a_pod_says_why_it_waits_once_it_has_waited_for_five_seconds(cluster: Cluster):
    await add_pod(cluster)
    async with a_leader(cluster):
        await asyncio.sleep(AFTER_S - 0.1)
        assert patches(cluster) == []
        await asyncio.sleep(SOON_S)
    found = await condition(cluster)
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "PodTooLarge")
    assert found["message"]
    assert found["lastProbeTime"] == found["lastTransitionTime"]
    (event,) = cluster.recorder.taken()
    assert (event.reason, event.type, event.note) == ("GPUPodWaits", "Warning", found["message"])
    assert (event.regarding.kind, event.regarding.name) == ("Pod", "p")
    assert event.regarding.uid


async def test_a_pod_that_is_bound_within_five_seconds_says_nothing(cluster: Cluster):
    await add_pod(cluster)
    async with a_leader(cluster, sees_every_s=0.5):
        await asyncio.sleep(AFTER_S - 1)
        await bind(cluster, "p")
        await asyncio.sleep(2 * PAUSE_S)
    assert await condition(cluster) is None


async def test_nothing_is_written_while_the_reason_stays(cluster: Cluster):
    await add_pod(cluster)
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
        assert patches(cluster) == ["p"]
        await asyncio.sleep(2 * RESYNC_S)
    assert patches(cluster) == []
    assert len(cluster.recorder.taken()) == 1


async def test_another_reason_is_written_with_an_event_and_keeps_the_time_of_the_transition(
    cluster: Cluster,
):
    await add_pod(cluster, units=2)
    await add_bound_pod(cluster, "b", "GPU-n1-0")
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
        before = await condition(cluster)
        await cluster.client.delete(GPU_DEVICES, "n1-1")
        await asyncio.sleep(PAUSE_S + SOON_S)
        after = await condition(cluster)
    assert before is not None
    assert after is not None
    assert (before["reason"], after["reason"]) == ("UnitsExhausted", "PodTooLarge")
    assert after["lastTransitionTime"] == before["lastTransitionTime"]
    assert after["lastProbeTime"] > before["lastProbeTime"]
    assert len(cluster.recorder.taken()) == 2


async def test_new_figures_are_written_without_an_event_and_not_within_the_pause(
    cluster: Cluster,
):
    for number in range(2, 8):
        await cluster.add_device(f"n1-{number}")
    await add_bound_pod(cluster, "b0", "GPU-n1-0")
    await add_pod(cluster, units=8)
    writes: list[float] = []
    loop = asyncio.get_running_loop()
    async with a_leader(cluster):
        for number in range(1, 8):
            # One unit less is free every ten seconds, for others than the pod.
            await add_bound_pod(cluster, f"b{number}", f"GPU-n1-{number}")
            for _ in range(40):
                await asyncio.sleep(0.25)
                writes += [loop.time()] * patches(cluster).count("p")
    gaps = [after - before for before, after in itertools.pairwise(writes)]
    assert len(writes) >= 2
    assert min(gaps) >= PAUSE_S - 0.5, "they are noticed a quarter of a second late"
    assert [item.reason for item in cluster.recorder.taken()] == ["GPUPodWaits"]


async def test_all_pods_together_are_written_ten_times_a_second_at_most(cluster: Cluster):
    for number in range(40):
        await add_pod(cluster, f"p{number:02}")
    by_second: Counter[int] = Counter()
    async with a_leader(cluster, sees_every_s=NEVER_S):
        for tenth in range(400):
            await asyncio.sleep(0.1)
            by_second[tenth // 10] += len(patches(cluster)) + len(cluster.recorder.taken())
    assert sum(by_second.values()) == 80, "a condition and an Event of each"
    assert max(by_second.values()) == wait_explanation.WRITES_A_ROUND
    assert {await said(cluster, f"p{number:02}") for number in range(40)} == {
        ("False", "PodTooLarge")
    }


# --- the end of the wait -------------------------------------------------------------------------


async def test_a_bound_pod_says_once_that_units_are_available(cluster: Cluster):
    await add_pod(cluster)
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
        assert await said(cluster) == ("False", "PodTooLarge")
        await bind(cluster, "p")
        await asyncio.sleep(PAUSE_S + SOON_S)
        assert await said(cluster) == ("True", "UnitsAllocated")
        patches(cluster)
        await asyncio.sleep(2 * wait_explanation.ADOPT_EVERY_S)
    assert patches(cluster) == []
    assert len(cluster.recorder.taken()) == 1


async def test_a_pod_with_free_units_says_so_only_where_it_said_otherwise(cluster: Cluster):
    await add_bound_pod(cluster, "b", "GPU-n1-0")
    await add_pod(cluster, units=2)
    await add_pod(cluster, "small", units=1)
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
        assert await said(cluster) == ("False", "UnitsExhausted")
        assert await said(cluster, "small") is None
        await cluster.client.delete(PODS, "b", namespace="default", grace_period_s=0)
        await asyncio.sleep(PAUSE_S + SOON_S)
        assert await said(cluster) == ("True", "UnitsAvailable")
        assert await said(cluster, "small") is None
        patches(cluster)
        await asyncio.sleep(2 * PAUSE_S)
    assert patches(cluster) == []


# --- which pods ----------------------------------------------------------------------------------


async def test_a_pod_behind_our_gate_is_explained_and_one_behind_a_foreign_gate_is_not(
    cluster: Cluster,
):
    await add_pod(cluster, "ours", schedulingGates=[{"name": CAPACITY_GATE}])
    await add_pod(cluster, "foreign", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    both = [{"name": CAPACITY_GATE}, {"name": "kueue.x-k8s.io/admission"}]
    await add_pod(cluster, "both", schedulingGates=both)
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
    found = [await said(cluster, name) for name in ("ours", "foreign", "both")]
    assert found == [("False", "PodTooLarge"), None, None]


async def test_a_pod_with_our_gate_says_that_it_waits_until_units_are_reserved_for_it(
    cluster: Cluster,
):
    await add_bound_pod(cluster, "b", "GPU-n1-0")
    await add_pod(cluster, units=2, schedulingGates=[{"name": CAPACITY_GATE}])
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
        assert await said(cluster) == ("False", "UnitsExhausted")
        await cluster.client.delete(PODS, "b", namespace="default", grace_period_s=0)
        await asyncio.sleep(PAUSE_S + SOON_S)
        assert await said(cluster) == ("False", "ReservationPending")
        ungated = {"spec": {"schedulingGates": None}}
        await cluster.client.merge_patch(PODS, ungated, name="p", namespace="default")
        await bind(cluster, "p", "GPU-n1-0", "GPU-n1-1")
        await asyncio.sleep(PAUSE_S + SOON_S)
        assert await said(cluster) == ("True", "UnitsAllocated")


async def test_a_pod_that_asks_for_a_pool_that_there_is_not_is_explained(cluster: Cluster):
    await add_pod(cluster, pool="gone", units=1)
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
    assert await said(cluster) == ("False", UnitWaitReason.POOL_NOT_FOUND.value)


async def test_other_conditions_of_the_pod_stay(cluster: Cluster):
    await add_pod(cluster)
    foreign = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    await cluster.client.merge_patch(
        PODS,
        {"status": {"conditions": [foreign]}},
        name="p",
        namespace="default",
        subresource="status",
    )
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
    pod = await cluster.client.get(PODS, Json, "p", namespace="default")
    assert {item["type"] for item in pod["status"]["conditions"]} == {
        "PodScheduled",
        UNITS_CONDITION,
    }


# --- another leader ------------------------------------------------------------------------------


async def test_another_leader_writes_nothing_that_is_right_already(cluster: Cluster):
    for name in ("p", "q"):
        await add_pod(cluster, name)
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
    assert sorted(patches(cluster)) == ["p", "q"]
    cluster.recorder.taken()
    async with a_leader(cluster):
        await asyncio.sleep(RESYNC_S + 10)
    assert patches(cluster) == []
    assert cluster.recorder.taken() == []


async def test_another_leader_corrects_a_pod_that_was_bound_in_between(cluster: Cluster):
    await add_pod(cluster)
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
    await bind(cluster, "p")
    await cluster.observe()
    async with a_leader(cluster):
        await asyncio.sleep(PAUSE_S + SOON_S)
    assert await said(cluster) == ("True", "UnitsAllocated")


async def test_a_condition_that_a_former_leader_writes_late_is_corrected(cluster: Cluster):
    await add_pod(cluster)
    await bind(cluster, "p")
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
        late = {"type": UNITS_CONDITION, "status": "False", "reason": "UnitsExhausted"}
        await cluster.client.merge_patch(
            PODS,
            {"status": {"conditions": [late]}},
            name="p",
            namespace="default",
            subresource="status",
        )
        await asyncio.sleep(wait_explanation.ADOPT_EVERY_S + SOON_S)
    assert await said(cluster) == ("True", "UnitsAllocated")


# --- failures ------------------------------------------------------------------------------------


async def test_a_pod_that_is_gone_or_has_another_uid_by_now_is_left_alone(cluster: Cluster):
    for name in ("gone", "other", "p"):
        await add_pod(cluster, name)
    for name in ("gone", "other"):
        await cluster.client.delete(PODS, name, namespace="default")
    await cluster.add_pod("other")
    before = failures()
    async with a_leader(cluster, sees_every_s=NEVER_S):
        await asyncio.sleep(SOON_S)
    assert (await said(cluster, "other"), await said(cluster)) == (None, ("False", "PodTooLarge"))
    assert failures() == before
    assert [item.regarding.name for item in cluster.recorder.taken()] == ["p"]


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_an_api_server_in_trouble_is_asked_less_and_less_often(cluster: Cluster, code: int):
    for number in range(100):
        await add_pod(cluster, f"p{number:02}")
    cluster.api.faults.fail("PATCH", STATUS, code, times=10_000)
    before = failures()
    with capture_logs() as logs:
        async with a_leader(cluster, sees_every_s=NEVER_S):
            await asyncio.sleep(AFTER_S + 10 * wait_explanation.MAX_BACKOFF_S)
    count = failures() - before
    # After 1, 2, 4, 8, 16, 32 s, and then every minute.
    assert 12 <= count <= 16
    assert len([line for line in logs if line["log_level"] == "warning"]) == count


async def test_explanations_go_on_when_the_api_server_is_back(cluster: Cluster):
    await add_pod(cluster)
    cluster.api.faults.fail("PATCH", STATUS, 503, times=3)
    async with a_leader(cluster):
        await asyncio.sleep(4 * PAUSE_S + SOON_S)
    assert await said(cluster) == ("False", "PodTooLarge")


async def test_a_refused_pod_keeps_no_other_waiting(cluster: Cluster):
    await add_pod(cluster, "first")
    await add_pod(cluster, "second")
    cluster.api.faults.fail("PATCH", "/pods/first/status$", 403, times=2)
    before = failures()
    async with a_leader(cluster):
        await asyncio.sleep(SOON_S)
        assert (await said(cluster, "first"), await said(cluster, "second")) == (
            None,
            ("False", "PodTooLarge"),
        )
        await asyncio.sleep(REFUSED_FOR_S)
        assert failures() - before == 2
        await asyncio.sleep(REFUSED_FOR_S + SOON_S)
    assert await said(cluster, "first") == ("False", "PodTooLarge")


@dataclass
class FailingFirst:
    """Explains all pods but one."""

    explanations: SharedExplanations

    def has_explained(self, pod: PodFacts) -> bool:
        return self.explanations.has_explained(pod)

    def explain(self, pod: PodFacts) -> WaitText:
        if pod.name == "first":
            raise ValueError("a bug")
        return self.explanations.explain(pod)


async def test_an_explanation_that_fails_is_counted_and_keeps_no_other_waiting(cluster: Cluster):
    await add_pod(cluster, "first")
    await add_pod(cluster, "second")
    before = failures()
    async with a_leader(cluster, explained_by=FailingFirst):
        await asyncio.sleep(SOON_S)
        assert failures() - before == 1
        await asyncio.sleep(AGAIN_S)
    assert await said(cluster, "second") == ("False", "PodTooLarge")
    assert failures() - before == 2
