"""When a plugin registers, with a clock that is moved by hand: at once where kubelet is new."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import structlog

from agent.plugin.advertised import AdvertisedUnits, Unit
from agent.plugin.registration import FIRST_RETRY_S, STREAM_WITHIN_S, ServedPlugin
from agent.plugin.servers import PluginServers
from agent.plugin.service import DevicePluginService
from agent.problems.registry import ProblemRegistry
from api.kubelet.deviceplugin import KUBELET_SOCKET
from api.nodefiles.poolconfig import DeviceInjection
from http_edge.system_clock import SystemClock
from telemetry.conditions import AgentDegraded
from tests.support.hand_clock import HandClock
from tests.support.kubelet.plugins import PluginsOfKubelet
from tests.support.polling import until

RESOURCE = "gpu.deckhouse.io/whole"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def served(kubelet: PluginsOfKubelet, clock: HandClock) -> AsyncIterator[ServedPlugin]:
    plugin = DevicePluginService(RESOURCE, clock)
    plugin.advertise((Unit(id="GPU-1", device="GPU-1"),))
    opened = ServedPlugin(plugin, kubelet.directory, clock, problems=ProblemRegistry())
    yield opened
    await opened.close()


async def test_it_registers_once(kubelet: PluginsOfKubelet, served: ServedPlugin):
    for _ in range(3):
        await served.reconcile()
    await until(lambda: kubelet.capacity(RESOURCE) == 1)
    assert served.is_registered
    assert len(kubelet.registrations) == 1


@pytest.mark.parametrize("leaves_sockets", [False, True])
async def test_a_new_kubelet_is_told_at_the_next_look(
    kubelet: PluginsOfKubelet, served: ServedPlugin, leaves_sockets: bool
):
    await served.reconcile()
    await until(lambda: served.is_registered)
    await kubelet.restart(leaves_sockets=leaves_sockets)
    assert not served.is_registered
    await served.reconcile()
    assert len(kubelet.registrations) == 2
    await until(lambda: served.is_registered)


async def test_a_kubelet_that_dropped_it_is_told_again_at_the_next_look(
    kubelet: PluginsOfKubelet, served: ServedPlugin
):
    await served.reconcile()
    await until(lambda: served.is_registered)
    kubelet.disconnect(RESOURCE)
    await until(lambda: served.plugin.streams == 0)
    await served.reconcile()
    assert len(kubelet.registrations) == 2
    await until(lambda: served.is_registered)


async def test_a_kubelet_that_dropped_it_is_told_before_the_next_look(
    kubelet: PluginsOfKubelet, monkeypatch: pytest.MonkeyPatch
):
    """Pods are rejected meanwhile."""
    monkeypatch.setattr("agent.plugin.servers.RECONCILE_EVERY_S", 3600)
    servers = PluginServers(kubelet.directory, SystemClock(), hand_out=DeviceInjection.CDI)
    units = (Unit(id="GPU-1", device="GPU-1"),)
    servers.advertise([AdvertisedUnits("whole", RESOURCE, units)])
    async with asyncio.TaskGroup() as group:
        running = group.create_task(servers.run())
        await until(lambda: not servers.missing)
        kubelet.disconnect(RESOURCE)
        await until(lambda: len(kubelet.registrations) == 2 and not servers.missing)
        running.cancel()


async def test_a_kubelet_that_knows_it_is_given_time_to_open_the_stream(
    kubelet: PluginsOfKubelet, served: ServedPlugin, clock: HandClock
):
    kubelet.is_deaf = True
    for _ in range(2):
        await served.reconcile()
    assert len(kubelet.registrations) == 1
    clock.seconds += STREAM_WITHIN_S
    await served.reconcile()
    assert len(kubelet.registrations) == 2


async def test_a_refusal_is_told_and_tried_again_more_and_more_seldom(
    kubelet: PluginsOfKubelet, clock: HandClock
):
    problems = ProblemRegistry()
    plugin = DevicePluginService("whole", clock)
    served = ServedPlugin(plugin, kubelet.directory, clock, problems=problems)
    with structlog.testing.capture_logs() as lines:
        for _ in range(10):
            await served.reconcile()
            clock.seconds += FIRST_RETRY_S
        await kubelet.restart()
        await served.reconcile()
    await served.close()
    reported = [line for line in lines if line["event"] == "not registered"]
    assert [line["retry_in_s"] for line in reported] == [0.05, 0.1, 0.2, 0.4, 0.05]
    assert reported[0]["error"] == 'UNKNOWN: the ResourceName "whole" is invalid'
    assert kubelet.registrations == []
    summary = problems.summary()
    assert summary.reason is AgentDegraded.NOT_REGISTERED
    assert summary.text == 'whole: UNKNOWN: the ResourceName "whole" is invalid'


async def test_a_socket_that_cannot_be_had_ends_nothing_and_is_tried_again(
    kubelet: PluginsOfKubelet, clock: HandClock
):
    """As on a file system that is read-only, or where the directory is not mounted."""
    directory = kubelet.directory / "absent"
    plugin, problems = DevicePluginService(RESOURCE, clock), ProblemRegistry()
    served = ServedPlugin(plugin, directory, clock, problems=problems)
    with structlog.testing.capture_logs() as lines:
        for _ in range(5):
            await served.reconcile()
            clock.seconds += FIRST_RETRY_S
    reported = [line for line in lines if line["event"] == "not registered"]
    assert [line["retry_in_s"] for line in reported] == [0.05, 0.1, 0.2]
    assert problems.summary().reason is AgentDegraded.NOT_REGISTERED
    assert str(directory) in problems.summary().text
    directory.mkdir()
    clock.seconds += 60
    await served.reconcile()
    assert "there is no kubelet" in problems.summary().text
    await served.close()


async def test_the_newer_of_two_has_the_socket_and_the_older_stands_back(
    kubelet: PluginsOfKubelet, served: ServedPlugin, clock: HandClock
):
    await served.reconcile()
    await until(lambda: served.is_registered)
    problems = ProblemRegistry()
    newer = ServedPlugin(
        DevicePluginService(RESOURCE, clock), kubelet.directory, clock, problems=problems
    )
    await newer.reconcile()
    await until(lambda: newer.is_registered)
    for _ in range(3):
        await served.reconcile()
        await newer.reconcile()
    assert len(kubelet.registrations) == 2
    assert problems.summary().reason is AgentDegraded.AS_EXPECTED

    # kubelet looks up whom to drop by name, and drops the newer where the older ends.
    await served.close()
    await until(lambda: newer.plugin.streams == 0)
    await newer.reconcile()
    await until(lambda: newer.is_registered)
    await newer.close()


async def test_a_kubelet_that_hangs_is_given_up_once_another_is_there(
    kubelet: PluginsOfKubelet, served: ServedPlugin
):
    kubelet.hangs = True
    async with asyncio.TaskGroup() as group:
        tending = group.create_task(served.reconcile())
        await until(lambda: kubelet.is_asked)
        # It has the connection still, and answers no more.
        (kubelet.directory / KUBELET_SOCKET).unlink()
        async with asyncio.timeout(5):
            await tending
    kubelet.hangs = False
    await kubelet.restart()
    await served.reconcile()
    await until(lambda: served.is_registered)
