"""Logs: one JSON object a line on standard error, with a constant message and key/values.

`event` is the message, `level`, `time` (UTC) and `logger` are always there.
"""

import logging
import sys
from typing import Any, Literal

import msgspec
import structlog

LogLevel = Literal["debug", "info", "warning", "error"]


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
    return msgspec.json.encode(record, enc_hook=str)


class _Forwarding(logging.Handler):
    """Standard-library records (aiohttp, asyncio) in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the record to structlog."""
        logger = structlog.get_logger(logger=record.name)
        logger.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
