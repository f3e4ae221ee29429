"""The running validator: keeps the files true, waits for the units of pools, and ends with its cause."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agent.api_cache import NodeObjects
from agent.context import AgentContext
from agent.errors import StepFailedError
from agent.roles.validator import ValidatorRole
from agent.settings import AgentRole, AgentSettings
from agent.validator.step_run import StepTimes
from agent.validator.steps import DEFAULT_STEPS
from cli.exit_status import FAILED, OK
from http_edge.system_clock import SystemClock
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, GPU_DEVICES, GPU_POOLS, NODES, Resource
from manifests.install.crds import build_crds
from tests.support.cluster_objects import a_pool_object
from tests.support.nvml.library import a_device
from tests.support.polling import LIMIT_S, until, until_async
from tests.support.running_server import Cluster, a_cluster
from tests.support.validated_node import ValidatedNode

ALL = ["driver", "toolkit", "cuda", "plugin"]


@pytest.fixture
def node(tmp_path: Path) -> ValidatedNode:
    node = ValidatedNode(tmp_path, a_device(0))
    node.specify()
    (tmp_path / "termination-log").touch()
    return node


@pytest.fixture
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with a_cluster(folder) as opened:
        for crd in build_crds():
            await opened.client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        yield opened


def settings_of(node: ValidatedNode) -> AgentSettings:
    folder = node.root.parent
    return AgentSettings(
        node="n1",
        roles=frozenset({AgentRole.VALIDATOR}),
        namespace="gpu-control-plane",
        driver_root=node.root,
        dev_root=node.dev,
        sysfs=node.sysfs,
        procfs=node.procfs,
        validations_directory=folder / "validations",
        termination_log=folder / "termination-log",
    )


@asynccontextmanager
async def running(
    node: ValidatedNode,
    cluster: Cluster,
    *,
    deadline_s: float = LIMIT_S,
    plugin_s: float = LIMIT_S,
    check_s: float = 0.02,
) -> AsyncIterator[ValidatorRole]:
    """Run the role until the end of the block, and close it."""
    clock = SystemClock()
    objects = NodeObjects(cluster.client, clock, node="n1")
    role = ValidatorRole(
        AgentContext(settings_of(node), cluster.client, clock),
        objects,
        times=StepTimes(deadline_s=deadline_s, retry_s=0.02),
        check_s=check_s,
        plugin_s=plugin_s,
    )
    try:
        async with asyncio.TaskGroup() as group:
            works = [*(informer.run() for informer in objects.informers), *role.tasks().values()]
            tasks = [group.create_task(work) for work in works]
            yield role
            for task in tasks:
                task.cancel()
    finally:
        role.close()


async def put_pool(cluster: Cluster, allocatable: dict[str, str]) -> None:
    """Make a serving pool with the node's device; the Node shows these resources."""
    client = cluster.client
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    await client.create(NODES, node)
    await set_status(cluster, NODES, "n1", allocatable=allocatable)
    await client.create(GPU_POOLS, a_pool_object("train"))
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Serving",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await set_status(cluster, GPU_POOLS, "train", conditions=[ready])
    version = "gpu.deckhouse.io/v1alpha1"
    device = {"apiVersion": version, "kind": "GPUDevice", "metadata": {"name": "d0"}}
    await client.create(GPU_DEVICES, device)
    await set_status(cluster, GPU_DEVICES, "d0", nodeName="n1", poolRef={"name": "train"})


async def set_status(cluster: Cluster, resource: Resource, name: str, **status: Any) -> None:
    body = {"status": status}
    await cluster.client.merge_patch(resource, body, name=name, subresource="status")


async def test_files_of_init_containers_are_taken_over_without_a_call(
    node: ValidatedNode, cluster: Cluster
):
    for step in DEFAULT_STEPS:
        node.files.write(step, {"BY": "init"})
    node.nvml.fail("nvmlInitWithFlags", 999, times=-1)
    async with running(node, cluster) as role:
        await until(lambda: node.ready() == ALL and role.missing == [])
    assert node.ready() == []


async def test_steps_without_files_are_run(node: ValidatedNode, cluster: Cluster):
    """The container was started again after its end."""
    async with running(node, cluster) as role:
        assert role.missing
        await until(lambda: role.missing == [])
        assert node.ready() == ALL


async def test_the_first_look_waits_for_the_pools(node: ValidatedNode, cluster: Cluster):
    """A node would be ready one interval later."""
    for step in DEFAULT_STEPS:
        node.files.write(step, {"BY": "init"})
    async with running(node, cluster, check_s=10 * LIMIT_S) as role:
        await until(lambda: role.missing == [])
        assert node.ready() == ALL


async def test_a_driver_that_goes_away_takes_the_files_with_it(
    node: ValidatedNode, cluster: Cluster
):
    async with running(node, cluster) as role:
        await until(lambda: role.missing == [])
        node.nvml.unload_driver()
        (node.dev / "nvidia-uvm").unlink()
        await until(lambda: node.ready() == [])
        node.nvml.restart_driver()
        node.make_device("nvidia-uvm")
        await until(lambda: role.missing == [])
        assert node.ready() == ALL


async def test_a_specification_that_goes_away_takes_its_file_alone(
    node: ValidatedNode, cluster: Cluster
):
    async with running(node, cluster) as role:
        await until(lambda: role.missing == [])
        (node.root / "var/run/cdi/gpu.deckhouse.io-gpu.json").unlink()
        await until(lambda: node.ready() == ["driver", "cuda", "plugin"])
        node.specify()
        await until(lambda: role.missing == [])


async def test_a_step_that_fails_ends_the_process_with_its_cause(
    node: ValidatedNode, cluster: Cluster, tmp_path: Path
):
    """Files of good steps stay: kubelet starts the container again."""
    for step in DEFAULT_STEPS:
        node.files.write(step, {})
    with pytest.raises(ExceptionGroup) as raised:  # noqa: PT012  # the block is what fails
        async with running(node, cluster, deadline_s=0.2) as role:
            await until(lambda: role.missing == [])
            node.specify("GPU-of-another-node")
            await asyncio.Event().wait()
    assert raised.group_contains(StepFailedError)
    assert (tmp_path / "termination-log").read_text().startswith("toolkit: the CDI specification")
    assert node.ready() == ["driver", "cuda", "plugin"]


async def test_units_of_a_pool_are_waited_for(node: ValidatedNode, cluster: Cluster):
    await put_pool(cluster, {})
    async with running(node, cluster) as role:
        await until(lambda: role.missing == ["plugin: not validated"])
        await set_status(cluster, NODES, "n1", allocatable={"gpu.deckhouse.io/train": "1"})
        await until(lambda: role.missing == [])
        assert node.ready() == ALL


async def test_units_that_never_come_end_the_process_with_the_cause(
    node: ValidatedNode, cluster: Cluster, tmp_path: Path
):
    await put_pool(cluster, {})
    with pytest.raises(ExceptionGroup) as raised:
        async with running(node, cluster, plugin_s=0.1):
            await asyncio.Event().wait()
    assert raised.group_contains(StepFailedError)
    assert (
        (tmp_path / "termination-log")
        .read_text()
        .startswith("plugin: the node's allocatable lacks gpu.deckhouse.io/train of pool train:")
    )
    assert node.ready() == ["driver", "toolkit", "cuda"]


@pytest.mark.parametrize("is_good", [True, False])
async def test_the_command_serves_until_sigterm(
    node: ValidatedNode, cluster: Cluster, unused_tcp_port: int, tmp_path: Path, *, is_good: bool
):
    """As the main container of the pod: ready, then told to stop; or it ends by itself with its cause."""
    settings = settings_of(node)
    if not is_good:
        settings.validations_directory.symlink_to(tmp_path)
    paths = (
        "driver_root",
        "dev_root",
        "sysfs",
        "procfs",
        "validations_directory",
        "termination_log",
    )
    flags = [f"--{path.replace('_', '-')}={getattr(settings, path)}" for path in paths]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "cli", "agent", "--node=n1", "--roles=validator"),
        *(*flags, f"--kubeconfig={cluster.kubeconfig()}", "--host=127.0.0.1"),
        *(f"--port={unused_tcp_port}", "--steps=driver,toolkit,cuda"),
        stderr=PIPE,
    )

    async def is_ready() -> bool:
        url = f"http://127.0.0.1:{unused_tcp_port}/readyz"
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status == 200
        return False

    try:
        if is_good:
            await until_async(is_ready)
            assert node.ready() == ALL
            process.terminate()
        async with asyncio.timeout(LIMIT_S):
            _, error = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert process.returncode == (OK if is_good else FAILED), error.decode()
    assert node.ready() == []
    assert ("symbolic link" in settings.termination_log.read_text()) is not is_good


def test_the_role_is_alone():
    with pytest.raises(ValueError, match="validator is a role alone"):
        AgentSettings(
            node="n1",
            roles=frozenset({AgentRole.VALIDATOR, AgentRole.INVENTORY}),
            namespace="gpu-control-plane",
        )
