"""State `gpu-feature-discovery`: MIG strategy, configurations of the device plugin, NodeFeatures."""

import pytest

from operands.nvidia.states.gpu_feature_discovery import STATE
from operands.transforms import container_of, object_of, pod_spec_of
from tests.unit.operands.nvidia.state_changes import (
    BLOCK,
    FULL,
    changes,
    check_golden,
    env_of,
    objects_of,
)

MAIN = "gpu-feature-discovery"
ENV = f"pod.containers[{MAIN}].env"
PLUGIN = {
    "image": "registry.example.com/plugin:3",
    "imagePullPolicy": "Never",
    "imagePullSecrets": ["of-plugin"],
    "config": {"name": "plugin.configs", "default": "shared"},
}


def test_objects_by_default_are_the_approved_ones():
    check_golden(STATE, "default", {})


def test_objects_of_a_full_block_are_the_approved_ones():
    check_golden(
        STATE,
        "full",
        {**FULL, "gfd": BLOCK, "devicePlugin": PLUGIN, "mig": {"strategy": "mixed"}},
    )


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        pytest.param(None, {"NVIDIA_MIG_MONITOR_DEVICES": "all"}, id="not set"),
        pytest.param("none", {"MIG_STRATEGY": "none"}, id="none"),
        pytest.param(
            "single", {"MIG_STRATEGY": "single", "NVIDIA_MIG_MONITOR_DEVICES": "all"}, id="single"
        ),
        pytest.param(
            "mixed", {"MIG_STRATEGY": "mixed", "NVIDIA_MIG_MONITOR_DEVICES": "all"}, id="mixed"
        ),
    ],
)
def test_the_strategy_of_mig_is_told_and_instances_are_seen(strategy, expected):
    found = env_of(objects_of(STATE, {"mig": {"strategy": strategy} if strategy else {}}), MAIN)
    assert {name: value for name, value in found.items() if "MIG" in name} == expected


def test_configurations_bring_a_manager_in_the_image_of_the_device_plugin():
    objects = objects_of(
        STATE, {"devicePlugin": PLUGIN, "gfd": {"resources": {"limits": {"cpu": 1}}}}
    )
    daemon_set = object_of(objects, "DaemonSet")
    spec = pod_spec_of(daemon_set)
    for name in ("config-manager-init", "config-manager"):
        manager = container_of(daemon_set, name)
        assert manager["image"] == PLUGIN["image"]
        assert manager["imagePullPolicy"] == "Never"
        assert manager["resources"] == {"limits": {"cpu": 1}}
        assert {"name": "DEFAULT_CONFIG", "value": "shared"} in manager["env"]
    assert container_of(daemon_set, MAIN)["image"] == "registry.example.com/gfd:1"
    assert spec["imagePullSecrets"] == [{"name": "of-plugin"}]
    assert spec["shareProcessNamespace"] is True
    (volume,) = (item for item in spec["volumes"] if "configMap" in item)
    assert volume == {"name": "available-configs", "configMap": {"name": "plugin.configs"}}


def test_without_configurations_there_is_no_manager():
    spec = pod_spec_of(object_of(objects_of(STATE, {}), "DaemonSet"))
    assert [container["name"] for container in spec["containers"]] == [MAIN]
    assert [container["name"] for container in spec["initContainers"]] == ["toolkit-validation"]
    assert not [
        volume for volume in spec["volumes"] if volume["name"] in {"config", "available-configs"}
    ]
    assert "shareProcessNamespace" not in spec


def test_features_are_reported_by_a_node_feature_unless_the_environment_decides():
    assert env_of(objects_of(STATE, {}), MAIN)["USE_NODE_FEATURE_API"] == "true"
    spec = {"gfd": {"env": [{"name": "USE_NODE_FEATURE_API", "value": "false"}]}}
    assert changes(STATE, spec) == {f"{ENV}[USE_NODE_FEATURE_API].value": "false"}
