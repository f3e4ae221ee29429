"""Which Xids are an application's fault is a setting of the agent."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from structlog.testing import capture_logs

from agent.context import AgentContext
from agent.driver.port import DriverEvent, EventKind
from agent.roles.inventory import InventoryRole
from agent.settings import AgentRole, AgentSettings
from tests.support.loop_clock import LoopClock

if TYPE_CHECKING:
    from kube.client import KubeClient


@pytest.mark.parametrize(
    ("ignored", "effects"),
    [
        pytest.param(None, {13: "ignored", 79: "fault"}, id="the usual ones"),
        pytest.param(frozenset({79}), {13: "fault", 79: "ignored"}, id="others"),
        pytest.param(frozenset[int](), {13: "fault", 79: "fault"}, id="none"),
    ],
)
async def test_the_agent_ignores_the_configured_xids(
    tmp_path: Path, ignored: frozenset[int] | None, effects: dict[int, str]
):
    settings = AgentSettings(
        node="n1",
        roles=frozenset({AgentRole.INVENTORY, AgentRole.HEALTH}),
        namespace="ours",
        ignored_xids=ignored,
        run_directory=tmp_path,
        sysfs=tmp_path,
    )
    # Nothing is asked of this client.
    role = InventoryRole(AgentContext(settings, cast("KubeClient", None), LoopClock()), None)
    with capture_logs() as logs:
        role.health.take(
            [DriverEvent(uuid="GPU-1", kind=EventKind.XID, code=code) for code in effects]
        )
    logged = {line["code"]: line["effect"] for line in logs if line["event"] == "driver event"}
    assert logged == effects
