"""The next step towards how a device is wanted, and how it is wanted."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agent.driver.port import DriverDevice, DriverInstance, Profile
from agent.health.states import HEALTHY
from agent.mig.partition_planner import (
    WHOLE,
    Blocked,
    BlockReason,
    Complete,
    Create,
    DesiredLayout,
    Destroy,
    DisableMode,
    Done,
    EnableMode,
    Step,
    Unmanaged,
    desired_layout,
    next_step,
)
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import AllocationMode, EffectiveAllocation, GPUPool
from tests.support.assignment import a_device, a_gpupool
from tests.support.device_health import XID_79

CUT = DesiredLayout((("1g.10gb", None),))
PROFILES = (Profile(name="1g.10gb", capacity=7), Profile(name="3g.40gb", capacity=2))


def an_instance(
    number: int, profile: str = "1g.10gb", *, is_complete: bool = True
) -> DriverInstance:
    return DriverInstance(
        gpu_instance=number,
        profile=profile,
        uuid=f"MIG-{number}" if is_complete else "",
        compute_instance=0 if is_complete else None,
    )


def a_gpu(*instances: DriverInstance, **changes: Any) -> DriverDevice:
    """Of which MIG can be asked; with instances it is on."""
    return DriverDevice(
        **{
            "address": "0000:17:00.0",
            "uuid": "GPU-1",
            "minor": 0,
            "product": "NVIDIA H100",
            "is_mig_capable": True,
            "is_mig_enabled": bool(instances),
            "profiles": PROFILES,
            "instances": instances,
            **changes,
        }
    )


def step_of(device: DriverDevice, desired: DesiredLayout, **changes: Any) -> Step:
    return next_step(device, desired, **{"health": HEALTHY, "in_use": (), **changes})


def blocked_by(step: Step) -> BlockReason:
    assert isinstance(step, Blocked), step
    assert step.text
    return step.reason


ON = {"is_mig_enabled": True}
SEVEN = tuple(an_instance(number) for number in range(7))


@pytest.mark.parametrize(
    ("device", "desired", "expected"),
    [
        pytest.param(a_gpu(), CUT, EnableMode(), id="off"),
        pytest.param(a_gpu(**ON), CUT, Create("1g.10gb"), id="on and empty"),
        pytest.param(a_gpu(*SEVEN[:6]), CUT, Create("1g.10gb"), id="one missing"),
        pytest.param(a_gpu(*SEVEN), CUT, Done(), id="as wanted"),
        pytest.param(
            a_gpu(an_instance(3), an_instance(4, "3g.40gb")),
            CUT,
            Destroy(4, "3g.40gb"),
            id="another profile",
        ),
        pytest.param(
            a_gpu(an_instance(1, is_complete=False), an_instance(2, "3g.40gb", is_complete=False)),
            CUT,
            Destroy(2, "3g.40gb"),
            id="room first",
        ),
        pytest.param(
            a_gpu(*SEVEN[:6], an_instance(6, is_complete=False)),
            CUT,
            Complete(6, "1g.10gb"),
            id="crashed between the two steps",
        ),
        pytest.param(a_gpu(is_mig_capable=False, profiles=()), WHOLE, Done(), id="no MIG"),
        pytest.param(a_gpu(), WHOLE, Done(), id="whole"),
        pytest.param(a_gpu(**ON), WHOLE, DisableMode(), id="on, to be whole"),
        pytest.param(a_gpu(*SEVEN[5:]), WHOLE, Destroy(5, "1g.10gb"), id="cut, to be whole"),
        pytest.param(
            a_gpu(an_instance(1, is_complete=False)),
            WHOLE,
            Destroy(1, "1g.10gb"),
            id="unfinished, to be whole",
        ),
        pytest.param(
            a_gpu(is_mig_pending=True), WHOLE, DisableMode(), id="taken back before the reset"
        ),
        pytest.param(
            a_gpu(*SEVEN, is_mig_pending=False), CUT, EnableMode(), id="kept beyond the reset"
        ),
        pytest.param(
            a_gpu(profiles=()), CUT, EnableMode(), id="profiles may be known once it is on"
        ),
    ],
)
def test_the_next_step(device: DriverDevice, desired: DesiredLayout, expected: Step):
    assert step_of(device, desired) == expected


@pytest.mark.parametrize(
    ("device", "desired", "expected"),
    [
        pytest.param(
            a_gpu(is_mig_capable=False, profiles=()), CUT, BlockReason.NOT_SUPPORTED, id="no MIG"
        ),
        pytest.param(
            a_gpu(),
            DesiredLayout((("9g.9gb", None),)),
            BlockReason.NO_SUCH_PROFILE,
            id="no such profile",
        ),
        pytest.param(
            a_gpu(profiles=(), **ON),
            CUT,
            BlockReason.NO_SUCH_PROFILE,
            id="no profile, and it is on",
        ),
        pytest.param(
            a_gpu(profiles=(Profile(name="1g.10gb", capacity=0),)),
            CUT,
            BlockReason.NO_SUCH_PROFILE,
            id="none fits",
        ),
        pytest.param(
            a_gpu(is_mig_pending=True), CUT, BlockReason.RESET_NEEDED, id="on after a reset"
        ),
        pytest.param(
            a_gpu(is_mig_pending=False, **ON),
            WHOLE,
            BlockReason.RESET_NEEDED,
            id="off after a reset",
        ),
        pytest.param(a_gpu(is_lost=True, is_mig_capable=False), CUT, BlockReason.LOST, id="lost"),
        pytest.param(a_gpu(is_lost=True, **ON), WHOLE, BlockReason.LOST, id="lost, to be whole"),
    ],
)
def test_an_impossible_layout_is_blocked(
    device: DriverDevice, desired: DesiredLayout, expected: BlockReason
):
    assert blocked_by(step_of(device, desired)) is expected


NEEDS_A_STEP = [
    pytest.param(a_gpu(), CUT, id="enable"),
    pytest.param(a_gpu(**ON), WHOLE, id="disable"),
    pytest.param(a_gpu(*SEVEN[:2]), CUT, id="create"),
    pytest.param(a_gpu(an_instance(1), an_instance(2, is_complete=False)), CUT, id="complete"),
    pytest.param(a_gpu(an_instance(1), an_instance(2, "3g.40gb")), CUT, id="destroy another"),
    pytest.param(a_gpu(an_instance(1)), WHOLE, id="destroy all"),
]


@pytest.mark.parametrize(("device", "desired"), NEEDS_A_STEP)
def test_no_step_is_taken_while_the_device_is_in_use(device: DriverDevice, desired: DesiredLayout):
    uses: list[tuple[dict[str, Any], BlockReason]] = [
        ({"in_use": {"GPU-1"}}, BlockReason.IN_USE),
        ({"in_use": {"GPU-1::3"}}, BlockReason.IN_USE),
        ({"in_use": None}, BlockReason.USE_UNKNOWN),
        ({"health": XID_79}, BlockReason.UNHEALTHY),
    ]
    uses += [
        ({"in_use": {instance.uuid}}, BlockReason.IN_USE)
        for instance in device.instances
        if instance.uuid
    ]
    for given, expected in uses:
        assert blocked_by(step_of(device, desired, **given)) is expected, given
    assert blocked_by(step_of(replace(device, processes=1), desired)) is BlockReason.RUNNING


@pytest.mark.parametrize(("device", "desired"), NEEDS_A_STEP)
def test_users_of_another_device_do_not_block(device: DriverDevice, desired: DesiredLayout):
    step = step_of(device, desired, in_use={"GPU-11", "GPU-2::1", "MIG-77", ""})
    assert not isinstance(step, Blocked | Done)


@pytest.mark.parametrize(
    "given",
    [{"in_use": {"GPU-1", "MIG-3"}}, {"in_use": None}, {"health": XID_79}],
    ids=["in use", "unknown use", "unhealthy"],
)
def test_a_finished_device_is_done_even_while_in_use(given: dict[str, Any]):
    assert step_of(a_gpu(*SEVEN, processes=4), CUT, **given) == Done()
    assert step_of(a_gpu(processes=4), WHOLE, **given) == Done()


def test_the_text_names_the_user_and_the_cure():
    def text(step: Step) -> str:
        assert isinstance(step, Blocked)
        return step.text

    assert "nvidia-smi --gpu-reset -i GPU-1" in text(step_of(a_gpu(is_mig_pending=True), CUT))
    assert "MIG-2, MIG-3" in text(step_of(a_gpu(*SEVEN), WHOLE, in_use={"MIG-3", "MIG-2"}))
    assert "1g.10gb, 3g.40gb" in text(step_of(a_gpu(), DesiredLayout((("9g.9gb", None),))))
    assert "Xid79" in text(step_of(a_gpu(), CUT, health=XID_79))


# --- how a device is wanted --------------------------------------------------------------------------


def recorded(pool: GPUPool, mode: AllocationMode, profile: str = "") -> GPUPool:
    allocation = EffectiveAllocation(mode=mode, mig_profile=profile)
    return msgspec.structs.replace(
        pool, status=msgspec.structs.replace(pool.status, allocation=allocation)
    )


MIG_SPEC: dict[str, Any] = {"allocation": {"mode": "MIG", "migProfile": "1g.10gb"}}


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        pytest.param(
            recorded(a_gpupool(), AllocationMode.MIG, "3g.40gb"),
            DesiredLayout((("3g.40gb", None),)),
            id="MIG",
        ),
        pytest.param(recorded(a_gpupool(), AllocationMode.EXCLUSIVE), WHOLE, id="exclusive"),
        pytest.param(recorded(a_gpupool(), AllocationMode.TIME_SLICE), WHOLE, id="slices"),
        pytest.param(
            recorded(a_gpupool(**MIG_SPEC), AllocationMode.EXCLUSIVE),
            WHOLE,
            id="in maintenance it is as it was",
        ),
    ],
)
def test_a_device_is_wanted_as_its_pool_has_recorded(pool: GPUPool, expected: DesiredLayout):
    assert desired_layout(a_device(owner="a"), {"a": pool}) == expected


MIG_POOL = recorded(a_gpupool(), AllocationMode.MIG, "1g.10gb")


@pytest.mark.parametrize(
    ("device", "pools"),
    [
        pytest.param(a_device(), {"a": MIG_POOL}, id="in no pool"),
        pytest.param(a_device(annotated="a"), {"a": MIG_POOL}, id="asked for only"),
        pytest.param(a_device(owner="a", draining=True), {"a": MIG_POOL}, id="leaving"),
        pytest.param(a_device(owner="a", is_ignored=True), {"a": MIG_POOL}, id="ignored"),
        pytest.param(a_device(owner="a", managed=False), {"a": MIG_POOL}, id="unmanaged"),
        pytest.param(a_device(owner="a", uuid=""), {"a": MIG_POOL}, id="no UUID"),
        pytest.param(a_device(owner="a"), {"b": MIG_POOL}, id="its pool is gone"),
        pytest.param(
            a_device(owner="a"),
            {"a": recorded(a_gpupool(is_terminating=True), AllocationMode.MIG, "1g.10gb")},
            id="its pool is going",
        ),
        pytest.param(a_device(owner="a"), {"a": a_gpupool(**MIG_SPEC)}, id="nothing recorded"),
    ],
)
def test_an_unmanaged_device_is_left_alone(device: GPUDevice, pools: dict[str, GPUPool]):
    desired = desired_layout(device, pools)
    assert isinstance(desired, Unmanaged)
    assert desired.text
