"""Logs: one JSON object a line on standard error, with a constant message and key/values.

On a terminal the same is aligned and coloured text.

`event` is the message; `level` and `time` (UTC) are always there, and `logger` where a library wrote
the line.
"""

import asyncio
import atexit
import datetime as dt
import enum
import json
import logging
import os
import sys
import time
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NoReturn, final

import msgspec
import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

OUTAGE_EVENT: Final = "API server does not answer"
OUTAGE_EVERY_S: Final = 10.0
OUTAGE_CAUSES: Final = frozenset({"Unreachable", "TimedOut"})
"""Errors of `kube.errors` that are no answer. Refusals differ between resources, so that each is a line."""


@final
@dataclass(slots=True)
class _ReportedOutage:
    at: float
    left_out: int = 0


@final
class Outages:
    """Lines of the last ten seconds, by cause: an API server that does not answer is one line in that time.

    Every task retries by itself and logs each failure with its `cause`, the name of an error of `kube.errors`. The first
    record of a cause becomes the line; those of the next `OUTAGE_EVERY_S` are counted.
    """

    def __init__(self) -> None:
        self._reported: dict[str, _ReportedOutage] = {}

    def summary(self, record: "Mapping[str, Any]", now: float) -> dict[str, Any] | None:
        """Return the line to log for a record with a cause, or None for no line.

        A line names one of the tasks that wait, and the number of records that were left out before it.
        """
        cause = record["cause"]
        if cause not in OUTAGE_CAUSES:
            return dict(record)
        reported = self._reported.get(cause)
        if reported is not None and now < reported.at + OUTAGE_EVERY_S:
            reported.left_out += 1
            return None
        self._reported[cause] = _ReportedOutage(now)
        line = {"event": OUTAGE_EVENT, "cause": cause, "error": record.get("error", "")}
        line["during"] = record["event"]
        return line if reported is None else {**line, "left_out": reported.left_out}


LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["Auto", "JSON", "Console"]

_LEVELS: Final = (
    logging.CRITICAL,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.DEBUG,
)

FLUSH_EVERY_S: Final = 0.2
_MAX_BUFFERED: Final = 512
"""Records; a line is about 300 bytes."""

_log = structlog.get_logger()


Record = MutableMapping[str, Any]


@final
class LogLines:
    """Where lines go out. Each at once, until `flush_regularly` runs.

    From then on records below `warning` are encoded and written together: a line a decision is thousands
    of system calls a second, which cost as much as the decisions, and kube-scheduler waits for no line.
    Their values must not change once they are logged. A killed process loses the last of them.
    """

    def __init__(
        self, file: IO[bytes], encode: "Callable[[Sequence[Record]], bytes] | None" = None
    ) -> None:
        self._file = file
        self._encode = encode or _encode
        self._records: list[Record] = []
        self._is_buffering = False

    def info(self, record: Record) -> None:
        """Take a record that can wait."""
        self._records.append(record)
        if not self._is_buffering or len(self._records) >= _MAX_BUFFERED:
            self.flush()

    def warning(self, record: Record) -> None:
        """Take a record that cannot wait."""
        self._records.append(record)
        self.flush()

    debug = info
    error = critical = fatal = exception = warning

    def flush(self) -> None:
        """Write the buffered records, in one call."""
        if self._records:
            text = self._encode(self._records)
            self._records.clear()
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


def configure_logs(level: LogLevel, format_: LogFormat = "Auto") -> LogLines:
    """Send structlog's and the standard library's records to standard error.

    Auto is Console where standard error is a terminal, and JSON elsewhere.
    """
    is_for_people = format_ == "Console" or (format_ == "Auto" and sys.stderr.isatty())
    lines = LogLines(sys.stderr.buffer, _console_encoder() if is_for_people else _encode)
    atexit.register(lines.flush)
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[_Completion()],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )
    handler = _Forwarding()
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)
    return lines


@final
class _Completion:
    """Gives `LogLines` the record itself, with what every line has: it is encoded when it is written.

    One processor instead of a chain, since the caller of a decision waits for its line.
    """

    def __init__(self) -> None:
        self._outages = Outages()

    def __call__(
        self, logger: object, method: str, record: Record
    ) -> tuple[tuple[Record], dict[str, Any]]:
        if method == "warning" and "cause" in record:
            summary = self._outages.summary(record, time.monotonic())
            if summary is None:
                raise structlog.DropEvent
            record = summary
        record["level"] = method
        record["time"] = dt.datetime.now(dt.UTC)  # noqa: TID251  # lines tell the machine's time
        if "exc_info" in record:
            structlog.processors.format_exc_info(logger, method, record)
        return (record,), {}


def _console_encoder() -> "Callable[[Sequence[Record]], bytes]":
    """Return what writes records for a terminal: local time of day, level, message, values."""
    renderer = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ, timestamp_key="time"
    )

    def line_of(record: Record) -> str:
        printed = {key: _printed(key, value) for key, value in record.items()}
        printed["time"] = record["time"].astimezone().strftime("%H:%M:%S")
        return renderer(None, record["level"], printed) + "\n"

    return lambda records: "".join(map(line_of, records)).encode("utf-8", "backslashreplace")


def _printed(key: str, value: object) -> object:
    """Return what a terminal shows; it would obey control characters, which foreign texts may have."""
    if isinstance(value, enum.Enum):
        return value.value
    is_plain = not isinstance(value, str) or value.isprintable() or key == "exception"
    return value if is_plain else repr(value)


def _encode(records: "Sequence[Record]") -> bytes:
    try:
        return _encoder.encode_lines(records)
    except (TypeError, ValueError, OverflowError):
        return b"".join(map(_encode_odd, records))


def _encode_odd(record: Record) -> bytes:
    """Encode a record with a value that JSON cannot represent."""
    try:
        return _encoder.encode_lines([record])
    except (TypeError, ValueError, OverflowError):
        # A lone surrogate, a huge number, a key of another type.
        record["time"] = record["time"].isoformat()
        return json.dumps(record, default=str, skipkeys=True).encode("ascii") + b"\n"


_encoder = msgspec.json.Encoder(enc_hook=str)


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
        level = next((item for item in _LEVELS if item <= record.levelno), logging.DEBUG)
        _log.log(level, message, logger=record.name, exc_info=record.exc_info)
