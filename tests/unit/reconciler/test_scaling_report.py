"""`/debug/scale` shows what was planned, and why pods wait, in a bounded page."""

import datetime as dt
from types import MappingProxyType
from typing import Any

import msgspec

from api.names import PodUid, PoolName
from autoscaling.scaling_model import (
    Cancel,
    ObservedRequest,
    PodWait,
    RequestId,
    RequestPhase,
    ScalingPlan,
    ShapeHistory,
    Supply,
    WaitReason,
)
from reconciler.scaling.report import MOST_ENTRIES, scaling_report
from reconciler.scaling.view import PoolScaling, ScalingView
from tests.support.node_requests import a_node_request, a_shape, some_parameters

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def report_of(plan: ScalingPlan, **supply: Any) -> dict[str, Any]:
    request = ObservedRequest(
        id=RequestId("training-1"),
        pool=PoolName("training"),
        shape=a_shape(),
        phase=RequestPhase.SIGNALLED,
        since=NOW,
    )
    seen = PoolScaling(
        parameters=some_parameters(per_hour_micro=8_000_000),
        supply=Supply(in_flight=(request,), **supply),
        plan=plan,
        observed=(request,),
        history=(ShapeHistory(shape="two", failures=1, retry_after=NOW, reason="LaunchFailed"),),
        at=NOW,
    )
    text = scaling_report(ScalingView({PoolName("training"): seen}), lambda uid: f"ml/{uid}")
    decoded = msgspec.json.decode(text)
    assert decoded["leading"] is True
    (pool,) = decoded["pools"]
    found: dict[str, Any] = pool
    return found


def test_a_pool_is_shown_with_its_requests_plan_history_and_money():
    request = a_node_request()
    plan = ScalingPlan(
        requests=(request,),
        assigned=MappingProxyType({request.id: (PodUid("uid-p"),)}),
        cancels=(Cancel(RequestId("training-0"), RequestPhase.SUPERSEDED, "nothing waits"),),
    )
    current = report_of(plan, running_micro=4_000_000, spent_today_micro=1)
    assert (current["name"], current["at"]) == ("training", "2026-01-01T00:00:00Z")
    assert [item["phase"] for item in current["requests"]["shown"]] == ["Signalled"]
    assert current["plan"]["new"]["shown"][0]["pods"] == {"count": 1, "shown": ["ml/uid-p"]}
    assert current["plan"]["assigned"]["shown"][0]["id"] == request.id
    assert current["plan"]["cancels"]["shown"][0]["message"] == "nothing waits"
    assert current["history"]["shown"][0]["reason"] == "LaunchFailed"
    assert current["money"] == {
        "perHourNowMicro": 4_000_000,
        "spentTodayMicro": 1,
        "limitPerHourMicro": 8_000_000,
        "limitPerDayMicro": None,
    }


def test_many_waiting_pods_are_counted_and_some_are_shown():
    waits = {
        PodUid(str(number)): PodWait(WaitReason.MAX_UNITS, "pool training has 8 of 8 units")
        for number in range(10_000)
    }
    plan = report_of(ScalingPlan(waits=waits))["plan"]
    assert plan["waitsByReason"] == {"MaxUnits": 10_000}
    assert plan["waits"]["count"] == 10_000
    assert len(plan["waits"]["shown"]) == MOST_ENTRIES
    assert plan["waits"]["shown"][0] == {
        "pod": "ml/0",
        "reason": "MaxUnits",
        "message": "pool training has 8 of 8 units",
    }


def test_without_pools_the_page_says_so():
    assert msgspec.json.decode(scaling_report(ScalingView(), str)) == {"leading": True, "pools": []}
