"""What a pool runs, at the real API server: its defaults are no difference, and pods go where they should."""

import copy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from api.foreign.core import Taint
from api.foreign.workload_kinds import ConfigMap, DaemonSet
from api.kinds.gpupool import Allocation, AllocationMode, GPUPool, GPUPoolSpec, Scheduling
from api.meta import ObjectMeta
from api.names import CONFIG_HASH_ANNOTATION, NodeName, pool_node_label
from api.nodefiles.poolconfig import ConfiguredDevice
from manifests import constants
from manifests.node.agent_daemonset import build_node_agent
from manifests.node.device_plugin import (
    PluginKind,
    PluginMode,
    WorkloadSettings,
    build_pool_workloads,
    plugin_name,
    pool_config,
)
from manifests.yaml import render
from reconciler.pool.workloads import FIELD_MANAGER
from reconciler.runtime.object_applier import first_difference
from server.controllers.settings import workload_settings
from server.settings import Settings
from simulator.apiserver.strategies import daemonset
from tests.cluster.environment import polling

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.kubectl import Kubectl

Json = dict[str, Any]
N1 = NodeName("n1")
TAINT = Taint(key="gpu.deckhouse.io/only", value="training", effect="NoSchedule")
TYPES = {"ConfigMap": ConfigMap, "DaemonSet": DaemonSet}


def a_pool(name: str, **allocation: Any) -> GPUPool:
    return GPUPool(
        metadata=ObjectMeta(name=name, uid="5c5c2bfe-1b0c-4b1e-9d43-d07a6a3f7a11"),
        spec=GPUPoolSpec(
            allocation=Allocation(**allocation), scheduling=Scheduling(taints=[TAINT])
        ),
    )


def rendered(namespace: str, name: str = "training", **settings: Any) -> list[Json]:
    """The objects of a pool whose owner is not there, which the collector would take for gone."""
    pool = a_pool(name, mode=AllocationMode.MIG, mig_profile="1g.10gb")
    if settings.get("plugin") is PluginKind.NVIDIA:
        pool = a_pool(name, mode=AllocationMode.TIME_SLICE, slices_per_device=4)
    devices = {N1: (ConfiguredDevice(uuid="GPU-1", instances=["MIG-1"]),)}
    given = WorkloadSettings(image="gpu-control-plane:1.0", namespace=namespace, **settings)
    objects = [
        *build_pool_workloads(pool, pool_config(pool, devices), given),
        *build_node_agent(given),
    ]
    for object_ in objects:
        object_["metadata"].pop("ownerReferences", None)
    return objects


def daemon_sets(objects: list[Json]) -> list[Json]:
    return [object_ for object_ in objects if object_["kind"] == "DaemonSet"]


def path_of(body: Json) -> str:
    meta = body["metadata"]
    prefix = "/api/v1" if body["kind"] == "ConfigMap" else "/apis/apps/v1"
    plural = body["kind"].lower() + "s"
    return f"{prefix}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"


async def applied(api: "ApiClient", body: Json) -> Json:
    return await api.patch(
        path_of(body), body, kind="apply", fieldManager=FIELD_MANAGER, force="true"
    )


_POD: dict[str, Any] = {
    # In other spellings than the API server's.
    "resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"memory": "1.5Gi"}},
}
_EVERY_SETTING = workload_settings(
    Settings.model_validate(
        {
            "device_plugin": _POD,
            "node_agent": {
                **_POD,
                "image_pull_policy": "IfNotPresent",
                "image_pull_secrets": ["registry", "another"],
                "priority_class": "",
                "node_selector": {"disk": "ssd"},
                "node_affinity": [
                    {"key": "a", "operator": "NotIn", "values": ["x", "y"]},
                    {"key": "b", "operator": "DoesNotExist"},
                    {"key": "c", "operator": "Gt", "values": ["3"]},
                ],
            },
            "kubelet": {"directory": "/var/lib/k0s/kubelet"},
        }
    )
)
VARIANTS = [
    pytest.param(
        {
            "pods": _EVERY_SETTING.pods,
            "agent": _EVERY_SETTING.agent,
            "kubelet": _EVERY_SETTING.kubelet,
        },
        id="every setting of pods",
    ),
    pytest.param({}, id="own"),
    pytest.param({"plugin": PluginKind.NVIDIA}, id="NVIDIA"),
    pytest.param({"mode": PluginMode.PER_NODE}, id="one for all pools"),
]


@pytest.mark.parametrize("settings", VARIANTS)
async def test_every_field_is_known_and_valid(
    kubectl: "Kubectl", namespace: str, settings: dict[str, Any]
) -> None:
    text = render(rendered(namespace, **settings))
    await kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=text)


@pytest.mark.parametrize("settings", VARIANTS)
async def test_what_the_api_server_adds_is_no_difference(
    api: "ApiClient", namespace: str, settings: dict[str, Any]
) -> None:
    """Lesson 11: the defaults of the real API server, and a second apply that changes nothing."""
    objects = rendered(namespace, **settings)
    assert objects
    for body in objects:
        first = await applied(api, body)
        live = msgspec.convert(await api.get(path_of(body)), type=TYPES[body["kind"]])
        assert not first_difference(body, msgspec.to_builtins(live))
        again = await applied(api, body)
        assert again["metadata"].get("generation") == first["metadata"].get("generation")


async def test_a_changed_field_of_ours_is_a_difference(api: "ApiClient", namespace: str) -> None:
    body, *_ = daemon_sets(rendered(namespace))
    await applied(api, body)
    path = path_of(body)
    await api.patch(path, {"spec": {"template": {"spec": {"priorityClassName": ""}}}})
    live = msgspec.convert(await api.get(path), type=DaemonSet)
    assert first_difference(body, msgspec.to_builtins(live))


@pytest.mark.parametrize("settings", VARIANTS)
async def test_the_server_in_memory_adds_the_same(
    api: "ApiClient", namespace: str, settings: dict[str, Any]
) -> None:
    for body in daemon_sets(rendered(namespace, **settings)):
        real = await applied(api, body)
        ours = copy.deepcopy(body)
        daemonset.default(ours)
        template = ours["spec"]["template"]["metadata"]
        # It is null in older answers, and left out in newer ones.
        template.pop("creationTimestamp")
        real["spec"]["template"]["metadata"].pop("creationTimestamp", None)
        assert ours["spec"] == real["spec"]
        assert ours["metadata"]["annotations"] == real["metadata"]["annotations"]
        assert CONFIG_HASH_ANNOTATION in real["metadata"]["annotations"]


async def test_plugins_run_on_the_pools_nodes_and_nowhere_else(
    api: "ApiClient",
    namespace: str,
    create_nodes: "Callable[..., Awaitable[list[str]]]",
) -> None:
    pool = f"pool-{namespace}"
    (theirs,) = await create_nodes(1, labels={pool_node_label(a_pool(pool).name): ""})
    await create_nodes(1)
    taint = {"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect}
    await api.patch(f"/api/v1/nodes/{theirs}", {"spec": {"taints": [taint]}})
    account = {"metadata": {"name": constants.DEVICE_PLUGIN}}
    await api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    (body,) = (
        set_
        for set_ in daemon_sets(rendered(namespace, pool))
        if set_["metadata"]["name"] == plugin_name(a_pool(pool).name)
    )
    await applied(api, body)

    async def nodes() -> set[str]:
        pods = await api.get(f"/api/v1/namespaces/{namespace}/pods")
        return {_node_of(pod) for pod in pods["items"]}

    async def is_there_only() -> bool:
        return await nodes() == {theirs}

    await polling.eventually(is_there_only, what=f"a pod of {plugin_name(a_pool(pool).name)}")


def _node_of(pod: Json) -> str:
    """Return the node that the controller of DaemonSets made the pod for."""
    terms = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    (name,) = terms[0]["matchFields"][0]["values"]
    return str(name)
