"""Logs: one JSON object a line on standard error, with a constant message and key/values.

`event` is the message; `level` and `time` (UTC) are always there, and `logger` where a library wrote
the line.
"""

import asyncio
import atexit
import json
import logging
import sys
from typing import IO, Any, Final, Literal, NoReturn, final

import msgspec
import structlog

LogLevel = Literal["debug", "info", "warning", "error"]

_LEVELS: Final = (
    logging.CRITICAL,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.DEBUG,
)

FLUSH_EVERY_S: Final = 0.2
_MAX_BUFFERED: Final = 512
"""Lines; a line is about 300 bytes."""

_log = structlog.get_logger()


@final
class LogLines:
    """Where lines go out. Each at once, until `flush_regularly` runs.

    From then on lines below `warning` are written together: a line a decision is thousands of system
    calls a second, which cost as much as the decisions. A killed process loses the last of them.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lines: list[bytes] = []
        self._is_buffering = False

    def info(self, line: bytes) -> None:
        """Take a line that can wait."""
        self._lines.append(line)
        if not self._is_buffering or len(self._lines) >= _MAX_BUFFERED:
            self.flush()

    def warning(self, line: bytes) -> None:
        """Take a line that cannot wait."""
        self._lines.append(line)
        self.flush()

    debug = info
    error = critical = fatal = exception = warning

    def flush(self) -> None:
        """Write what was taken, in one call."""
        if self._lines:
            text = b"\n".join([*self._lines, b""])
            self._lines.clear()
            self._file.write(text)
            self._file.flush()

    async def flush_regularly(self) -> NoReturn:
        """Write lines together from now on, until cancelled."""
        self._is_buffering = True
        try:
            while True:
                await asyncio.sleep(FLUSH_EVERY_S)
                self.flush()
        finally:
            self._is_buffering = False
            self.flush()


def configure_logs(level: LogLevel) -> LogLines:
    """Send structlog's and the standard library's records to standard error as JSON lines."""
    lines = LogLines(sys.stderr.buffer)
    atexit.register(lines.flush)
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_encode),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )
    handler = _Forwarding()
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)
    return lines


def _encode(record: dict[str, Any], **_options: object) -> bytes:
    try:
        return msgspec.json.encode(record, enc_hook=str)
    except (TypeError, ValueError, OverflowError):
        # A lone surrogate, a huge number, a key of another type: a line is worth more than its form.
        return json.dumps(record, default=str, skipkeys=True).encode("ascii")


class _Forwarding(logging.Handler):
    """Standard-library records (aiohttp, asyncio) in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the record to structlog; one that cannot be formatted is reported, never raised."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            self.handleError(record)
            return
        # Libraries may have levels of their own; structlog knows these.
        level = next((one for one in _LEVELS if one <= record.levelno), logging.DEBUG)
        _log.log(level, message, logger=record.name, exc_info=record.exc_info)
