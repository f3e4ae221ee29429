"""The node agent's DaemonSet: when there is one, what it does, what it sees of its node."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.detection.report import detector_feature_name
from agent.inventory.node_feature import feature_name
from agent.settings import AgentRole, AgentSettings
from api.csi.names import DRIVER_NAME
from api.foreign.core import Affinity
from api.names import NodeName
from api.nodefiles.pluginproblems import PROBLEMS_DIRECTORY
from api.nodefiles.poolconfig import DeviceInjection
from cli.agent import add_arguments, settings_of
from inventory.discovery.node import InventoryParameters, is_managed
from inventory.health.recovery import RecoveryAction
from manifests import constants
from manifests.install.agent_policy import build_agent_policy
from manifests.node import agent_daemonset, cache_mounts, detector_daemonset
from manifests.node.agent_daemonset import build_node_agent
from manifests.node.cache_mounts import STORE_DIRECTORY
from manifests.node.device_plugin import (
    NodeAgentSettings,
    PluginKind,
    PluginMode,
    WorkloadSettings,
)
from operands.nvidia.policy_states import build_operands
from operands.operand_state import ALL_KINDS_SERVED
from pool.node_affinity import RequiredNodeAffinity
from server.controllers.built_in_policy import built_in_policy
from server.controllers.settings import workload_settings
from server.settings import Settings
from tests.unit.manifests.pool_objects import TAINT, a_pool, objects_of
from tests.unit.operands.operand_cases import a_built_in_policy, all_on

FOUND = frozenset({AgentRole.INVENTORY, AgentRole.HEALTH, AgentRole.MIG})


def settings(**more: Any) -> WorkloadSettings:
    return WorkloadSettings(image="plugin:1", **more)


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (object_ for object_ in objects if object_["kind"] == "DaemonSet")
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def understood(pod: dict[str, Any]) -> AgentSettings:
    """What the command makes of the container's arguments."""
    (container,) = pod["containers"]
    assert (container["command"], container["args"][0]) == (["gpu-control-plane"], "agent")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return settings_of(parser.parse_args(container["args"][1:]))


@pytest.mark.parametrize(
    ("mode", "roles"),
    [
        (PluginMode.PER_POOL, FOUND),
        (PluginMode.NONE, FOUND),
        (PluginMode.PER_NODE, FOUND | {AgentRole.DEVICE_PLUGIN}),
    ],
)
def test_roles_follow_the_mode(mode: PluginMode, roles: frozenset[AgentRole]):
    parsed = understood(pod_of(build_node_agent(settings(mode=mode, namespace="gpus"))))
    assert (parsed.roles, parsed.namespace, parsed.config) == (roles, "gpus", None)


@pytest.mark.parametrize(
    ("bootstrap", "exports"),
    [
        pytest.param({"dcgm_exporter": {"enabled": True}}, True, id="from NVML"),
        pytest.param({"dcgm_exporter": {"enabled": False}}, False, id="off"),
        pytest.param(
            {"dcgm_exporter": {"enabled": True}, "operands": "External"}, False, id="external"
        ),
        pytest.param(
            {"dcgm_exporter": {"enabled": True, "source": "DCGM", "image": "a/b:1"}},
            False,
            id="from DCGM",
        ),
    ],
)
def test_agent_serves_metrics_where_the_operand_leads_to_them(
    bootstrap: dict[str, Any], exports: bool
):
    plugin = {"image": "plugin:1"}
    ours = Settings.model_validate({"device_plugin": plugin, "bootstrap": bootstrap})
    parsed = understood(pod_of(build_node_agent(workload_settings(ours))))
    assert (AgentRole.TELEMETRY in parsed.roles) is exports
    own = built_in_policy(ours, workload_settings(ours)).own
    assert own is not None
    assert own.exports_nvml is exports


def test_roles_are_called_as_the_agent_calls_them():
    """The validator is a DaemonSet of its own."""
    roles = {
        *agent_daemonset.ROLES,
        *cache_mounts.CACHE_ROLES,
        agent_daemonset.TELEMETRY_ROLE,
        agent_daemonset.PLUGIN_ROLE,
        detector_daemonset.ROLE,
    }
    assert roles == {role.value for role in AgentRole if role is not AgentRole.VALIDATOR}


CACHES: dict[str, Any] = {
    "directory": "/data/gkm",
    "quota": "1Ti",
    "grace_s": 60,
    "registries": {
        "plain_http": ["registry.test:5000", "other:80"],
        "private": ["registry.test:5000", "blobs.test"],
        "ca_config_map": "cas",
    },
    "pull_secrets": ["one", "two"],
}


def agent_of(**given: Any) -> dict[str, Any]:
    ours = Settings.model_validate({"device_plugin": {"image": "plugin:1"}, **given})
    return pod_of(build_node_agent(workload_settings(ours)))


def test_settings_of_kernel_caches_reach_the_agent():
    usual = understood(agent_of())
    assert {AgentRole.CACHES, AgentRole.CSI} <= usual.roles
    assert (usual.caches_quota, usual.caches_grace) == (100 * 2**30, 300)
    assert usual.caches_directory == Path(STORE_DIRECTORY)
    parsed = understood(agent_of(kernel_caches=CACHES, kubelet={"directory": "/data/kubelet"}))
    assert (parsed.caches_quota, parsed.caches_grace) == (2**40, 60)
    assert parsed.caches_directory == usual.caches_directory
    assert parsed.kubelet_directory == Path("/data/kubelet")
    assert parsed.registries_plain_http == {"registry.test:5000", "other:80"}
    assert parsed.registries_private == {"registry.test:5000", "blobs.test"}
    assert parsed.registries_ca_file == Path("/etc/gpu-control-plane/registries/ca.crt")
    assert parsed.cache_pull_secrets == {"one", "two"}


def test_kernel_caches_that_are_off_leave_the_agent_as_it_was():
    off = agent_of(kernel_caches={**CACHES, "enabled": False})
    assert not {AgentRole.CACHES, AgentRole.CSI} & understood(off).roles
    on = agent_of(kernel_caches=CACHES)
    names = {volume["name"] for volume in on["volumes"]}
    assert names - {volume["name"] for volume in off["volumes"]} == {
        "caches",
        "pods",
        "csi-plugin",
        "plugins-registry",
        "registries-ca",
    }


def test_the_agent_mounts_at_the_paths_that_kubelet_names():
    pod = agent_of(kernel_caches=CACHES, kubelet={"directory": "/data/kubelet"})
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume.get("hostPath", {}) for volume in pod["volumes"]}
    root = understood(pod).kubelet_directory
    expected = {
        "pods": str(root / "pods"),
        "csi-plugin": str(root / "plugins" / DRIVER_NAME),
        "plugins-registry": str(root / "plugins_registry"),
    }
    for name, path in expected.items():
        assert mounts[name]["mountPath"] == volumes[name]["path"] == path
        assert not mounts[name].get("readOnly")
    assert mounts["pods"]["mountPropagation"] == "Bidirectional"
    assert volumes["caches"] == {"path": "/data/gkm", "type": "DirectoryOrCreate"}
    assert mounts["caches"]["mountPath"] == STORE_DIRECTORY
    assert mounts["registries-ca"]["readOnly"]


def test_a_pools_plugin_does_nothing_else():
    parsed = understood(pod_of(objects_of(a_pool())))
    assert parsed.roles == {AgentRole.DEVICE_PLUGIN}
    assert parsed.config == Path("/etc/gpu-control-plane/pool/config.json")


@pytest.mark.parametrize("hand_out", list(DeviceInjection))
def test_all_agents_hand_out_the_same_way(hand_out: DeviceInjection):
    given = settings(hand_out=hand_out, cdi_kind="example.com/gpu")
    for pod in (pod_of(objects_of(a_pool(), settings=given)), pod_of(build_node_agent(given))):
        parsed = understood(pod)
        assert (parsed.hand_out, parsed.cdi_kind) == (hand_out, "example.com/gpu")


def test_a_plugin_tells_its_problems_where_the_node_agent_looks_for_them():
    plugin = pod_of(objects_of(a_pool("training")))
    assert understood(plugin).pool == "training"
    (volume,) = (item for item in plugin["volumes"] if item["name"] == "problems")
    (mount,) = (
        item for item in plugin["containers"][0]["volumeMounts"] if item["name"] == "problems"
    )
    agent = understood(pod_of(build_node_agent(settings())))
    directory = str(agent.run_directory / PROBLEMS_DIRECTORY)
    # The agent has the run directory as the node has it.
    assert volume["hostPath"] == {"path": directory, "type": "DirectoryOrCreate"}
    assert mount == {"name": "problems", "mountPath": directory}


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param(
            {"94": "GPUReset", "31": "None"},
            {31: RecoveryAction.NONE, 94: RecoveryAction.GPU_RESET},
            id="two",
        ),
    ],
)
def test_the_servers_actions_after_xids_reach_the_agent(
    given: dict[str, Any], parsed: dict[int, RecoveryAction]
):
    settings = Settings.model_validate({"health": {"xid_actions": given}})
    pod = pod_of(build_node_agent(workload_settings(settings)))
    assert understood(pod).xid_actions == parsed
    arguments = [arg for arg in pod["containers"][0]["args"] if "xid" in arg]
    assert len(arguments) == bool(parsed)


def test_the_directory_of_the_drivers_libraries_reaches_agent_and_validator():
    given = Settings.model_validate({"node_agent": {"driver_libraries": "/opt/vendor/lib"}})
    pod = pod_of(build_node_agent(workload_settings(given)))
    assert understood(pod).driver_libraries == "/opt/vendor/lib"
    own = built_in_policy(given, workload_settings(given)).own
    assert own is not None
    assert own.library_arguments == ("--driver-libraries=/opt/vendor/lib",)
    usual = pod_of(build_node_agent(workload_settings(Settings())))
    assert not [arg for arg in usual["containers"][0]["args"] if "driver-libraries" in arg]


def test_the_policy_knows_under_which_name_an_agent_publishes():
    policy, _ = build_agent_policy()
    assert feature_name(NodeName("n1")) == f"{constants.AGENT_FEATURE_PREFIX}n1"
    assert detector_feature_name("n1") == f"{constants.DETECTOR_FEATURE_PREFIX}n1"
    (prefix,) = (
        variable for variable in policy["spec"]["variables"] if variable["name"] == "prefix"
    )
    for expected in (
        constants.AGENT_FEATURE_PREFIX,
        constants.DETECTOR_FEATURE_PREFIX,
        # github.com/NVIDIA/k8s-device-plugin, internal/lm/output.go: nodeFeatureVendorPrefix.
        "nvidia-features-for-",
    ):
        assert f"'{expected}'" in prefix["expression"]


def test_directories_are_mounted_where_the_agent_looks_for_them():
    pod = pod_of(build_node_agent(settings(mode=PluginMode.PER_NODE)))
    parsed = understood(pod)
    (container,) = pod["containers"]
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: hosts[mount["name"]] for mount in container["volumeMounts"]}
    assert mounts == {
        str(parsed.plugins_directory): "/var/lib/kubelet/device-plugins",
        str(parsed.pod_resources_directory): "/var/lib/kubelet/pod-resources",
        str(parsed.run_directory): "/run/gpu-control-plane",
        str(parsed.cdi_directory): "/var/run/cdi",
        str(parsed.dev_root): "/dev",
        str(parsed.driver_root): "/",
    }


def test_of_the_nodes_root_it_reads_what_is_mounted_later_too():
    (container,) = pod_of(build_node_agent(settings()))["containers"]
    (root,) = (mount for mount in container["volumeMounts"] if mount["name"] == "host")
    assert (root["readOnly"], root["mountPropagation"]) == (True, "HostToContainer")
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_probes_ask_the_port_that_the_agent_opens():
    for pod in (pod_of(build_node_agent(settings())), pod_of(objects_of(a_pool()))):
        (container,) = pod["containers"]
        assert [item["containerPort"] for item in container["ports"]] == [understood(pod).port]


def test_the_agent_runs_by_its_own_account():
    pod = pod_of(build_node_agent(settings()))
    assert pod["serviceAccountName"] == constants.NODE_AGENT


def places(pod: dict[str, Any]) -> Callable[[dict[str, str]], bool]:
    """Say of which nodes kube-scheduler finds the pod's affinity and selector satisfied."""
    affinity = msgspec.convert(pod["affinity"], Affinity).node_affinity
    assert affinity is not None
    assert affinity.required is not None
    required = RequiredNodeAffinity(affinity.required.node_selector_terms or ())
    selector = pod.get("nodeSelector", {}).items()
    return lambda labels: required.accepts(labels, "n") and selector <= labels.items()


@pytest.mark.parametrize(
    ("labels", "is_run"),
    [
        pytest.param({}, False, id="no device"),
        pytest.param({"gpu.deckhouse.io/present": "true"}, True, id="our label"),
        pytest.param({"nvidia.com/gpu.present": "true"}, True, id="NVIDIA's label"),
        pytest.param({"nvidia.com/gpu.present": "false"}, False, id="NVIDIA's label, false"),
        pytest.param(
            {"nvidia.com/gpu.present": "true", "gpu.deckhouse.io/present": "false"},
            False,
            id="kept away by hand",
        ),
    ],
)
def test_it_runs_where_a_device_is(labels: dict[str, str], is_run: bool):
    assert places(pod_of(build_node_agent(settings())))(labels) is is_run


def test_further_labels_narrow_both_sources():
    given = workload_settings(
        Settings.model_validate(
            {
                "node_agent": {
                    "node_selector": {"a": "1", "b": "2"},
                    "node_affinity": [{"key": "zone", "operator": "NotIn", "values": ["edge"]}],
                },
            }
        )
    )
    pod = pod_of(build_node_agent(given))
    assert list(pod["nodeSelector"].items()) == [("a", "1"), ("b", "2")]
    for key in ("gpu.deckhouse.io/present", "nvidia.com/gpu.present"):
        assert places(pod)({key: "true", "a": "1", "b": "2"})
        assert not places(pod)({key: "true", "a": "1"})
        assert not places(pod)({key: "true", "a": "1", "b": "2", "zone": "edge"})


@pytest.mark.parametrize("label", ["gpu.deckhouse.io/enabled", "example.com/gpu"])
@pytest.mark.parametrize("by_default", [True, False])
@pytest.mark.parametrize("value", [None, "true", "false", "False"])
def test_agent_and_operands_run_on_managed_nodes_alone(
    label: str, *, by_default: bool, value: str | None
):
    inventory = {"managed_label": label, "managed_by_default": by_default}
    policy = a_built_in_policy(all_on(), inventory=inventory)
    agent = workload_settings(Settings.model_validate({"inventory": inventory}))
    pods = [
        pod_of([item])
        for item in (*build_operands(policy, ALL_KINDS_SERVED), *build_node_agent(agent))
        if item["kind"] == "DaemonSet"
    ]
    labels = {} if value is None else {label: value}
    parameters = InventoryParameters(managed_label=label, is_managed_by_default=by_default)
    want = is_managed(labels, parameters)
    assert want is (by_default if value is None else value == "true")
    assert len(pods) == 5
    for pod in pods:
        for source in ("gpu.deckhouse.io/present", "nvidia.com/gpu.present"):
            assert places(pod)({source: "true", **labels}) is want


@pytest.mark.parametrize("limit", [3, "25%"])
def test_all_daemon_sets_take_as_many_nodes_at_a_time_as_the_setting_says(limit: int | str):
    given: dict[str, Any] = {"daemonsets": {"rolling_update": {"max_unavailable": limit}}}
    pods = workload_settings(Settings.model_validate(given))
    built = {
        item["metadata"]["name"]: item["spec"]["updateStrategy"]["rollingUpdate"]
        for item in (
            *build_operands(a_built_in_policy(all_on(), **given), ALL_KINDS_SERVED),
            *build_node_agent(pods),
            *detector_daemonset.build_node_detector(pods),
            *objects_of(a_pool("own"), settings=pods),
            *objects_of(a_pool("theirs"), settings=replace(pods, plugin=PluginKind.NVIDIA)),
        )
        if item["kind"] == "DaemonSet"
    }
    # A pod of our plugin is ready before the one that it replaces ends.
    overlapping = {"maxSurge": limit, "maxUnavailable": 0}
    assert built.pop("gpu-device-plugin-own") == overlapping
    assert len(built) == 7
    assert all(item == {"maxSurge": 0, "maxUnavailable": limit} for item in built.values())


def test_the_pods_of_both_are_as_the_settings_say():
    pulling = {
        "image_pull_policy": "Never",
        "image_pull_secrets": ["registry"],
        "priority_class": "",
    }
    more = {"resources": {"requests": {"cpu": "0.5"}, "limits": {}}}
    given = workload_settings(
        Settings.model_validate(
            {
                "device_plugin": {"image": "r.test/p", **more},
                "node_agent": {**more, **pulling},
                "kubelet": {"directory": "/var/lib/k0s/kubelet"},
            }
        )
    )
    plugin = pod_of(objects_of(a_pool("p", TAINT), settings=given))
    agent = pod_of(build_node_agent(given))
    for pod in (plugin, agent):
        (container,) = pod["containers"]
        assert container["imagePullPolicy"] == "Never"
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert container["resources"] == {"requests": {"cpu": "500m"}}
        assert "priorityClassName" not in pod
        assert pod["tolerations"] == [{"operator": "Exists"}]
        hosts = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
        assert {"/var/lib/k0s/kubelet/pod-resources", "/var/lib/kubelet/device-plugins"} <= hosts
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/var/lib/kubelet/pod-resources", "/var/lib/kubelet/device-plugins"} <= mounts


@pytest.mark.parametrize(
    ("given", "image"),
    [
        pytest.param({}, "plugin:1", id="our plugin's"),
        pytest.param({"agent": NodeAgentSettings(image="own:2")}, "own:2", id="its own"),
        pytest.param({"plugin": PluginKind.NVIDIA}, "gpu-control-plane", id="beside NVIDIA's"),
    ],
)
def test_its_image_is_always_ours(given: dict[str, Any], image: str):
    (container,) = pod_of(build_node_agent(settings(**given)))["containers"]
    assert container["image"] == image


def test_it_can_be_left_out_unless_it_serves_pools():
    without = NodeAgentSettings(is_enabled=False)
    assert build_node_agent(settings(agent=without)) == []
    with pytest.raises(ValueError, match="enable it, or set mode to PerPool"):
        settings(agent=without, mode=PluginMode.PER_NODE)
