"""When a plugin registers, with a clock that is moved by hand: at once where kubelet is new."""

import datetime as dt
from collections.abc import AsyncIterator

import pytest
import structlog

from agent.plugin import DevicePlugin
from agent.registering import FIRST_RETRY_S, STREAM_WITHIN_S, ServedPlugin
from api.deviceplugin import OfferedDevice
from api.poolconfig import HandOut
from simulator.kubelet_plugins import PluginsOfKubelet
from tests.support.builders import EPOCH
from tests.support.polling import until

RESOURCE = "gpu.deckhouse.io/whole"


class HandClock:
    """Stands still."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def utc_now(self) -> dt.datetime:
        return EPOCH + dt.timedelta(seconds=self.seconds)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def served(kubelet: PluginsOfKubelet, clock: HandClock) -> AsyncIterator[ServedPlugin]:
    plugin = DevicePlugin(RESOURCE, hand_out=HandOut.CDI)
    plugin.offer((OfferedDevice(id="GPU-1"),))
    opened = ServedPlugin(plugin, kubelet.directory, clock)
    yield opened
    await opened.close()


async def test_it_registers_once(kubelet: PluginsOfKubelet, served: ServedPlugin):
    for _ in range(3):
        await served.tend()
    await until(lambda: kubelet.capacity(RESOURCE) == 1)
    assert served.is_registered
    assert len(kubelet.registrations) == 1


@pytest.mark.parametrize("leaves_sockets", [False, True])
async def test_a_new_kubelet_is_told_at_the_next_look(
    kubelet: PluginsOfKubelet, served: ServedPlugin, leaves_sockets: bool
):
    await served.tend()
    await until(lambda: served.is_registered)
    await kubelet.restart(leaves_sockets=leaves_sockets)
    assert not served.is_registered
    await served.tend()
    assert len(kubelet.registrations) == 2
    await until(lambda: served.is_registered)


async def test_a_kubelet_that_dropped_it_is_given_time_to_open_the_stream(
    kubelet: PluginsOfKubelet, served: ServedPlugin, clock: HandClock
):
    await served.tend()
    await until(lambda: served.is_registered)
    kubelet.disconnect(RESOURCE)
    await until(lambda: served.plugin.streams == 0)
    await served.tend()
    assert len(kubelet.registrations) == 1
    clock.seconds += STREAM_WITHIN_S
    await served.tend()
    assert len(kubelet.registrations) == 2


async def test_a_refusal_is_told_and_tried_again_more_and_more_seldom(
    kubelet: PluginsOfKubelet, clock: HandClock
):
    served = ServedPlugin(DevicePlugin("cards", hand_out=HandOut.CDI), kubelet.directory, clock)
    with structlog.testing.capture_logs() as lines:
        for _ in range(8):
            await served.tend()
            clock.seconds += FIRST_RETRY_S
        await kubelet.restart()
        await served.tend()
    await served.close()
    told = [line for line in lines if line["event"] == "not registered"]
    assert [line["retry_in_s"] for line in told] == [0.2, 0.4, 0.8, 1.6, 0.2]
    assert told[0]["error"] == 'UNKNOWN: the ResourceName "cards" is invalid'
    assert kubelet.registrations == []
