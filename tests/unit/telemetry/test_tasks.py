"""Long tasks: whatever ends one is a fault that is logged once and ends the process."""

import asyncio

import pytest
from structlog.testing import capture_logs

from telemetry.tasks import TaskEndedError, forever


async def returns() -> None:
    return


async def fails() -> None:
    raise KeyError("pool")


async def holds_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(forever("inner", fails()))


async def test_task_that_returns_is_a_fault_by_name() -> None:
    with capture_logs() as logs, pytest.raises(TaskEndedError, match=r"^task feed returned$"):
        await forever("feed", returns())
    assert [(log["log_level"], log["task"]) for log in logs] == [("error", "feed")]


async def test_task_that_fails_is_a_fault_with_its_cause() -> None:
    with (
        capture_logs() as logs,
        pytest.raises(TaskEndedError, match=r"^task feed failed: 'pool'$") as caught,
    ):
        await forever("feed", fails())
    assert isinstance(caught.value.__cause__, KeyError)
    assert [(log["event"], log["task"], log["exc_info"]) for log in logs] == [
        ("task failed", "feed", True)
    ]


async def test_failure_of_an_inner_task_is_logged_once() -> None:
    with capture_logs() as logs, pytest.raises(TaskEndedError):
        await forever("outer", holds_a_group())
    assert [log["task"] for log in logs] == ["inner"]


async def test_cancelled_task_is_cancelled_and_no_fault() -> None:
    with capture_logs() as logs:
        task = asyncio.get_running_loop().create_task(forever("feed", asyncio.Event().wait()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert logs == []
