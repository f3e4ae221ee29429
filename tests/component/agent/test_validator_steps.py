"""A step of the validator from its start to its deadline, and as the process of an init container."""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from agent.errors import StepFailedError
from agent.validator.step_run import StepTimes, run_step, wait_for_file
from agent.validator.steps import Failed, Outcome, Passed, ValidationStep
from cli.exit_status import FAILED, MISUSED, OK
from cli.main import run
from tests.support.loop_clock import LoopClock
from tests.support.nvml.library import a_device
from tests.support.polling import LIMIT_S, until
from tests.support.validated_node import ValidatedNode


class Scripted:
    """A check whose outcomes are written down; the last one stays."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.left = list(outcomes)
        self.reads = 0

    def signature(self) -> object:
        return None

    async def run(self) -> Outcome:
        self.reads += 1
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.fixture
def node(tmp_path: Path) -> ValidatedNode:
    return ValidatedNode(tmp_path, a_device(0))


async def run_with(node: ValidatedNode, check: Scripted, step: ValidationStep) -> float:
    """Run a step in virtual time; return how long it took."""
    clock = LoopClock()
    begun = clock.monotonic()
    await run_step(step, check, node.files, clock=clock, times=StepTimes())
    return clock.monotonic() - begun


@pytest.mark.looptime
async def test_a_step_is_repeated_until_it_passes(node: ValidatedNode):
    check = Scripted(Failed("no driver"), Failed("no driver"), Passed("driver", {"A": "b"}))
    assert await run_with(node, check, ValidationStep.DRIVER) == 10
    assert check.reads == 3
    assert node.ready() == ["driver"]


@pytest.mark.looptime
async def test_a_step_ends_at_its_deadline_with_its_last_cause(node: ValidatedNode):
    """Lesson 51."""
    check = Scripted(Failed("no driver"), Failed("no files"))
    with pytest.raises(StepFailedError, match="driver: no files"):
        await run_with(node, check, ValidationStep.DRIVER)
    assert LoopClock().monotonic() == 60
    assert check.reads == 13
    assert node.ready() == []


@pytest.mark.looptime
async def test_the_files_of_a_step_and_of_later_ones_go_before_its_first_look(node: ValidatedNode):
    """They are those of a killed pod."""
    for step in ValidationStep:
        node.files.write(step, {})
    with pytest.raises(StepFailedError):
        await run_with(node, Scripted(Failed("no")), ValidationStep.TOOLKIT)
    assert node.ready() == ["driver", "nvidia-fs", "gdrcopy"]


@pytest.mark.looptime
async def test_a_check_that_never_ends_is_ended(node: ValidatedNode):
    class Endless(Scripted):
        async def run(self) -> Outcome:
            await asyncio.Event().wait()
            return Passed("never")

    with pytest.raises(StepFailedError, match="cuda: the check does not end"):
        await run_with(node, Endless(Failed("")), ValidationStep.CUDA)
    assert LoopClock().monotonic() == 60


@pytest.mark.looptime
async def test_files_that_cannot_be_written_end_the_step_with_their_cause(
    node: ValidatedNode, tmp_path: Path
):
    (tmp_path / "validations").symlink_to(tmp_path)
    with pytest.raises(StepFailedError, match="symbolic link: remove it"):
        await run_with(node, Scripted(Passed("good")), ValidationStep.DRIVER)


@pytest.mark.looptime
async def test_a_file_is_waited_for(node: ValidatedNode):
    clock = LoopClock()
    wait = partial(
        wait_for_file, ValidationStep.TOOLKIT, node.files, clock=clock, times=StepTimes()
    )
    with pytest.raises(StepFailedError, match="the validator has not written toolkit-ready"):
        await wait()
    begun = clock.monotonic()
    async with asyncio.TaskGroup() as group:
        group.create_task(wait())
        await asyncio.sleep(12)
        node.files.write(ValidationStep.TOOLKIT, {})
    assert clock.monotonic() - begun == 15


# --- as a process --------------------------------------------------------------------------------


@asynccontextmanager
async def a_process(node: ValidatedNode, step: str, *more: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-m",
        "cli",
        "validate",
        *flags(node, step),
        *more,
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def flags(node: ValidatedNode, step: str) -> Sequence[str]:
    folder = node.root.parent
    paths = {
        "driver-root": node.root,
        "dev-root": node.dev,
        "sysfs": node.sysfs,
        "procfs": node.procfs,
        "validations-directory": folder / "validations",
        "termination-log": folder / "termination-log",
    }
    return [step, "--retry-s=0.05", *(f"--{name}={path}" for name, path in paths.items())]


async def ended(process: Process) -> int:
    async with asyncio.timeout(LIMIT_S):
        await process.communicate()
    assert process.returncode is not None
    return process.returncode


@pytest.mark.parametrize("step", ["driver", "toolkit", "cuda", "gdrcopy", "nvidia-fs"])
async def test_every_step_passes_as_a_process(node: ValidatedNode, step: str):
    node.specify()
    node.make_device("gdrdrv")
    node.load_module("gdrdrv")
    node.load_module("nvidia_fs")
    async with a_process(node, step) as process:
        assert await ended(process) == OK
    assert node.ready() == [step]


async def test_a_failed_step_leaves_its_cause_for_kubelet(node: ValidatedNode):
    message = node.root.parent / "termination-log"
    message.touch()
    node.nvml.unload_driver()
    async with a_process(node, "driver", "--deadline-s=0.1") as process:
        assert await ended(process) == FAILED
    assert message.read_text().startswith("driver: NVML: Driver Not Loaded")
    assert node.ready() == []


@pytest.mark.parametrize(
    ("step", "function"),
    [
        ("driver", "nvmlDeviceGetCount_v2"),
        ("toolkit", "nvmlDeviceGetCount_v2"),
        ("cuda", "nvmlDeviceGetCount_v2"),
        ("cuda", "cuMemcpyDtoD_v2"),
    ],
)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_step_that_is_killed_leaves_no_lie(
    node: ValidatedNode, step: str, function: str, how: signal.Signals
):
    node.specify()
    for earlier in ValidationStep:
        node.files.write(earlier, {})
    node.nvml.hang(function)
    async with a_process(node, step) as process:
        await until(lambda: step not in node.ready())
        process.send_signal(how)
        assert await ended(process) != OK
    node.nvml.unhang()
    assert step not in node.ready()
    async with a_process(node, step) as process:
        assert await ended(process) == OK
    assert step in node.ready()


async def test_an_init_container_of_another_operand_waits(node: ValidatedNode):
    async with a_process(node, "toolkit", "--wait") as process:
        node.files.write(ValidationStep.TOOLKIT, {})
        assert await ended(process) == OK


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no step"),
        pytest.param(["plugin"], id="a step of the running validator"),
        pytest.param(["driver", "--deadline-s", "0"], id="no time"),
        pytest.param(["driver", "--retry-s", "soon"], id="no number"),
        pytest.param(["driver", "--hand-out", "Magic"], id="unknown way"),
        pytest.param(["driver", "--deadline", "3"], id="unknown flag"),
    ],
)
def test_an_invalid_command_line_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    assert run(["validate", *arguments]) == MISUSED
    assert capsys.readouterr().err
