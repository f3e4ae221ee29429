"""The agent with all roles, as a process, ends in good order when it is told to."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from structlog.testing import capture_logs

from agent.context import AgentContext
from agent.main import Agent
from agent.settings import AgentRole, AgentSettings
from cli.exit_status import OK
from tests.component.agent.test_command import a_process
from tests.support.kubelet.admission import KubeletOfNode
from tests.support.loop_clock import LoopClock
from tests.support.nvml.library import FakeNvml, NoCompilerError, a_device
from tests.support.polling import LIMIT_S, until
from tests.support.running_server import a_cluster

if TYPE_CHECKING:
    from kube.client import KubeClient


@pytest.mark.parametrize(
    "hangs", [pytest.param(False, id="well"), pytest.param(True, id="the driver hangs")]
)
async def test_it_ends_at_sigterm(
    node: KubeletOfNode, folder: Path, unused_tcp_port: int, hangs: bool
):
    libraries = folder / "root" / "usr" / "lib64"
    libraries.mkdir(parents=True)
    try:
        driver = FakeNvml(libraries, a_device(0))
    except NoCompilerError as missing:
        pytest.skip(str(missing))
    async with (
        a_cluster(folder) as cluster,
        a_process(
            node="n1",
            roles="inventory,health,mig,device-plugin",
            plugins_directory=node.plugins.directory,
            pod_resources_directory=node.pod_resources.directory,
            run_directory=folder / "run",
            cdi_directory=folder / "cdi",
            driver_root=folder / "root",
            dev_root=folder / "dev",
            sysfs=folder / "sys",
            procfs=folder / "proc",
            kubeconfig=cluster.kubeconfig(),
            host="127.0.0.1",
            port=unused_tcp_port,
        ) as process,
    ):
        await until((folder / "run" / "cards.json").exists)
        if hangs:
            driver.hang()
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT_S):
            _, error = await process.communicate()
    assert process.returncode == OK, error.decode()
    assert b"Traceback" not in error


async def test_a_task_that_fails_is_named_and_ends_the_agent(folder: Path):
    settings = AgentSettings(
        node="n1",
        roles=frozenset({AgentRole.DEVICE_PLUGIN}),
        namespace="ours",
        config=folder / "none",
    )
    clock = LoopClock()
    # Nothing can be asked of this client.
    agent = Agent(AgentContext(settings, cast("KubeClient", None), clock))
    with capture_logs() as logs, pytest.raises(ExceptionGroup):
        await agent.run()
    assert [line["task"] for line in logs if line["event"] == "task failed"] == ["pods"]
