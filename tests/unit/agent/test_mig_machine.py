"""Cutting a device from any state, with crashes at any step: it ends as wanted, and harms nobody on the way."""

from collections import Counter
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.driver.port import DriverDevice
from agent.health.states import HEALTHY
from agent.mig import partition_planner
from api.mig.layout import Shares
from tests.support.fake_driver import (
    H100_PROFILES,
    MEMORY_SLICES,
    Crash,
    Device,
    FakeDriver,
    GpuInstance,
    a_device,
    at_once,
    crash,
)

UUID = "GPU-1"
CAPACITY = {form.name: form.capacity for form in H100_PROFILES}
NAMES = sorted(CAPACITY)
LAYOUTS: dict[Shares, dict[str, int]] = {
    (): {},
    **{((name, None),): {name: count} for name, count in CAPACITY.items()},
    (("3g.40gb", 1), ("1g.10gb", None)): {"3g.40gb": 1, "1g.10gb": 4},
    (("4g.40gb", 1), ("2g.20gb", 1), ("1g.10gb", None)): {"4g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1},
    (("1g.20gb", 2), ("2g.20gb", 1), ("1g.10gb", 2)): {"1g.20gb": 2, "2g.20gb": 1, "1g.10gb": 2},
}
"""Layouts, and the instances that a device has then."""
MOST_STEPS = 2 * MEMORY_SLICES + 3


def take(driver: FakeDriver, step: partition_planner.Step) -> None:
    match step:
        case partition_planner.EnableMode():
            at_once(driver.set_mig(UUID, is_enabled=True))
        case partition_planner.DisableMode():
            at_once(driver.set_mig(UUID, is_enabled=False))
        case partition_planner.Destroy():
            at_once(driver.destroy_instance(UUID, step.gpu_instance))
        case partition_planner.Complete():
            at_once(driver.complete_instance(UUID, step.gpu_instance))
        case partition_planner.Create():
            at_once(driver.create_instance(UUID, step.profile, place=step.place))
        case _:
            raise AssertionError(f"no step: {step}")


def bring_on(
    driver: FakeDriver, desired: partition_planner.DesiredLayout, in_use: Callable[[], set[str]]
) -> partition_planner.Done | partition_planner.Blocked:
    """What the shell does with one device: a fresh look before every step."""
    for _ in range(MOST_STEPS):
        (device,) = at_once(driver.read()).devices
        step = partition_planner.next_step(device, desired, health=HEALTHY, in_use=in_use())
        if isinstance(step, partition_planner.Done | partition_planner.Blocked):
            return step
        take(driver, step)
    raise AssertionError(f"no end after {MOST_STEPS} steps: {driver.changes[-MOST_STEPS:]}")


class Cutting(RuleBasedStateMachine):
    """One device, those who use it, and those who cut it by hand."""

    @initialize(needs_reset=st.booleans())
    def begin(self, needs_reset: bool) -> None:
        self.driver = FakeDriver(a_device(UUID, profiles=H100_PROFILES, needs_reset=needs_reset))
        self.device = self.driver.devices[0]
        self.desired = partition_planner.WHOLE
        self.in_use: set[str] = set()

    # --- the world -------------------------------------------------------------------------------

    @rule(shares=st.sampled_from(list(LAYOUTS)))
    def the_pool_changes(self, shares: Shares) -> None:
        self.desired = partition_planner.DesiredLayout(shares)

    @rule()
    def the_device_is_reset(self) -> None:
        self.device.reset()
        self.device.processes = 0
        self.in_use.clear()

    @rule(mode=st.booleans(), pending=st.sampled_from([None, True, False]))
    def an_operator_sets_the_mode(self, mode: bool, pending: bool | None) -> None:
        if self.device.instances or self.is_used:
            return
        self.device.is_mig_enabled = mode
        self.device.is_mig_pending = None if pending == mode else pending

    @precondition(lambda self: self.device.is_mig_enabled)
    @rule(profile=st.sampled_from(NAMES), is_complete=st.booleans())
    def an_operator_creates_an_instance(self, profile: str, is_complete: bool) -> None:
        form = next(form for form in H100_PROFILES if form.name == profile)
        starts = self.device.free_starts(form)
        if not starts:
            return
        number = max([instance.id for instance in self.device.instances], default=20) + 1
        uuid = f"MIG-by-hand-{number}" if is_complete else ""
        self.device.instances.append(GpuInstance(number, profile, uuid, start=starts[0]))

    @rule(pick=st.integers(0, 9))
    def a_pod_comes(self, pick: int) -> None:
        units = [UUID, *(instance.uuid for instance in self.device.instances if instance.uuid)]
        self.in_use.add(units[pick % len(units)])

    @rule(pick=st.integers(0, 9))
    def a_process_starts(self, pick: int) -> None:
        paths: list[Device | GpuInstance] = [self.device, *self.device.instances]
        paths[pick % len(paths)].processes += 1

    @rule()
    def all_users_go(self) -> None:
        self.in_use.clear()
        self.device.processes = 0
        for instance in self.device.instances:
            instance.processes = 0

    # --- what is to be shown ---------------------------------------------------------------------

    @property
    def is_used(self) -> bool:
        own = {UUID, *(instance.uuid for instance in self.device.instances)}
        running = self.device.processes + sum(
            instance.processes for instance in self.device.instances
        )
        return bool(own & self.in_use) or running > 0

    @property
    def seen(self) -> DriverDevice:
        return self.device.current()

    @rule(crash_at=st.none() | st.integers(1, 12))
    def it_is_cut(self, crash_at: int | None) -> None:
        was_used, before = self.is_used, self.seen
        right = {
            instance.uuid
            for instance in before.instances
            if instance.uuid and self.desired.shares == ((instance.profile, None),)
        }
        done = len(self.driver.changes)
        if crash_at is not None:
            self.driver.fail_at(crash_at, crash())
        try:
            end = bring_on(self.driver, self.desired, lambda: self.in_use)
        except Crash:
            end = None
        self.driver.heal()

        if was_used:
            assert self.seen == before, "a device that is in use was touched"
            assert len(self.driver.changes) == done
        assert right <= {instance.uuid for instance in self.device.instances}, (
            "a right instance is gone"
        )
        if end is None:
            assert not was_used
        elif isinstance(end, partition_planner.Done):
            self.as_desired()
        else:
            assert was_used or end.reason is partition_planner.BlockReason.RESET_NEEDED, end

    def as_desired(self) -> None:
        assert self.seen.is_mig_enabled == bool(self.desired.shares)
        assert self.seen.is_mig_pending is None
        assert Counter(self.device.layout) == LAYOUTS[self.desired.shares]
        assert len(self.device.instances) == len(self.device.layout)
        # And nothing more is done.
        done = len(self.driver.changes)
        assert bring_on(self.driver, self.desired, lambda: self.in_use) == partition_planner.Done()
        assert len(self.driver.changes) == done

    @invariant()
    def crashes_are_overcome(self) -> None:
        """From here, once nobody uses the device and resets are granted, it ends as wanted."""
        if not hasattr(self, "device") or self.is_used:
            return
        copy = FakeDriver(
            a_device(
                UUID,
                profiles=H100_PROFILES,
                needs_reset=self.device.needs_reset,
                is_mig_enabled=self.device.is_mig_enabled,
                is_mig_pending=self.device.is_mig_pending,
                instances=[
                    GpuInstance(instance.id, instance.profile, instance.uuid, start=instance.start)
                    for instance in self.device.instances
                ],
            )
        )
        for _ in range(2):
            end = bring_on(copy, self.desired, set)
            if end == partition_planner.Done():
                break
            assert isinstance(end, partition_planner.Blocked)
            assert end.reason is partition_planner.BlockReason.RESET_NEEDED
            copy.devices[0].reset()
        assert bring_on(copy, self.desired, set) == partition_planner.Done()
        assert Counter(copy.devices[0].layout) == LAYOUTS[self.desired.shares]


PROFILE = settings()
Cutting.TestCase.settings = settings(
    max_examples=max(100, PROFILE.max_examples), stateful_step_count=30
)
TestCutting = Cutting.TestCase
