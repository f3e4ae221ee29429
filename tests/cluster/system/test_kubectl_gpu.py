"""`kubectl gpu` through the real kubectl, at the real API server, with users of different rights."""

import asyncio
import contextlib
import json
import tarfile
from functools import partial

import pytest

from api.names import DECIDED_BY_ANNOTATION, UNITS_CONDITION
from tests.cluster.environment import client, pods, polling
from tests.cluster.system.conftest import add_device
from tests.cluster.system.objects import DEVICES, a_device, a_pod

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def is_bound(found, name: str) -> bool:
    return name in found and "nodeName" in found[name]["spec"]


@pytest.fixture
async def pool(make_pool, api, namespace):
    """A pool of 2 nodes with 4 devices, of which 3 are used: 1 of one node, 2 of the other."""
    made = await make_pool(nodes=2, devices=4, scheduling={"strategy": "Spread"})
    for name, units in (("one", 1), ("two", 2)):
        await api.create(pods.collection(namespace), a_pod(name, made, units))
        await pods.wait_for_pods(api, namespace, partial(is_bound, name=name))
    return made


@pytest.fixture
async def big(pool, api, namespace):
    """A pod of 4 units that kube-scheduler has refused."""
    await api.create(pods.collection(namespace), a_pod("big", pool, 4))
    path = f"{pods.collection(namespace)}/big"

    async def is_refused():
        return (await api.conditions(path)).get("PodScheduled", {}).get("status") == "False"

    await polling.eventually(is_refused, what="kube-scheduler has refused big")
    return path


@pytest.fixture
async def alice(api, namespace):
    """May read pods of the namespace, and nothing of the cluster's."""
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    collection = f"{RBAC}/namespaces/{namespace}"
    await api.create(f"{collection}/roles", {"metadata": {"name": "reader"}, "rules": [rule]})
    group = "rbac.authorization.k8s.io"
    await api.create(
        f"{collection}/rolebindings",
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "alice"}],
        },
    )
    return "alice"


@pytest.fixture
async def carol(api):
    """Looks at pools, devices and nodes, and at no pod."""
    group, name = "rbac.authorization.k8s.io", "carol-looks"
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "gpu-console-viewer"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "carol"}],
    }
    await api.create(f"{RBAC}/clusterrolebindings", binding)
    yield "carol"
    await api.delete(f"{RBAC}/clusterrolebindings/{name}")


async def test_what_would_help_helps(big, pool, api, namespace, kubectl_gpu):
    done = await kubectl_gpu("why", "big", "-n", namespace, "-o", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    explanation = answer["explanation"]
    assert explanation["reason"] == "UnitsFragmented"
    assert (explanation["free"], explanation["largestFree"]) == (5, 3)
    fewer = next(remedy for remedy in explanation["remedies"] if remedy["type"] == "AskFewerUnits")
    assert fewer["units"] == 3
    assert f"Insufficient gpu.deckhouse.io/{pool.name}" in answer["kubeScheduler"]
    await api.create(pods.collection(namespace), a_pod("smaller", pool, 3))
    found = await pods.wait_for_pods(api, namespace, partial(is_bound, name="smaller"))
    assert found["smaller"]["spec"]["nodeName"] == fewer["node"]


async def test_devices_in_no_pool_are_found_by_their_selector(
    big, pool, api, namespace, kubectl_gpu, create_nodes
):
    (node,) = await create_nodes(1)
    names = []
    try:
        for number in range(4):
            device = a_device(node, number, pool.name)
            names.append(device["metadata"]["name"])
            del device["metadata"]["annotations"], device["status"]["poolRef"]
            await add_device(api, device)
        done = await kubectl_gpu("why", "big", "-n", namespace)
        assert f"4 devices of {node} are in no pool and would make room" in done.stdout
        printed = await kubectl_gpu("nodes", node, "-o", "json")
        (row,) = json.loads(printed.stdout)["items"]
        assert {item["look"] for item in row["devices"]} == {"in no pool"}
    finally:
        for name in names:
            with contextlib.suppress(client.ApiRefusedError):
                await api.delete(f"{DEVICES}/{name}")


async def test_an_operator_decides_on_a_device_and_is_named_afterwards(
    make_pool, api, kubectl_gpu, create_nodes
):
    """Selected, refused, approved, forged, moved by nobody, drained: each as the device says it."""
    pool = await make_pool(nodes=1, devices=1)
    (node,) = await create_nodes(1)
    device = a_device(node, 0, pool.name)
    name = device["metadata"]["name"]
    path = f"{DEVICES}/{name}"
    del device["metadata"]["annotations"], device["status"]["poolRef"]
    await add_device(api, device)

    async def says(reason: str, *words: str) -> bool:
        condition = (await api.conditions(path)).get("Assigned", {})
        assert condition.get("reason") == reason, condition
        assert all(word in condition["message"] for word in words), condition
        return True

    async def decided_by() -> str | None:
        annotations = (await api.get(path))["metadata"].get("annotations") or {}
        return annotations.get(DECIDED_BY_ANNOTATION)

    async def is_counted() -> bool:
        return bool((await api.get(pool.path))["status"].get("candidates") == 1)

    try:
        wait = partial(says, "AwaitsDecision", pool.name, f"kubectl gpu approve {name}")
        await polling.eventually(wait, what="the device waits for a decision")
        await polling.eventually(is_counted, what="the pool counts the device")
        refused = await kubectl_gpu("approve", name, "no-such")
        assert (refused.returncode, "pool not found" in refused.stderr) == (1, True), refused
        assert await decided_by() is None
        as_anna = ("--as", "anna", "--as-group", "system:masters")
        approved = await kubectl_gpu("approve", name, pool.name, *as_anna)
        assert (approved.returncode, approved.stderr) == (0, ""), approved
        wait = partial(says, "Assigned", pool.name, "last decided by anna")
        await polling.eventually(wait, what="the device is in the pool")
        await api.patch(path, {"metadata": {"annotations": {DECIDED_BY_ANNOTATION: "eve"}}})
        assert await decided_by() == "anna"
        again = await kubectl_gpu("approve", name, "other")
        assert (again.returncode, f"kubectl gpu move {name} other" in again.stderr) == (1, True)
        drained = await kubectl_gpu("drain", name, "--as", "bert", "--as-group", "system:masters")
        assert drained.returncode == 0, drained
        wait = partial(says, "Ignored", "last decided by bert")
        await polling.eventually(wait, what="the device is out of all pools")
    finally:
        await api.delete(path)


async def test_every_verb_answers(big, pool, namespace, kubectl_gpu):
    async def are_pools_listed():
        pools = await kubectl_gpu("pools", pool.name, "--no-headers")
        assert pools.stdout.split()[:6] == [pool.name, "Exclusive", "8", "3", "0", "5"], pools
        assert pools.stdout.split()[-2:] == ["5/2/0/0", "Ready"]
        return True

    async def are_devices_listed():
        nodes = await kubectl_gpu("nodes", "--pool", pool.name, "--no-headers")
        rows = {line.split()[0]: line.split()[1] for line in nodes.stdout.splitlines()[:2]}
        assert rows.keys() == set(pool.nodes)
        assert sorted(row.count("■") for row in rows.values()) == [1, 2]
        return True

    # The statuses of pool and devices follow the pods.
    await polling.eventually(are_pools_listed, what="the pool is shown as it is")
    await polling.eventually(are_devices_listed, what="the devices are shown as they are")
    who = await kubectl_gpu("who", "-n", namespace, "--no-headers")
    assert who.stdout.split() == [namespace, pool.name, "3", "3", "0", "4"]
    waiting = await kubectl_gpu("why", "-n", namespace, "--no-headers")
    assert waiting.stdout.split()[1:4] == ["big", pool.name, "4"]
    version = await kubectl_gpu("version")
    assert "\nKubernetes   v1." in version.stdout
    listed = await kubectl_gpu("--help")
    assert listed.returncode == 0


async def test_a_user_of_a_namespace_reads_the_words_of_the_leader(
    big, alice, api, namespace, kubectl_gpu
):
    reported = {"type": UNITS_CONDITION, "status": "False", "reason": "UnitsFragmented"}
    conditions = {"status": {"conditions": [{**reported, "message": "at most 3 on one node"}]}}
    await api.patch(
        f"{big}/status", conditions, content_type="application/strategic-merge-patch+json"
    )
    for login in ({"user": alice}, {}):
        flags = () if login else ("--as", alice)
        done = await kubectl_gpu("why", "big", "-n", namespace, *flags, **login)
        assert done.returncode == 0, done.stderr
        assert "  UnitsFragmented: " in done.stdout
        assert done.stdout.endswith("the pod alone: this user may not read its pool\n")
    pools = await kubectl_gpu("pools", user=alice)
    assert pools.returncode == 3
    assert 'User "alice" cannot list resource "gpupools"' in pools.stderr
    who = await kubectl_gpu("who", "-n", namespace, "--no-headers", user=alice)
    assert who.stdout.split()[3:] == ["3", "0", "4"]


async def test_users_without_rights_and_bad_logins_get_a_sentence(big, namespace, kubectl_gpu):
    unauthorized = await kubectl_gpu("why", "big", "-n", namespace, user="bob")
    assert unauthorized.returncode == 3
    assert 'pods "big" is forbidden: User "bob" cannot get' in unauthorized.stderr
    expired = await kubectl_gpu("pools", "--token", "expired")
    assert (expired.returncode, len(expired.stderr.splitlines())) == (3, 1)
    assert "accepts no credentials of this user (401 Unauthorized)" in expired.stderr


async def test_pods_are_placed_as_whatif_says(pool, api, namespace, kubectl_gpu):
    asked = ("whatif", "--pool", pool.name, "--units", "2", "--times", "3")
    done = await kubectl_gpu(*asked)
    assert done.returncode == 1, done
    assert done.stdout.startswith("2 of 3 pods would be placed now, each with 2 units\n")
    placed = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[2:4]}
    assert placed == {node: ["1", "2"] for node in pool.nodes}
    assert "  ask for 1 unit: node " in done.stdout
    for name in ("first", "second", "third"):
        await api.create(pods.collection(namespace), a_pod(name, pool, 2))
    found = await pods.wait_for_pods(
        api, namespace, lambda found: is_bound(found, "first") and is_bound(found, "second")
    )
    assert {found[name]["spec"]["nodeName"] for name in ("first", "second")} == set(pool.nodes)
    assert not is_bound(found, "third")
    cordoned = await kubectl_gpu(*asked[:3], "--units", "1", "--cordon", pool.nodes[0])
    assert f"1: node is cordoned ({pool.nodes[0]})" in cordoned.stdout


async def test_a_dump_answers_as_the_cluster_does(big, pool, namespace, kubectl_gpu, tmp_path):
    file = str(tmp_path / "f.tgz")
    done = await kubectl_gpu("dump", "-o", file)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f.tgz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        names = archive.getnames()
    assert "lists/pods.core.json" in names
    assert not [name for name in names if "secrets" in name or "configmaps" in name]
    asked = ("why", "big", "-n", namespace, "-o", "json")
    live, dumped = [
        json.loads((await kubectl_gpu(*asked, *more)).stdout) for more in ((), ("--from", file))
    ]
    assert live["explanation"] == dumped["explanation"]
    assert live["explanation"]["reason"] == "UnitsFragmented"
    printed = await kubectl_gpu("pools", pool.name, "--no-headers", "--from", file)
    assert printed.stdout.split()[0] == pool.name


async def test_who_may_not_list_all_gets_a_dump_that_says_so_or_none(
    pool, alice, carol, kubectl_gpu, tmp_path
):
    file = str(tmp_path / "f.tgz")
    none = await kubectl_gpu("dump", "-o", file, user=alice)
    assert none.returncode == 3
    assert 'User "alice" cannot list resource "gpupools"' in none.stderr
    assert not (tmp_path / "f.tgz").exists()
    part = await kubectl_gpu("dump", "-o", file, user=carol)
    assert part.returncode == 0, part.stderr
    assert "without lists/pods.core.json: " in part.stdout
    nodes = await kubectl_gpu("nodes", "--pool", pool.name, "--no-headers", "--from", file)
    assert {line.split()[0] for line in nodes.stdout.splitlines()[:2]} == set(pool.nodes)


async def test_check_judges_what_the_user_may_see(pool, alice, carol, kubectl_gpu):
    whole = await kubectl_gpu("check")
    assert whole.returncode == 0, whole.stdout
    for text in (
        "√ API server: v1.",
        "√ kinds of gpu.deckhouse.io: all are installed",
        "√ Lease gpu-control-plane: ",
        "√ mutatingwebhookconfigurations/zz-gpu-control-plane: ",
        f"√ GPUPool {pool.name}: ",
        "√ 8 devices: none of them is faulted",
        # The server of these tests is a process beside the cluster.
        "‼ Deployment gpu-control-plane: there is none",
    ):
        assert text in whole.stdout
    part = await kubectl_gpu("check", user=carol)
    assert part.returncode == 0
    assert f"√ GPUPool {pool.name}: " in part.stdout
    assert "‼ pods: not checked: " in part.stdout
    nothing = await kubectl_gpu("check", user=alice)
    assert "‼ gpupools: not checked: " in nothing.stdout
    before = await kubectl_gpu("check", "--pre", user=alice)
    assert before.returncode == 1
    expected = "create customresourcedefinitions.apiextensions.k8s.io: this user may not\n"
    assert expected in before.stdout


async def test_a_watch_shows_the_next_pod(pool, api, namespace, control_plane, plugin_environment):
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "gpu", "who", "-n", namespace, "-w", "--no-headers"),
        env=plugin_environment | {"KUBECONFIG": str(control_plane.kubeconfig())},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).split()[3] == b"3"
        await api.create(pods.collection(namespace), a_pod("next", pool, 1))
        async with asyncio.timeout(120):
            while (await process.stdout.readline()).split()[3:4] != [b"4"]:
                pass
    finally:
        process.terminate()
        await process.wait()
