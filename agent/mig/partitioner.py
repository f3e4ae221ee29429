"""Cuts the node's cards as their pools want them, one step at a time, and tells what holds it up.

A card is looked at, its next step is planned (`agent.mig.planner`) and taken, and it is looked at again, until it is
done or held up. Who uses it is asked between the look and the step, with no `await` after the answer; what
may happen nevertheless, and who prevents harm then, is said in `agent.mig.planner`.

While a card is being cut its instances come one by one: `cutting` names it, so that none of an unfinished
layout is published, given out, and in the way of the rest. `after_change` is called once the card is
finished or stuck.
"""

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Final, NoReturn, final, get_args

import structlog

from agent.errors import DriverUnavailableError, PartitioningError
from agent.mig.planner import (
    Action,
    Blocked,
    BlockReason,
    Complete,
    Create,
    Destroy,
    DisableMode,
    Done,
    EnableMode,
    LeaveAlone,
    mig_layout,
    next_step,
    wanted_of,
)
from agent.mig.progress import EVERY_S, Progress, Wish
from api.text import MAX_MESSAGE_LENGTH, truncate
from kube.backoff import Backoff
from telemetry.agent_metrics import PARTITIONINGS
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from typing import Literal

    from agent.driver.port import Driver, DriverDevice
    from agent.mig.dependencies import PartitionerDependencies
    from agent.mig.planner import Step
    from api.clock import Clock
    from api.kinds.gpudevice import GPUDevice

COALESCE_S: Final = 0.1
MAX_STEPS: Final = 64
"""Of one card at a time: destroying seven instances and making seven, with the mode, is sixteen."""
TASK: Final = "card.partitioning"
SOURCE: Final = "partitioning"
"""Of the problem that is told."""

_log = structlog.get_logger()


@final
class Partitioner:
    """Brings the node's cards to what their pools want; `run` is its only task."""

    def __init__(
        self, driver: "Driver", dependencies: "PartitionerDependencies", clock: "Clock"
    ) -> None:
        self._driver = driver
        self._dependencies = dependencies
        self._clock = clock
        self._progress: dict[str, Progress] = {}
        # name of a GPUDevice -> how far its card is
        self._poked = asyncio.Event()
        self._unavailable = Backoff()
        TASK_FAILURES.labels(TASK)
        for step in get_args(Action):
            for outcome in ("done", "refused"):
                PARTITIONINGS.labels(step.__name__, outcome)

    @property
    def cutting(self) -> frozenset[str]:
        """Return the UUIDs of cards whose layout is unfinished: their instances are not to be published."""
        return frozenset(one.wish.uuid for one in self._progress.values() if one.is_cutting)

    @property
    def problem(self) -> str:
        """Return what was told to be held up, device by device; empty where nothing is."""
        texts = (
            f"{device}: {progress.blocked.text}"
            for device, progress in sorted(self._progress.items())
            if progress.blocked is not None and progress.is_told
        )
        return truncate("; ".join(texts), MAX_MESSAGE_LENGTH)

    def poke(self) -> None:
        """Have everything planned again soon: a device, a pool or a pod changed."""
        self._poked.set()

    async def run(self) -> NoReturn:
        """Cut cards until cancelled; what fails is told, counted and tried again."""
        while True:
            self._poked.clear()
            try:
                await self.work()
            except DriverUnavailableError as error:
                # That the driver is away is told by who looks at it regularly.
                TASK_FAILURES.labels(TASK).inc()
                delay_s = self._unavailable.fail()
                _log.warning("cards not cut", error=truncate(str(error)), retry_s=round(delay_s, 1))
                await asyncio.sleep(delay_s)
                continue
            self._unavailable.succeed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._next_in_s()):
                    await self._poked.wait()
            # Devices change in bursts.
            await asyncio.sleep(COALESCE_S)

    async def work(self) -> None:
        """Bring every card as far as it goes now; the driver is not asked where nothing is due.

        Raises:
            DriverUnavailable: the driver cannot be asked; the other cards wait, too.
        """
        now = self._clock.monotonic()
        wishes = self._wishes()
        for gone in self._progress.keys() - wishes.keys():
            del self._progress[gone]
        due = [name for name, wish in wishes.items() if not self._towards(name, wish).waits(now)]
        try:
            gpus = await self._look() if due else {}
            for name in due:
                gpus = await self._bring_on(name, gpus)
        finally:
            self._tell_problem()

    # --- one card --------------------------------------------------------------------------------

    async def _bring_on(
        self, name: str, gpus: "dict[str, DriverDevice]"
    ) -> "dict[str, DriverDevice]":
        """Take one device's card as far as it goes now; return the cards as they were seen last."""
        before: DriverDevice | None = None
        try:
            for taken in itertools.count():
                # From here to the step nothing is awaited: what is found now holds for it.
                device, wish = self._wish_of(name)
                if device is None or wish is None:
                    self._progress.pop(name, None)
                    break
                progress = self._towards(name, wish)
                gpu = gpus.get(wish.uuid)
                step = self._plan(gpu, wish, before, is_last=taken == MAX_STEPS)
                if isinstance(step, Action):
                    progress.begin()
                    step = await self._take(wish.uuid, step) or step
                if not isinstance(step, Action):
                    self._settle(device, gpu, step)
                    break
                progress.step()
                before = gpu
                gpus = await self._look()
        finally:
            if before is not None:
                self._dependencies.after_change()
        return gpus

    def _plan(
        self,
        gpu: "DriverDevice | None",
        wish: Wish,
        before: "DriverDevice | None",
        *,
        is_last: bool,
    ) -> "Step":
        if gpu is None:
            return Blocked(BlockReason.LOST, "the driver does not show it")
        health, in_use = self._dependencies.health(gpu.uuid), self._dependencies.in_use()
        step = next_step(gpu, wish.wanted, health=health, in_use=in_use)
        if not isinstance(step, Action):
            return step
        if before is not None and mig_layout(before) == mig_layout(gpu):
            # A driver that says yes and does nothing is not asked again at once.
            return Blocked(
                BlockReason.REFUSED, f"the driver took {_name(step)}, and nothing changed"
            )
        if is_last:
            return Blocked(
                BlockReason.REFUSED, "its layout changes back again and again: who else cuts it?"
            )
        return step

    async def _take(self, uuid: str, step: Action) -> Blocked | None:
        """Take a step; return what the driver said where it refuses."""
        try:
            await self._carry_out(uuid, step)
        except PartitioningError as error:
            PARTITIONINGS.labels(_name(step), "refused").inc()
            return Blocked(
                BlockReason.REFUSED, f"the driver refuses {_name(step)}: {truncate(str(error))}"
            )
        PARTITIONINGS.labels(_name(step), "done").inc()
        _log.info("step of cutting", uuid=uuid, step=str(step))
        return None

    async def _carry_out(self, uuid: str, step: Action) -> None:
        match step:
            case EnableMode():
                await self._driver.set_mig(uuid, is_enabled=True)
            case DisableMode():
                await self._driver.set_mig(uuid, is_enabled=False)
            case Destroy():
                await self._driver.destroy_instance(uuid, step.gpu_instance)
            case Complete():
                await self._driver.complete_instance(uuid, step.gpu_instance)
            case Create():  # pragma: no branch  # mypy proves that none is missing
                await self._driver.create_instance(uuid, step.profile)

    def _settle(self, device: "GPUDevice", gpu: "DriverDevice | None", end: Done | Blocked) -> None:
        now = self._clock.monotonic()
        progress = self._progress[device.name]
        uuid, wanted = progress.wish.uuid, str(progress.wish.wanted)
        if isinstance(end, Done):
            if progress.finish(now):
                count = len(gpu.instances) if gpu is not None else 0
                text = f"the card {uuid} is {wanted}" + (f" ({count} of them)" if count else "")
                _log.info("card cut", device=device.name, uuid=uuid, wanted=wanted)
                self._tell(device, EventReason.DEVICE_PARTITIONED, text, type_="Normal")
            return
        if end != progress.blocked:
            _log.warning(
                "card not cut",
                device=device.name,
                uuid=uuid,
                address=device.status.pci.address,
                wanted=wanted,
                cause=end.reason.value,
                text=end.text,
            )
        if progress.block(end, now):
            text = f"the card {uuid} is to be {wanted}: {end.text}"
            self._tell(device, EventReason.PARTITIONING_BLOCKED, text, type_="Warning")

    # --- what is known ---------------------------------------------------------------------------

    def _wishes(self) -> dict[str, Wish]:
        names = sorted(device.name for device in self._dependencies.wishes.devices())
        found = ((name, self._wish_of(name)[1]) for name in names)
        return {name: wish for name, wish in found if wish is not None}

    def _wish_of(self, name: str) -> "tuple[GPUDevice | None, Wish | None]":
        devices = tuple(self._dependencies.wishes.devices())
        device = next((one for one in devices if one.name == name), None)
        if device is None or [one.status.uuid for one in devices].count(device.status.uuid) > 1:
            # Of two devices that claim one card, neither says how it is to be.
            return device, None
        wanted = wanted_of(device, self._dependencies.wishes.pools())
        if isinstance(wanted, LeaveAlone):
            return device, None
        return device, Wish(device.status.uuid, wanted)

    def _towards(self, name: str, wish: Wish) -> Progress:
        progress = self._progress.get(name)
        if progress is None or progress.wish != wish:
            progress = self._progress[name] = Progress(wish)
        return progress

    async def _look(self) -> "dict[str, DriverDevice]":
        return {gpu.uuid: gpu for gpu in (await self._driver.look()).devices}

    def _next_in_s(self) -> float:
        now = self._clock.monotonic()
        return max(
            0.0, min((one.next_at - now for one in self._progress.values()), default=EVERY_S)
        )

    def _tell(
        self,
        device: "GPUDevice",
        reason: EventReason,
        text: str,
        *,
        type_: "Literal['Normal', 'Warning']",
    ) -> None:
        self._dependencies.events.tell_device(device, reason, text, type_=type_)

    def _tell_problem(self) -> None:
        text = self.problem
        if text:
            self._dependencies.problems.set(SOURCE, AgentDegraded.PARTITIONING_BLOCKED, text)
        else:
            self._dependencies.problems.clear(SOURCE)


def _name(step: Action) -> str:
    return type(step).__name__
