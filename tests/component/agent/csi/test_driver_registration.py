"""How kubelet finds the driver, and that it finds it again whatever restarts or goes."""

import asyncio
import socket as sockets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.csi.identity_service import IdentityService
from agent.csi.node_service import NodeService
from agent.csi.registration import REGISTERED_WITHIN_S, RegisteredDriver
from agent.csi.volume_targets import VolumeTargets
from agent.problems.registry import NO_PROBLEM, ProblemRegistry
from api.csi.names import DRIVER_NAME, REGISTRATION_SOCKET
from telemetry.conditions import AgentDegraded
from tests.component.agent.csi.driver import NODE, calls_of_driver
from tests.support.csi import MounterDouble, StoreDouble
from tests.support.hand_clock import HandClock
from tests.support.kubelet.plugin_watcher import PluginWatcher
from tests.support.polling import until

KNOWN = {DRIVER_NAME: NODE}


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def problems() -> ProblemRegistry:
    return ProblemRegistry()


@pytest.fixture
def watcher(folder: Path) -> PluginWatcher:
    directory = folder / "plugins_registry"
    directory.mkdir()
    return PluginWatcher(directory)


def a_registered_driver(
    folder: Path, clock: HandClock, problems: ProblemRegistry
) -> RegisteredDriver:
    socket = folder / "plugins" / "csi-gkm" / "csi.sock"
    pods = folder / "pods"
    node = NodeService(NODE, StoreDouble(), VolumeTargets(pods, MounterDouble()), pods=pods)
    calls = calls_of_driver()
    return RegisteredDriver(
        socket,
        folder / "plugins_registry",
        endpoint=str(socket),
        handlers=[IdentityService().handlers(calls), node.handlers(calls)],
        clock=clock,
        problems=problems,
    )


@pytest.fixture
async def registered(
    folder: Path, clock: HandClock, problems: ProblemRegistry
) -> AsyncIterator[RegisteredDriver]:
    opened = a_registered_driver(folder, clock, problems)
    yield opened
    await opened.close()


def registration_socket(watcher: PluginWatcher) -> Path:
    return watcher.directory / REGISTRATION_SOCKET


async def test_kubelet_finds_the_driver_by_its_socket(
    registered: RegisteredDriver, watcher: PluginWatcher, problems: ProblemRegistry
):
    assert registered.missing == ["csi.gkm.io is not registered with kubelet"]
    await registered.reconcile()
    assert registered.missing != []
    await watcher.scan()
    assert watcher.nodes == KNOWN
    assert registered.missing == []
    await registered.reconcile()
    assert problems.summary() == NO_PROBLEM


async def test_a_kubelet_that_restarts_finds_it_without_any_doing(
    registered: RegisteredDriver, watcher: PluginWatcher
):
    await registered.reconcile()
    await watcher.scan()
    for _ in range(3):
        watcher.restart()
        await watcher.scan()
        assert watcher.nodes == KNOWN
        assert registered.is_registered


async def test_a_registration_socket_that_was_deleted_is_served_again(
    registered: RegisteredDriver, watcher: PluginWatcher
):
    await registered.reconcile()
    await watcher.scan()
    registration_socket(watcher).unlink()
    await watcher.scan()
    assert watcher.nodes == {}
    await registered.reconcile()
    assert not registered.is_registered
    await watcher.scan()
    assert watcher.nodes == KNOWN
    assert registered.is_registered


async def test_a_driver_socket_that_was_deleted_is_served_again(
    registered: RegisteredDriver, watcher: PluginWatcher, folder: Path
):
    await registered.reconcile()
    await watcher.scan()
    (folder / "plugins" / "csi-gkm" / "csi.sock").unlink()
    await registered.reconcile()
    # It is asked at its endpoint.
    watcher.restart()
    await watcher.scan()
    assert watcher.nodes == KNOWN


async def test_both_directories_may_be_wiped(
    registered: RegisteredDriver, watcher: PluginWatcher, folder: Path
):
    await registered.reconcile()
    await watcher.scan()
    registration_socket(watcher).unlink()
    (folder / "plugins" / "csi-gkm" / "csi.sock").unlink()
    (folder / "plugins" / "csi-gkm").rmdir()
    await watcher.scan()
    await registered.reconcile()
    await watcher.scan()
    assert watcher.nodes == KNOWN


async def test_sockets_that_a_killed_agent_left_are_replaced(
    registered: RegisteredDriver, watcher: PluginWatcher, folder: Path
):
    directory = folder / "plugins" / "csi-gkm"
    directory.mkdir(parents=True)
    for path in (directory / "csi.sock", registration_socket(watcher)):
        with sockets.socket(sockets.AF_UNIX) as left:
            left.bind(str(path))
    await watcher.scan()
    await registered.reconcile()
    await watcher.scan()
    assert watcher.nodes == KNOWN


async def test_the_older_of_two_agents_leaves_the_sockets_to_the_newer(
    registered: RegisteredDriver,
    watcher: PluginWatcher,
    folder: Path,
    clock: HandClock,
    problems: ProblemRegistry,
):
    await registered.reconcile()
    await watcher.scan()
    newer = a_registered_driver(folder, clock, ProblemRegistry())
    await newer.reconcile()
    await watcher.scan()
    assert newer.is_registered
    await registered.reconcile()
    socket = folder / "plugins" / "csi-gkm" / "csi.sock"
    assert problems.summary().text == f"csi.gkm.io: another process serves {socket}"
    assert watcher.nodes == KNOWN
    # What an ending server removes is served again.
    await registered.close()
    await newer.reconcile()
    await watcher.scan()
    assert watcher.nodes == KNOWN
    assert newer.is_registered
    await newer.close()


async def test_a_refusal_of_kubelet_is_reported_until_it_agrees(
    registered: RegisteredDriver, watcher: PluginWatcher, problems: ProblemRegistry
):
    watcher.refusal = "plugin registration failed with err: no node"
    await registered.reconcile()
    await watcher.scan()
    await registered.reconcile()
    assert problems.summary().reason is AgentDegraded.NOT_REGISTERED
    assert problems.summary().text == (
        "csi.gkm.io: kubelet refuses it: plugin registration failed with err: no node"
    )
    assert registered.missing != []
    watcher.refusal = ""
    await watcher.scan()
    await registered.reconcile()
    assert problems.summary() == NO_PROBLEM
    assert registered.missing == []


async def test_a_directory_that_kubelet_does_not_watch_is_reported(
    registered: RegisteredDriver,
    watcher: PluginWatcher,
    problems: ProblemRegistry,
    clock: HandClock,
):
    await registered.reconcile()
    clock.seconds += REGISTERED_WITHIN_S - 0.1
    await registered.reconcile()
    assert problems.summary() == NO_PROBLEM
    clock.seconds += 0.1
    await registered.reconcile()
    assert problems.summary().text == (
        f"csi.gkm.io: kubelet does not register it: is {watcher.directory} its directory"
        " plugins_registry?"
    )


async def test_a_directory_that_is_not_there_ends_nothing(
    registered: RegisteredDriver, watcher: PluginWatcher, problems: ProblemRegistry
):
    watcher.directory.rmdir()
    await registered.reconcile()
    assert problems.summary().reason is AgentDegraded.NOT_REGISTERED
    assert "csi.gkm.io: cannot be served: " in problems.summary().text
    assert str(watcher.directory) in problems.summary().text
    watcher.directory.mkdir()
    await registered.reconcile()
    await watcher.scan()
    assert watcher.nodes == KNOWN
    await registered.reconcile()
    assert problems.summary() == NO_PROBLEM


async def test_it_runs_until_it_is_cancelled_and_then_kubelet_forgets_it(
    registered: RegisteredDriver,
    watcher: PluginWatcher,
    problems: ProblemRegistry,
    monkeypatch: pytest.MonkeyPatch,
):
    """What kubelet reports is taken up before the next turn, and the sockets go."""
    monkeypatch.setattr("agent.csi.registration.RECONCILE_EVERY_S", 3600)
    watcher.refusal = "not yet"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(registered.run())
        await until(lambda: registration_socket(watcher).is_socket())
        await watcher.scan()
        await until(lambda: "not yet" in problems.summary().text)
        watcher.refusal = ""
        await watcher.scan()
        await until(lambda: problems.summary() == NO_PROBLEM)
        running.cancel()
    assert not registration_socket(watcher).exists()
    await watcher.scan()
    assert watcher.nodes == {}
    assert not registered.is_registered
