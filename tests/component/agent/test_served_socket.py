"""A socket that two processes serve one after the other, as the older and the newer pod of a DaemonSet do."""

import asyncio
import threading
from pathlib import Path

import pytest

from agent.files import file_identity
from agent.served_socket import ServedSocket, SocketState

TAKE_OVERS = 20


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "plugin.sock"


async def test_the_end_of_the_older_leaves_the_socket_of_the_newer(path: Path):
    older, newer = ServedSocket(path, ()), ServedSocket(path, ())
    assert await older.ensure() is SocketState.OPENED
    assert await newer.ensure() is SocketState.OPENED
    assert await older.ensure() is SocketState.TAKEN
    await older.stop(0)
    assert await newer.ensure() is SocketState.KEPT
    await newer.stop(0)
    assert list(path.parent.iterdir()) == []


async def test_the_path_is_never_without_a_socket_while_the_newer_takes_it(path: Path):
    """Without one the older would serve it again, and the newer would be registered with nobody."""
    before = ServedSocket(path, ())
    await before.ensure()
    over, absences = threading.Event(), []

    def watch() -> None:
        while not over.is_set():
            if file_identity(path) is None:
                absences.append(1)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for _ in range(TAKE_OVERS):
            newer = ServedSocket(path, ())
            await newer.ensure()
            await before.stop(0)
            await asyncio.sleep(0)
            before = newer
    finally:
        over.set()
        watching.join()
    assert not absences
    await before.stop(0)
