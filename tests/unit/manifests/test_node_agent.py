"""The node agent's DaemonSet: when there is one, what it does, what it sees of its node."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from agent.inventory.node_feature import feature_name
from agent.settings import AgentRole, AgentSettings
from api.names import NodeName
from api.nodefiles.pluginproblems import PROBLEMS_DIRECTORY
from api.nodefiles.poolconfig import HandOut
from cli.agent import add_arguments, settings_of
from inventory.health.device import IGNORED_XIDS
from manifests import constants
from manifests.install.agent_policy import build_agent_policy
from manifests.node import agent_daemonset
from manifests.node.agent_daemonset import build_node_agent
from manifests.node.device_plugin import (
    NodeAgentSettings,
    PluginKind,
    PluginMode,
    WorkloadSettings,
)
from server.controllers.settings import workload_settings
from server.settings import Settings
from tests.unit.manifests.pool_objects import a_pool, objects_of

FOUND = frozenset({AgentRole.INVENTORY, AgentRole.HEALTH, AgentRole.MIG})


def settings(**more: Any) -> WorkloadSettings:
    return WorkloadSettings(image="plugin:1", **more)


def pod_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = (one for one in objects if one["kind"] == "DaemonSet")
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


def test_roles_are_called_as_the_agent_calls_them():
    assert {*agent_daemonset.ROLES, agent_daemonset.PLUGIN_ROLE} == {
        role.value for role in AgentRole
    }


def test_a_pools_plugin_does_nothing_else():
    parsed = understood(pod_of(objects_of(a_pool())))
    assert parsed.roles == {AgentRole.DEVICE_PLUGIN}
    assert parsed.config == Path("/etc/gpu-control-plane/pool/config.json")


@pytest.mark.parametrize("hand_out", list(HandOut))
def test_all_agents_hand_out_the_same_way(hand_out: HandOut):
    given = settings(hand_out=hand_out, cdi_kind="example.com/gpu")
    for pod in (pod_of(objects_of(a_pool(), settings=given)), pod_of(build_node_agent(given))):
        parsed = understood(pod)
        assert (parsed.hand_out, parsed.cdi_kind) == (hand_out, "example.com/gpu")


def test_a_plugin_tells_its_problems_where_the_node_agent_looks_for_them():
    plugin = pod_of(objects_of(a_pool("training")))
    assert understood(plugin).pool == "training"
    (volume,) = (one for one in plugin["volumes"] if one["name"] == "problems")
    (mount,) = (one for one in plugin["containers"][0]["volumeMounts"] if one["name"] == "problems")
    agent = understood(pod_of(build_node_agent(settings())))
    directory = str(agent.run_directory / PROBLEMS_DIRECTORY)
    # The agent has the run directory as the node has it.
    assert volume["hostPath"] == {"path": directory, "type": "DirectoryOrCreate"}
    assert mount == {"name": "problems", "mountPath": directory}


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        pytest.param({}, None, id="the usual ones"),
        pytest.param(
            {"health": {"ignored_xids": sorted(IGNORED_XIDS)[::-1]}}, None, id="in any order"
        ),
        pytest.param({"health": {"ignored_xids": [31, 13]}}, frozenset({13, 31}), id="others"),
        pytest.param({"health": {"ignored_xids": []}}, frozenset(), id="none"),
    ],
)
def test_the_servers_ignored_xids_reach_the_agent(
    given: dict[str, Any], parsed: frozenset[int] | None
):
    pod = pod_of(build_node_agent(workload_settings(Settings(**given))))
    assert understood(pod).ignored_xids == parsed
    arguments = [one for one in pod["containers"][0]["args"] if "xids" in one]
    assert len(arguments) == (parsed is not None)


def test_the_policy_knows_under_which_name_an_agent_publishes():
    policy, _ = build_agent_policy()
    assert feature_name(NodeName("n1")) == f"{constants.AGENT_FEATURE_PREFIX}n1"
    assert constants.AGENT_FEATURE_PREFIX in policy["spec"]["validations"][1]["expression"]


def test_directories_are_mounted_where_the_agent_looks_for_them():
    pod = pod_of(build_node_agent(settings(mode=PluginMode.PER_NODE)))
    parsed = understood(pod)
    (container,) = pod["containers"]
    hosts = {one["name"]: one["hostPath"]["path"] for one in pod["volumes"]}
    mounts = {one["mountPath"]: hosts[one["name"]] for one in container["volumeMounts"]}
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
    (root,) = (one for one in container["volumeMounts"] if one["name"] == "host")
    assert (root["readOnly"], root["mountPropagation"]) == (True, "HostToContainer")
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_probes_ask_the_port_that_the_agent_opens():
    for pod in (pod_of(build_node_agent(settings())), pod_of(objects_of(a_pool()))):
        (container,) = pod["containers"]
        assert [one["containerPort"] for one in container["ports"]] == [understood(pod).port]


def test_a_node_is_looked_at_whatever_taints_it_has():
    pod = pod_of(build_node_agent(settings(node_selector={"b": "2", "a": "1"})))
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert list(pod["nodeSelector"].items()) == [("a", "1"), ("b", "2")]
    assert pod["serviceAccountName"] == constants.NODE_AGENT


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
