"""Logs: one JSON object a line on standard error, with a constant message and key/values.

`event` is the message; `level` and `time` (UTC) are always there, and `logger` where a library wrote
the line.
"""

import json
import logging
import sys
from typing import Any, Final, Literal

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

_log = structlog.get_logger()


def configure_logs(level: LogLevel) -> None:
    """Send structlog's and the standard library's records to standard error as JSON lines."""
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
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )
    handler = _Forwarding()
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)


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
