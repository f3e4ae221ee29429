"""Logs are JSON lines from every logger; tested in a process of their own, since they are set up once."""

import datetime as dt
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import asyncio, enum, logging, pathlib
import structlog
from telemetry.logs import configure_logs
configure_logs("info")
log = structlog.get_logger()
class Colour(enum.Enum):
    RED = "red"
log.debug("too quiet")
log.info("pod bound", pod="a/b", devices={"c": ("GPU-1",)}, colour=Colour.RED, folder=pathlib.Path("/x"))
log.warning("surrogate", text="\\ud800")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("decision failed", webhook="w")
library = logging.getLogger("library")
library.info("too quiet")
library.warning("odd %s", "thing")
library.log(35, "level of its own")
try:
    [][1]
except IndexError:
    library.exception("it broke")
"""


def run(program: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=30, check=True
    )
    assert done.stdout == b""
    return [json.loads(line) for line in done.stderr.splitlines()]


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return run(PROGRAM)


def test_every_line_is_an_object_with_time_level_and_event(lines: list[dict[str, Any]]):
    assert [(line["level"], line["event"]) for line in lines] == [
        ("info", "pod bound"),
        ("warning", "surrogate"),
        ("error", "decision failed"),
        ("warning", "odd thing"),
        ("warning", "level of its own"),
        ("error", "it broke"),
    ]
    for line in lines:
        assert dt.datetime.fromisoformat(line["time"]).utcoffset() == dt.timedelta(0)


def test_values_keep_their_form(lines: list[dict[str, Any]]):
    assert {key: lines[0][key] for key in ("pod", "devices", "colour", "folder")} == {
        "pod": "a/b",
        "devices": {"c": ["GPU-1"]},
        "colour": "red",
        "folder": "/x",
    }


def test_text_that_is_no_unicode_costs_no_line(lines: list[dict[str, Any]]):
    assert lines[1]["text"] == "\ud800"


def test_a_traceback_is_one_field_of_its_line(lines: list[dict[str, Any]]):
    assert lines[2]["exception"].endswith("ZeroDivisionError: division by zero")
    assert lines[5]["exception"].endswith("IndexError: list index out of range")


def test_lines_of_libraries_name_them_and_ours_have_no_logger_name(lines: list[dict[str, Any]]):
    assert [line.get("logger") for line in lines] == [None] * 3 + ["library"] * 3


def test_a_record_that_cannot_be_formatted_raises_nothing():
    program = """
import logging
import structlog
from telemetry.logs import configure_logs
logging.raiseExceptions = False
configure_logs("debug")
logging.getLogger("library").error("%d", "no number")
structlog.get_logger().debug("still here")
"""
    assert [line["event"] for line in run(program)] == ["still here"]


def test_lines_written_together_keep_their_order_whatever_is_in_one_of_them():
    program = """
import asyncio
import structlog
from telemetry.logs import configure_logs
lines = configure_logs("info")
log = structlog.get_logger()
async def main():
    flushing = asyncio.ensure_future(lines.flush_regularly())
    await asyncio.sleep(0)
    log.info("first")
    log.info("odd", number=2**80, text="\\ud800")
    log.info("last")
    flushing.cancel()
asyncio.run(main())
"""
    assert [line["event"] for line in run(program)] == ["first", "odd", "last"]


AWAY = """
import structlog
from telemetry.logs import configure_logs
configure_logs("info")
for task in range(9):
    structlog.get_logger().warning("task failed", cause="Unreachable", error="refused", task=task)
structlog.get_logger().warning("refused", cause="Forbidden", task=10)
"""


def test_an_api_server_that_is_away_is_one_line_of_all_tasks():
    lines = run(AWAY)
    assert [(line["event"], line["level"]) for line in lines] == [
        ("API server does not answer", "warning"),
        ("refused", "warning"),
    ]
    assert lines[0]["error"] == "refused"


FOR_PEOPLE = """
import structlog, enum
from telemetry.logs import configure_logs
class Colour(enum.Enum):
    RED = "red"
configure_logs("info"{format})
log = structlog.get_logger()
log.info("pod bound", pod="a/b", colour=Colour.RED, text="\\x1b[2Jx")
try:
    secret = "sesame"
    1 / 0
except ZeroDivisionError:
    log.exception("decision failed")
"""


def terminal_output(program: str, **environ: str) -> str:
    """Return what the program writes to a terminal."""
    master, slave = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            stderr=slave,
            timeout=60,
            check=True,
            env={**os.environ, **environ},
        )
    finally:
        os.close(slave)
    printed = b""
    try:
        while part := os.read(master, 4096):
            printed += part
    except OSError:
        pass  # Linux' way to say that the other end is closed
    finally:
        os.close(master)
    return printed.decode()


def test_on_a_terminal_lines_are_for_people():
    printed = terminal_output(FOR_PEOPLE.replace("{format}", ""))
    plain = re.sub("\x1b\\[[0-9;]*m", "", printed)
    assert printed != plain
    assert re.match(r"\d\d:\d\d:\d\d \[info +\] pod bound +", plain)
    assert "pod=a/b" in plain
    assert "colour=red" in plain
    assert "ZeroDivisionError: division by zero" in plain
    assert "sesame" not in plain.replace('secret = "sesame"', "")
    assert "\x1b[2J" not in printed


def test_a_terminal_without_colour_gets_none():
    assert "\x1b[" not in terminal_output(FOR_PEOPLE.replace("{format}", ""), NO_COLOR="1")


def test_json_can_be_asked_for_on_a_terminal_and_text_elsewhere():
    printed = terminal_output(FOR_PEOPLE.replace("{format}", ', "JSON"'))
    assert json.loads(printed.splitlines()[0])["event"] == "pod bound"
    program = FOR_PEOPLE.replace("{format}", ', "Console"')
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=60, check=True
    )
    assert b"pod bound" in done.stderr
    assert not done.stderr.startswith(b"{")
    assert b"\x1b[" not in done.stderr
