"""Whose words about devices count: those of agents that are heard."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from api.names import NodeName
from inventory.health.device import HealthReport
from reconciler.sinks.agent_reports import AgentReports
from tests.support.builders import EPOCH
from tests.support.scheduling import Time

N1 = NodeName("n1")
SAID = {"GPU-a": HealthReport("Healthy")}


@dataclass
class Features:
    at: dt.datetime | None

    def heartbeat(self, _node: NodeName) -> dt.datetime | None:
        return self.at

    def health(self, _node: NodeName) -> Mapping[str, HealthReport]:
        return SAID


def reports(heartbeat_s: float | None) -> AgentReports:
    at = None if heartbeat_s is None else EPOCH + dt.timedelta(seconds=heartbeat_s)
    return AgentReports(Features(at), now=Time(seconds=1000).now)


@pytest.mark.parametrize(
    ("heartbeat_s", "age_s", "said"),
    [
        pytest.param(990, 10, SAID, id="heard"),
        pytest.param(880, 120, SAID, id="just in time"),
        pytest.param(879, 121, {}, id="silent"),
        pytest.param(1200, 200, {}, id="from the future"),
        pytest.param(None, None, SAID, id="without a heartbeat"),
    ],
)
def test_an_agent_that_fell_silent_says_nothing(
    heartbeat_s: float | None, age_s: float | None, said: Mapping[str, HealthReport]
):
    agent = reports(heartbeat_s)
    assert agent.heartbeat_age_s(N1) == age_s
    assert agent.health(N1) == said
