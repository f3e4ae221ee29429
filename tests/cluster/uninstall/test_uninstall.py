"""`gpu-control-plane uninstall` on a real API server, while users create pods all the time."""

import asyncio
import secrets
import signal
import subprocess
import time
from pathlib import Path

from cli.uninstall.hook_rights import build_hook
from cli.uninstall.own_kinds import RemovalStage
from manifests import constants
from manifests.install.server_policy import OwnObjects
from manifests.install.uninstall_hook import NAME as HOOK
from manifests.install.uninstall_hook import HookPod
from manifests.yaml import render
from tests.cluster.environment import client, pods, polling
from tests.cluster.environment.pod_creation import creating_pods
from tests.cluster.environment.server_process import IMAGE, installed_command
from tests.cluster.system.installation import LEASE, NAMESPACE, GpuSystem
from tests.cluster.system.objects import POOLS, Pool, a_pod, units_of
from tests.cluster.uninstall.leavings import leavings, until_only

LIMIT_S = 60
"""Of an uninstall, by the specification."""
KILLED_IN = (
    RemovalStage.VALIDATION,
    RemovalStage.SERVER,
    RemovalStage.NODES,
    RemovalStage.POLICIES,
)
"""One after the other: each run begins with what those before it have left."""


async def uninstall(kubeconfig: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*installed_command(), "uninstall", "--kubeconfig", str(kubeconfig), *flags]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=180
    )


async def killed_in(stage: RemovalStage, kubeconfig: Path, *flags: str) -> None:
    """Run the command, and kill it when it has told of a step of the stage, and goes on."""
    process = await asyncio.create_subprocess_exec(
        *installed_command(),
        "uninstall",
        *("--kubeconfig", str(kubeconfig)),
        *flags,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = ""
    while not line.startswith(f"{stage.value}: "):
        line = (await process.stdout.readline()).decode()
        assert line, f"it ended, and was to be killed in the stage {stage.value!r}"
    process.send_signal(signal.SIGKILL)
    await process.communicate()


async def a_deployment_of_servers(api: client.ApiClient) -> None:
    """Add the Deployment of a chart; no node has its image, so its pods stay Pending."""
    labels = {**constants.LABELS, "app.kubernetes.io/component": "server"}
    container = {"name": "server", "image": IMAGE}
    await api.create(
        f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": constants.NAME, "labels": labels},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        },
    )

    async def has_pods() -> bool:
        found = await api.get(
            pods.collection(NAMESPACE), labelSelector="app.kubernetes.io/component=server"
        )
        return len(found["items"]) == 2

    await polling.eventually(has_pods, what="pods of the Deployment")


async def a_running_pod(api: client.ApiClient, namespace: str, pool: Pool) -> client.JsonObject:
    await api.create(pods.collection(namespace), a_pod("train", pool, 2))
    return await pods.wait_for_pod(api, namespace, "train", pods.is_running)


async def test_refusals_change_nothing(
    system: GpuSystem, make_pool, control_plane, kubectl, api, namespace
):
    """Pods that use units, a user without rights, one with some, an API server that is away."""
    pool = await make_pool(devices=2)
    await a_running_pod(api, namespace, pool)
    before = await leavings(api)

    used = await uninstall(control_plane.kubeconfig())
    assert (used.returncode, used.stdout) == (1, "")
    assert used.stderr == (
        f"gpu-control-plane: 1 pod uses units of pools: {namespace}/train (2 units of"
        f" {pool.resource}, on {pool.nodes[0]}). Delete it, or let it run on with --force\n"
    )

    stranger = await uninstall(control_plane.kubeconfig("bob"))
    assert (stranger.returncode, stranger.stderr.count("\n")) == (1, 1)
    assert "nothing was removed: " in stranger.stderr
    assert 'cannot list resource "deployments"' in stranger.stderr

    role = f"reads-{secrets.token_hex(3)}"
    await kubectl("create", "clusterrole", role, "--verb=get,list", "--resource=*.*,secrets")
    await kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", "--user=bob")
    try:

        async def refused_by_name() -> bool:
            reader = await uninstall(control_plane.kubeconfig("bob"), "--force", "--keep-applied")
            assert (reader.returncode, reader.stderr.count("\n")) == (1, 1)
            assert "no right to delete validatingadmissionpolicybindings." in reader.stderr
            return True

        await polling.eventually(refused_by_name, what="the role", every=0.5)
    finally:
        await kubectl("delete", "clusterrolebinding,clusterrole", role)

    away = control_plane.run.directory / "away.kubeconfig"
    text = control_plane.kubeconfig().read_text(encoding="utf-8")
    away.write_text(text.replace(control_plane.url, "https://127.0.0.1:9"), encoding="utf-8")
    silent = await uninstall(away)
    assert (silent.returncode, silent.stderr.count("\n")) == (1, 1)
    assert "nothing was removed: " in silent.stderr

    after = await leavings(api)
    # The server goes on and may add workloads of the pool.
    lost = {kind: set(names) - set(after.get(kind, ())) for kind, names in before.items()}
    assert not any(lost.values()), lost


async def test_nothing_is_left_and_no_creation_fails_meanwhile(
    system: GpuSystem, make_pool, control_plane, kubectl, api, namespace
):
    """The hook, killed again and again, and run to its end beside a live server; then the administrator."""
    pool = await make_pool(
        nodes=2,
        devices=2,
        scheduling={"taints": [{"key": "gpu.example.com/train", "effect": "NoSchedule"}]},
    )
    await a_deployment_of_servers(api)
    train = await a_running_pod(api, namespace, pool)
    hook = build_hook(OwnObjects(), HookPod(image=IMAGE))
    await kubectl("apply", "-f", "-", stdin=render(hook[:-1]))
    as_hook = await control_plane.service_account_kubeconfig(NAMESPACE, HOOK)
    flags = ("--keep-applied", "--force")

    async with (
        creating_pods(api, namespace, lambda name: a_pod(f"pool-{name}", pool)) as of_pools,
        creating_pods(api, namespace, lambda name: pods.a_pod(f"plain-{name}")) as plain,
    ):
        for stage in KILLED_IN:
            await killed_in(stage, as_hook, *flags)
        # The server is a process beside the cluster and lives on: it may lead again afterwards.
        done = await uninstall(as_hook, *flags)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        await system.server.terminate()

        began = time.monotonic()
        done = await uninstall(as_hook, *flags)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        # What Helm would delete is deleted by the administrator's run.
        done = await uninstall(control_plane.kubeconfig(), "--force")
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        took = time.monotonic() - began
    of_pools.check(at_least=20)
    plain.check(at_least=20)

    # Definitions and their objects; a pool has nothing of ours in its metadata any more.
    left = await until_only(api, "apiservices", "customresourcedefinitions", "gpudevices")
    print(
        f"uninstall: {took:.1f} s; {len(of_pools.created)} pods of the pool created; left: {left}"
    )
    assert took < LIMIT_S
    assert (await api.get(pool.path))["metadata"].get("finalizers", []) == []
    for node in pool.nodes:
        assert not (await api.get(f"/api/v1/nodes/{node}"))["spec"].get("taints")
    after = await api.get(f"{pods.collection(namespace)}/train")
    assert after["metadata"]["uid"] == train["metadata"]["uid"]
    assert units_of(after) == units_of(train)
    assert pods.is_running(after)

    again = await uninstall(control_plane.kubeconfig(), "--force")
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "0 objects removed or cleaned")
    await kubectl("delete", "--all", "gpupools")


async def test_definitions_go_without_hanging(system: GpuSystem, make_pool, control_plane, api):
    pool = await make_pool(devices=2)
    await system.server.terminate()
    await api.delete(LEASE)
    done = await uninstall(control_plane.kubeconfig(), "--delete-crds")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    await until_only(api)
    assert not await api.find(f"{POOLS}/{pool.name}")
