"""Named tasks that run for the life of the process: the end of one is a failure of the process."""

from typing import TYPE_CHECKING, NoReturn

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable

_log = structlog.get_logger()


class TaskEndedError(Exception):
    """A task that should run for ever came to an end."""


class StoppedError(Exception):
    """The process was signalled to stop, and has drained."""


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


def _is_logged(error: Exception) -> bool:
    return isinstance(error, ExceptionGroup) and error.split(TaskEndedError)[1] is None
