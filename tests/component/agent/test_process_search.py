"""The search for processes with the driver open, alone and in an agent, in directories as the kernel shows them.

The null device plays the driver's device file, as its number is called nvidia's there.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from agent.context import AgentContext
from agent.driver_processes import process_reporter
from agent.driver_processes.open_drivers import OpenProcess
from agent.driver_processes.process_search import ProcessSearch
from agent.errors import HiddenProcessesError
from agent.roles.inventory import InventoryRole
from agent.settings import AgentRole, AgentSettings
from api.kinds.gpunodeinventory import DriverProcess, GPUNodeInventory
from api.names import API_VERSION, PodUid
from http_edge.system_clock import SystemClock
from kube.resources import GPU_NODE_INVENTORIES, PODS
from manifests.install.crds import build_crds
from tests.support.client_of_api import an_api_with_client
from tests.support.polling import until_async

UID = PodUid("0a1b2c3d-0000-4000-8000-00000000000a")
NODE_OWN = "/system.slice/nvtop.service"


class Kernel:
    """A procfs."""

    def __init__(self, procfs: Path) -> None:
        self.procfs = procfs
        major = os.major(Path("/dev/null").stat().st_rdev)
        (procfs / "devices").write_text(f"Character devices:\n{major:3} nvidia\n")

    def start(self, pid: int, command: str, cgroup: str = NODE_OWN) -> Path:
        """Start a process with the driver open."""
        directory = self.procfs / str(pid)
        (directory / "fd").mkdir(parents=True)
        (directory / "fd" / "3").symlink_to("/dev/null")
        (directory / "comm").write_text(f"{command}\n")
        (directory / "cgroup").write_text(f"0::{cgroup}\n")
        return directory

    def search(self) -> ProcessSearch:
        return ProcessSearch(SystemClock(), procfs=self.procfs, processes=self.procfs)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


async def test_processes_are_found_with_their_pods(kernel: Kernel):
    kernel.start(7, "nvtop")
    kernel.start(8, "python3", f"/kubepods.slice/pod{UID.replace('-', '_')}.slice/cri-1.scope")
    search = kernel.search()
    assert await search.find() == {OpenProcess(7, "nvtop"): None, OpenProcess(8, "python3"): UID}
    search.close()


async def test_the_agent_itself_does_not_count(kernel: Kernel):
    kernel.start(7, "agent")
    kernel.start(8, "nvtop")
    (kernel.procfs / "self").symlink_to("7")
    assert [item.pid for item in await kernel.search().find()] == [8]


async def test_process_that_ends_meanwhile_does_not_count(kernel: Kernel):
    (kernel.start(7, "nvtop") / "cgroup").unlink()
    assert await kernel.search().find() == {}


async def test_agent_that_sees_its_own_processes_only_says_so(kernel: Kernel):
    kernel.start(1, "agent")
    (kernel.procfs / "self").symlink_to("1")
    with pytest.raises(HiddenProcessesError, match="hostPID"):
        await kernel.search().find()


async def test_agent_that_may_not_look_into_processes_says_so(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
):
    def refuse(_path: object) -> None:
        raise PermissionError

    kernel.start(1, "init")
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(HiddenProcessesError, match="privileged"):
        await kernel.search().find()


async def test_nothing_is_hidden_where_no_driver_is_loaded(kernel: Kernel):
    (kernel.procfs / "devices").write_text("Character devices:\n")
    (kernel.procfs / "self").symlink_to("1")
    assert await kernel.search().find() == {}


async def test_agent_reports_what_it_finds_on_its_node(
    kernel: Kernel, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process_reporter, "READ_EVERY_S", 0.01)
    monkeypatch.setattr(process_reporter, "WRITE_EVERY_S", 0.0)
    settings = AgentSettings(
        node="n1",
        roles=frozenset({AgentRole.INVENTORY}),
        namespace="ours",
        run_directory=tmp_path_factory.mktemp("run"),
        sysfs=tmp_path_factory.mktemp("sys"),
        procfs=kernel.procfs,
        processes=kernel.procfs,
    )
    async with an_api_with_client(definitions=build_crds()) as (_api, client):
        body: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": GPU_NODE_INVENTORIES.kind,
            "metadata": {"name": "n1"},
        }
        await client.create(GPU_NODE_INVENTORIES, body)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "train", "namespace": "default"},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "cuda"}]},
        }
        uid = (await client.create(PODS, pod)).decode(dict[str, Any])["metadata"]["uid"]
        kernel.start(7, "nvtop")
        process = kernel.start(8, "python3", f"/kubepods/besteffort/pod{uid}/cafe")

        async def current() -> list[DriverProcess] | None:
            found = await client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, "n1")
            return found.status.driver_processes

        async def shows(*expected: DriverProcess) -> bool:
            return await current() == list(expected)

        context = AgentContext(settings, client, SystemClock())
        role = InventoryRole(context, None)
        tasks = role.tasks()
        reporting = tasks.pop("driver.processes")
        for other in tasks.values():
            other.close()
        nvtop = DriverProcess(command="nvtop", pid=7)
        train = DriverProcess(command="python3", namespace="default", pod="train", uid=uid)
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(context.pod_informer.run()),
                group.create_task(reporting),
            ]
            await until_async(lambda: shows(nvtop, train))
            (process / "cgroup").unlink()
            await until_async(lambda: shows(nvtop))
            for task in running:
                task.cancel()
        await role.close()
