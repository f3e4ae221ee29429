"""Which ends of a server are crashes."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.fault.forked import ForkedServer

NOBODY = 2**22 + 1
"""No process has this id: Linux gives none above 2**22."""


class Forks:
    """A fork server whose child ends with a status."""

    def __init__(self, status: int) -> None:
        self.run = self
        self._status = status

    def ask(self, request: dict[str, Any]) -> int:
        return NOBODY if "start" in request else self._status

    def started(self, pid: int) -> None:
        assert pid == NOBODY

    ended = started


def a_server(status: int) -> ForkedServer:
    forks: Any = Forks(status)
    return ForkedServer(forks, Path("log"), [], {})


@pytest.mark.parametrize(
    ("status", "expected"),
    [(0, []), (-signal.SIGKILL, []), (1, [1]), (-signal.SIGTERM, [-15]), (-signal.SIGSEGV, [-11])],
)
def test_end_that_nobody_asked_for_is_a_crash(status: int, expected: list[int]):
    server = a_server(status)
    server.start()
    assert not server.running
    assert server.crashes == expected


async def test_server_that_is_told_to_end_may_end_by_the_signal_itself():
    """In its first and last moments it listens to none."""
    server = a_server(-signal.SIGTERM)
    server.start()
    await server.terminate(within=1)
    assert server.crashes == []
    server.start()
    assert not server.running
    assert server.crashes == [-15]


async def test_server_that_is_told_to_end_must_not_fail():
    server = a_server(1)
    server.start()
    await server.terminate(within=1)
    assert server.crashes == [1]
