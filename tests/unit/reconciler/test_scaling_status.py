"""Status and conditions of a pool's autoscaling, and when they are written."""

import dataclasses
from typing import Any

import msgspec
import pytest

from api.kinds.autoscaling import AutoscalingStatus, ScaleRequestStatus, ScalingBackend
from api.names import PodUid
from autoscaling.device_hours import UsageTotals, advanced
from autoscaling.device_use import DeviceUse, UsageSample
from autoscaling.scaling_model import (
    Failure,
    NodeRequest,
    ObservedRequest,
    PodWait,
    RequestPhase,
    ScalingPlan,
    ShapeHistory,
    Supply,
    WaitReason,
)
from reconciler.scaling.conditions import ScalingFacts, scaling_conditions
from reconciler.scaling.status import (
    COUNTING_S,
    FIGURES_S,
    ScalingOutcome,
    autoscaling_status,
    write_after_s,
)
from telemetry.conditions import BackendReady
from tests.support.scale_requests import (
    ID,
    OTHER_ID,
    POOL,
    SHAPES,
    START,
    RequestHistory,
    a_claim,
    a_signal,
    after,
    the_parameters,
)

EIGHT = UsageSample(devices={DeviceUse.IDLE: 8}, micro={DeviceUse.IDLE: 8_000_000})
NONE = UsageSample(devices={}, micro={})


def a_snapshot(at_s: float = 0, **changes: Any) -> ScalingOutcome:
    usage = changes.get("usage", NONE)
    begun = UsageTotals(day=START.date(), counted_at=START)
    return ScalingOutcome(
        **{
            "backend": ScalingBackend.KARPENTER_SIGNAL,
            "plan": ScalingPlan(),
            "observed": (),
            "history": (),
            "usage": usage,
            "totals": advanced(begun, usage, after(at_s)),
            "conditions": conditions(),
            **changes,
        }
    )


def conditions(at_s: float = 0, current: Any = None, **facts: Any) -> Any:
    whole = ScalingFacts(**{"supply": Supply(), "plan": ScalingPlan(), **facts})
    return scaling_conditions(whole, current=current, generation=1, now=after(at_s))


def reported(**facts: Any) -> dict[str, tuple[str, str]]:
    return {
        condition.type: (condition.status, condition.reason) for condition in conditions(**facts)
    }


def status(at_s: float = 0, recorded: Any = (), **changes: Any) -> AutoscalingStatus:
    return autoscaling_status(a_snapshot(at_s, **changes), recorded=recorded, now=after(at_s))


def requests(status: AutoscalingStatus) -> list[ScaleRequestStatus]:
    return status.requests or []


A_REQUEST = NodeRequest(id=ID, pool=POOL.name, shape=SHAPES[0])


# --- what it shows ---


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (ScalingPlan(), "Idle"),
        (ScalingPlan(requests=(A_REQUEST,)), "Scaling"),
        (ScalingPlan(waits={PodUid("p"): PodWait(WaitReason.MAX_UNITS, "")}), "Blocked"),
        (ScalingPlan(warm_wait=PodWait(WaitReason.MAX_UNITS, "")), "Blocked"),
    ],
)
def test_the_phase(plan: ScalingPlan, expected: str):
    assert status(plan=plan).phase == expected


def test_a_request_is_shown_from_its_plan_to_its_withdrawal():
    planned = status(plan=ScalingPlan(requests=(A_REQUEST,), assigned={ID: (PodUid("p"),)}))
    (current,) = requests(planned)
    assert (current.phase, current.shape, current.units) == ("Planned", "large", 8)
    (signalled,) = RequestHistory().observe(1, signals=[a_signal()])
    found = status(
        1, planned.requests, observed=(signalled,), plan=ScalingPlan(assigned={ID: (PodUid("p"),)})
    )
    (current,) = requests(found)
    assert (current.phase, current.pods) == ("Signalled", 1)
    withdrawn = status(20, found.requests)
    (current,) = requests(withdrawn)
    assert (current.phase, current.message) == ("Superseded", "it was withdrawn")
    assert status(60, withdrawn.requests).requests is not None
    assert status(80, withdrawn.requests).requests is None


def test_weak_point_11_an_answer_to_a_withdrawn_signal_is_still_ours():
    """The signal was deleted while Karpenter made the NodeClaim."""
    readings = RequestHistory()
    (signalled,) = readings.observe(1, signals=[a_signal()])
    first = status(1, observed=(signalled,))
    readings.recorded = tuple(status(2, first.requests).requests or ())
    found = readings.one(3, claims=[a_claim()])
    assert (found.shape, found.is_in_flight) == (SHAPES[0], True)


def test_a_failure_is_read_again_from_the_status():
    readings = RequestHistory()
    readings.one(1, signals=[a_signal()], claims=[a_claim()])
    failed = readings.one(2, signals=[a_signal()], deleted=[a_claim()])
    readings.recorded = tuple(status(2, observed=(failed,)).requests or ())
    again = readings.one(5, signals=[a_signal()])
    assert (again.failure, again.since) == (Failure.INSUFFICIENT_CAPACITY, after(2))


def test_a_shape_that_comes_back_into_the_spec_is_known_again():
    readings = RequestHistory()
    readings.one(1, signals=[a_signal()], claims=[a_claim()])
    readings.parameters = the_parameters(shapes=())
    for at_s in (2, 3):
        readings.recorded = tuple(
            status(
                at_s, readings.recorded, observed=readings.observe(at_s, claims=[a_claim()])
            ).requests
            or ()
        )
    readings.parameters = the_parameters()
    assert readings.one(4, claims=[a_claim()]).shape == SHAPES[0]


# --- when it is written ---


def test_time_alone_is_written_every_five_minutes_and_never_without_a_device():
    assert write_after_s(status(usage=EIGHT), status(20, usage=EIGHT)) == COUNTING_S
    assert write_after_s(status(), status(20)) is None


def test_devices_alone_are_written_every_half_minute_and_phases_at_once():
    assert write_after_s(status(), status(20, usage=EIGHT)) == FIGURES_S
    assert write_after_s(status(), status(plan=ScalingPlan(requests=(A_REQUEST,)))) == 0
    assert write_after_s(None, status()) == 0
    other = msgspec.structs.replace(status(), backend=ScalingBackend.NONE)
    assert write_after_s(status(), other) == 0


# --- conditions ---


def test_a_pool_that_can_scale_has_five_conditions_that_are_true():
    assert {status for status, _ in reported().values()} == {"True"}
    assert len(reported()) == 5


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        ("WithinLimits", WaitReason.MAX_UNITS),
        ("WithinLimits", WaitReason.NODE_POOL_LIMIT),
        ("WithinLimits", WaitReason.MAX_IN_FLIGHT),
        ("BudgetAvailable", WaitReason.BUDGET_DAY),
        ("BudgetAvailable", WaitReason.BUDGET_HOUR),
        ("ShapesAvailable", WaitReason.BACKING_OFF),
        ("ShapesAvailable", WaitReason.NO_SHAPE),
        ("ShapesAvailable", WaitReason.TOO_LARGE),
        ("ShapesAvailable", WaitReason.CACHE_INCOMPATIBILITY),
    ],
)
def test_what_a_pod_waits_for_is_a_condition(type_: str, reason: WaitReason):
    plan = ScalingPlan(waits={PodUid("p"): PodWait(reason, "why")})
    assert reported(plan=plan)[type_] == ("False", reason.value)
    assert reported(plan=ScalingPlan(warm_wait=PodWait(reason, "")))[type_] == (
        "False",
        reason.value,
    )


def test_a_message_whose_figures_alone_change_stays():
    def found(text: str, current: Any = None) -> Any:
        plan = ScalingPlan(waits={PodUid("p"): PodWait(WaitReason.MAX_UNITS, text)})
        return conditions(plan=plan, current=current)

    first = found("8 of 8")
    assert found("9 of 8", first) == first


def test_the_backend_and_node_pools_say_what_to_change():
    found = reported(
        backend=BackendReady.NO_KARPENTER,
        backend_message="install Karpenter",
        supply=Supply(node_pool_faults={"whole": "create it"}),
    )
    assert found["BackendReady"] == ("False", "KarpenterMissing")
    assert found["NodePoolValid"] == ("False", "NodePoolInvalid")
    assert reported(spec_faults=["pricePerHour"])["NodePoolValid"] == ("False", "SpecNotUsed")
    kept_away = reported(kept_away="DaemonSet a/b has no pod")["NodePoolValid"]
    assert kept_away == ("False", "NodeSoftwareKeptAway")


def test_a_claim_of_somebody_else_is_a_condition():
    observed = RequestHistory().observe(5, claims=[a_claim()])
    assert reported(observed=observed)["NodePoolValid"] == ("False", "ForeignNodeClaim")


def test_shapes_that_are_left_alone_are_told_though_no_pod_waits():
    history = (
        ShapeHistory(shape="large", excluded_at=1, without_devices=2),
        ShapeHistory(shape="small", zone="a", failures=1, retry_after=after(9), reason="x"),
    )
    (text,) = [
        condition.message
        for condition in conditions(supply=Supply(history=history))
        if condition.type == "ShapesAvailable"
    ]
    assert text == "shape large is left out; shape small in zone a failed lately (x)"


def test_requests_of_two_are_both_shown():
    readings = RequestHistory()
    other = a_signal(name=f"scale-{OTHER_ID}", request=OTHER_ID)
    observed = readings.observe(1, signals=[a_signal(), other])
    assert len(status(1, observed=observed).requests or ()) == 2
    assert all(
        dataclasses.is_dataclass(item) and isinstance(item, ObservedRequest) for item in observed
    )
    assert {item.phase for item in observed} == {RequestPhase.SIGNALLED}
