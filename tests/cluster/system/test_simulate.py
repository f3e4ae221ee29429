"""`simulate --pod` against a real API server: what it says comes true, and works while our server is down."""

import asyncio
import contextlib
import json
import sys

import pytest
import yaml

from tests.cluster.environment import client, pods
from tests.cluster.system.objects import a_pod, all_bound, devices_of

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
async def a_reader_of_pods(api, control_plane):
    """The kubeconfig of a user who may list pods, and nothing else."""
    name = "reader-of-pods"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    await api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    await api.create(f"{RBAC}/clusterrolebindings", binding)
    yield control_plane.kubeconfig("bob")
    for kind in ("clusterrolebindings", "clusterroles"):
        with contextlib.suppress(client.ApiRefusedError):
            await api.delete(f"{RBAC}/{kind}/{name}")


@pytest.fixture
def simulate(tmp_path):
    """`await simulate(pod, kubeconfig, *flags)` returns the exit status and both outputs."""

    async def run(pod, kubeconfig, *flags):
        file = tmp_path / "pod.yaml"
        file.write_text(yaml.safe_dump(pod))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli", "simulate"),
            *("--pod", str(file), "--kubeconfig", str(kubeconfig), *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        current, said = await process.communicate()
        return process.returncode, current.decode(), said.decode()

    return run


async def test_what_is_said_of_a_pod_comes_true(
    make_pool, system, api, namespace, simulate, control_plane
):
    pool = await make_pool(nodes=2, devices=4)
    await api.create(pods.collection(namespace), a_pod("before", pool, 3))
    await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 1))
    incoming = a_pod("incoming", pool, 4)
    incoming["metadata"]["namespace"] = namespace
    too_much = a_pod("too-much", pool, 4)
    too_much["metadata"]["namespace"] = namespace

    system.server.kill9()
    status, current, said = await simulate(
        {"apiVersion": "v1", "kind": "Pod", **incoming},
        control_plane.kubeconfig(),
        "--output",
        "json",
    )
    assert (status, said) == (0, "")
    answer = json.loads(current)
    placement = answer["decision"]["placement"]
    assert answer.get("partial", []) == []
    await system.restore()

    await api.create(pods.collection(namespace), incoming)
    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 2))
    assert found["incoming"]["spec"]["nodeName"] == placement["node"]
    assert sorted(devices_of(found["incoming"])["main"]) == sorted(
        unit for device in placement["devices"] for unit in device["units"]
    )

    status, current, said = await simulate(
        {"apiVersion": "v1", "kind": "Pod", **too_much}, control_plane.kubeconfig()
    )
    assert (status, said) == (0, "")
    assert "would wait: no node takes it now" in current
    assert "ask for 1 unit: node" in current
    assert "when before (3 units) ends, the pod fits on" in current


async def test_an_account_that_may_only_list_pods_learns_which_lists_it_lacks(
    make_pool, simulate, a_reader_of_pods
):
    pool = await make_pool()
    pod = {"apiVersion": "v1", "kind": "Pod", **a_pod("incoming", pool)}
    status, current, said = await simulate(pod, a_reader_of_pods)
    assert (status, current) == (1, "")
    assert "gpupools may not be listed with this account: no pool is known" in said
    assert "a simulation needs gpupools and gpudevices" in said
    assert said.count("\n") == 1
