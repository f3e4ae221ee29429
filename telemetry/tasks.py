"""Named tasks that run for the life of the process: the end of one is a failure of the process."""

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Mapping

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)

_log = structlog.get_logger()


class TaskEndedError(Exception):
    """A task that should run for ever came to an end."""


class StoppedError(Exception):
    """The process was signalled to stop, and has drained."""


def start_all(group: asyncio.TaskGroup, tasks: "Mapping[str, Awaitable[object]]") -> None:
    """Run each by its name for the life of the group."""
    for name, work in tasks.items():
        group.create_task(forever(name, work), name=name)


async def forever(name: str, work: "Awaitable[object]") -> NoReturn:
    """Await a task that must not end; log its end, but not that of a task inside it again.

    Raises:
        TaskEndedError: the task ended; its exception, if any, is the cause.
    """
    try:
        await work
    except Exception as error:
        if not _is_logged(error):
            _log.exception("task failed", task=name)
        raise TaskEndedError(f"task {name} failed: {error}") from error
    _log.error("task returned, which it must not", task=name)
    raise TaskEndedError(f"task {name} returned")


@contextmanager
def stop_signals() -> "Iterator[asyncio.Event]":
    """Have SIGTERM and SIGINT set the event; while the context lasts they do nothing else."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOPPING:
        loop.add_signal_handler(number, signalled.set)
    try:
        yield signalled
    finally:
        for number in _STOPPING:
            loop.remove_signal_handler(number)


def _is_logged(error: Exception) -> bool:
    return isinstance(error, ExceptionGroup) and error.split(TaskEndedError)[1] is None
