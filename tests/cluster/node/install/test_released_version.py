"""A cluster of 9ebf5422 with every setting set becomes one of today under its pods, agents before plugins and after."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from server.retired_settings import RETIRED
from tests.cluster.environment import polling
from tests.cluster.node.daemonsets.test_daemonsets import agents, ready
from tests.cluster.node.environment import nvidia_image
from tests.cluster.node.install import released
from tests.cluster.node.operands.operand_pods import OperandPods
from tests.cluster.node.operands.switches import DAEMON_SETS
from tests.cluster.node.stories.test_assigned_devices import check
from tests.cluster.system.installation import NAMESPACE
from tests.cluster.system.objects import devices_of, units_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.install.release import Release
    from tests.cluster.node.stories.pools import Pools

    Json = dict[str, Any]

PATH = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
LABEL = "app.kubernetes.io/name="
AGENT, PLUGIN = "gpu-node-agent", "gpu-device-plugin"
HELD = {
    "held-agents": (
        "DELETE",
        "oldObject.metadata.labels[?'app.kubernetes.io/name'].orValue('') == 'gpu-node-agent'",
    ),
    "held-plugins": (
        "CREATE",
        "object.metadata.labels[?'app.kubernetes.io/instance'].orValue('') == 'first'"
        f" && object.spec.containers.exists(c, c.image != '{released.IMAGE}')",
    ),
}
"""Policy -> what the controller of DaemonSets may not do while it is there, and to which pods."""


@pytest.fixture
async def chart(
    control_plane: "ControlPlane",
    gpu_node: "RealNode",
    built_image: "tuple[Path, str]",
    tmp_path: "Path",
) -> "Path":
    """The released chart; its image is on the node, and that of the operands."""
    scratch = control_plane.run.scratch / "released"
    (scratch / "nvidia").mkdir(parents=True)
    made = await asyncio.to_thread(released.unpack, tmp_path)
    await asyncio.to_thread(
        released.write_image, scratch / "released.tar", built_image[0], tmp_path
    )
    nvidia_image.write_nvidia_image(
        scratch / "nvidia.tar", built_image[0], gpu_node.busybox, scratch=scratch / "nvidia"
    )
    for tar in (scratch / "released.tar", scratch / "nvidia.tar"):
        await gpu_node.import_image(tar)
    return made


@pytest.fixture
async def held(api: "ApiClient") -> "AsyncIterator[dict[str, str]]":
    """Policies by which a roll-out of ours stops on its way, as it does in a cluster of many nodes."""
    binding = POLICIES.removesuffix("ies") + "ybindings"
    for name, (operation, applies) in HELD.items():
        await api.create(POLICIES, a_policy(name, operation, applies))
        spec = {"policyName": name, "validationActions": ["Deny"]}
        await api.create(binding, {"metadata": {"name": name}, "spec": spec})
    yield {name: f"{binding}/{name}" for name in HELD}
    for name in HELD:
        if await api.find(f"{binding}/{name}"):
            await api.delete(f"{binding}/{name}")
        await api.delete(f"{POLICIES}/{name}")


async def test_its_pods_live_on_and_both_versions_serve_beside_each_other(
    release: "Release",
    chart: "Path",
    built_image: "tuple[Path, str]",
    held: dict[str, str],
    pools: "Pools",
    api: "ApiClient",
    kubectl: "Kubectl",
    progress: "Callable[[str], None]",
):
    values, today = released.every_value(chart), built_image[1]
    await release.install(chart, **values)
    operands = OperandPods(api, pools.node.name)
    resource = await pools.make(0, 1, 2, name="first")
    before = [await pools.run(pools.a_pod(name, resource)) for name in ("runs", "ends")]
    for pod in before:
        await pools.reported(pod)
    sets = await daemon_sets(api)
    await release.rolled_out()
    await refuses_what_is_retired(release, values)

    await release.upgrade("--reset-values", **released.without_retired(values))
    second = await pools.make(3, name="second")
    await check(pools, await pools.run(pools.a_pod("old-agent", second)), "main")
    await pools.reported(await pools.get("old-agent"))
    assert await images(pools, AGENT) == {released.IMAGE}
    assert await images(pools, PLUGIN, "second") == {today}
    progress("a new plugin serves beside the agent of before")

    await api.delete(held["held-agents"])
    await kubectl("-n", NAMESPACE, "delete", "pod", "-l", LABEL + AGENT)
    await ready(pools, AGENT)
    assert await images(pools, AGENT) == {today}
    after = await pools.run(pools.a_pod("old-plugin", resource))
    assert await images(pools, PLUGIN, "first") == {released.IMAGE}
    await check(pools, after, "main")
    await pools.reported(after)
    progress("the plugin of before serves beside the new agent")

    await api.delete(held["held-plugins"])

    async def is_replaced() -> bool:
        # The controller tries again at any change of a pod, and else after a time that grows.
        label = f"tried={asyncio.get_running_loop().time():.0f}"
        await kubectl("-n", NAMESPACE, "label", "--overwrite", "pod", "-l", LABEL + PLUGIN, label)
        return await images(pools, PLUGIN, "first") == {today}

    await polling.eventually(is_replaced, what="the plugin of today", every=1)
    await pools.offers(resource, 3)
    await pools.delete("ends")
    last = await pools.run(pools.a_pod("last", resource))
    await check(pools, last, "main")
    assert units_of(last) == units_of(before[1])

    for name, was in (("runs", before[0]), ("old-plugin", after)):
        now = await pools.get(name)
        assert now["metadata"]["uid"] == was["metadata"]["uid"]
        assert [item["restartCount"] for item in now["status"]["containerStatuses"]] == [0]
        assert devices_of(now) == devices_of(was)
        await check(pools, now, "main")
        await pools.reported(now)
    for state in DAEMON_SETS:
        await operands.ready(state)
    await polling.eventually(lambda: is_of_today(api, sets), what="DaemonSets of today")
    await pools.clear_pods()


async def refuses_what_is_retired(release: "Release", values: "Json") -> None:
    """Check that an upgrade with the same values changes nothing, and that the refusal names each retired setting."""
    applied = await release.applied()
    names = released.retired_names(values)
    assert set(names) == set(RETIRED)
    refused = await release.refused_upgrade("--reset-then-reuse-values")
    complaints = [f"settings.{name}: no setting any more: {RETIRED[name]}" for name in names]
    assert [text for text in complaints if text not in refused] == []
    assert await release.applied() == applied


def a_policy(name: str, operation: str, applies: str) -> "Json":
    controller = "system:serviceaccount:kube-system:daemon-set-controller"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    return {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule | {"operations": [operation]}]},
            "matchConditions": [
                {
                    "name": "controller",
                    "expression": f"request.userInfo.username == '{controller}'",
                },
                {"name": "pod", "expression": applies},
            ],
            "validations": [{"expression": "false", "message": "held by the test"}],
        },
    }


async def images(pools: "Pools", name: str, instance: str = "") -> set[str]:
    """Return the images of the pods of a DaemonSet that are not going away."""
    found = await agents(pools, name, instance)
    return {item["spec"]["containers"][0]["image"] for item in found}


async def daemon_sets(api: "ApiClient") -> dict[str, "Json"]:
    return {item["metadata"]["name"]: item for item in (await api.get(PATH))["items"]}


async def is_of_today(api: "ApiClient", before: dict[str, "Json"]) -> bool:
    """Check that no DaemonSet is of before; one whose selector differs now is another one."""
    now = await daemon_sets(api)
    assert set(DAEMON_SETS.values()) <= now.keys(), f"{sorted(now)}"
    for name, item in now.items():
        assert released.IMAGE not in json.dumps(item["spec"]), name
        was = before.get(name)
        if was is not None:
            is_same = was["metadata"]["uid"] == item["metadata"]["uid"]
            assert is_same == (was["spec"]["selector"] == item["spec"]["selector"]), name
    assert not {"gpu-dcgm", "gpu-dcgm-exporter"} & now.keys()
    return True
