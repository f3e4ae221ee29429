"""State `state-mig-manager`: its ConfigMaps, and those of the policy in their place."""

from typing import Any

import pytest

from api.names import CONFIG_HASH_ANNOTATION
from operands.nvidia.states.mig_manager import STATE
from operands.transforms import object_of, pod_spec_of
from tests.unit.operands.nvidia.state_changes import (
    BLOCK,
    FULL,
    Json,
    changes,
    check_golden,
    env_of,
    kinds_of,
    objects_of,
)

MAIN = "nvidia-mig-manager"
ENV = f"pod.containers[{MAIN}].env"
LAYOUTS, CLIENTS = "default-mig-parted-config", "default-gpu-clients"


def manager(**fields: Any) -> Json:
    return {"migManager": fields}


def config_maps(spec: Json) -> set[str]:
    return {name for kind, name in kinds_of(objects_of(STATE, spec)) if kind == "ConfigMap"}


def hash_of(spec: Json) -> Any:
    template = object_of(objects_of(STATE, spec), "DaemonSet")["spec"]["template"]
    return template["metadata"]["annotations"][CONFIG_HASH_ANNOTATION]


def test_objects_by_default_are_the_approved_ones():
    check_golden(STATE, "default", {})


def test_objects_of_a_full_block_are_the_approved_ones():
    block = {
        **BLOCK,
        "config": {"name": "mig-configs", "default": ""},
        "gpuClientsConfig": {"name": "clients"},
    }
    check_golden(
        STATE, "full", {**FULL, "migManager": block, "toolkit": {"installDir": "/opt/toolkit"}}
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {LAYOUTS, CLIENTS}, id="none"),
        pytest.param(manager(config={"name": "mine"}), {CLIENTS}, id="layouts"),
        pytest.param(manager(gpuClientsConfig={"name": "mine"}), {LAYOUTS}, id="clients"),
        pytest.param(
            manager(config={"name": LAYOUTS}, gpuClientsConfig={"name": CLIENTS}),
            {LAYOUTS, CLIENTS},
            id="ours by their names",
        ),
    ],
)
def test_a_config_map_of_the_policy_takes_the_place_of_ours(spec, expected):
    assert config_maps(spec) == {*expected, "nvidia-mig-manager-entrypoint"}


def test_layouts_of_the_policy_are_told_from_ours():
    path = "pod.volumes[mig-parted-config].configMap"
    found = changes(STATE, manager(config={"name": "mine"}))
    hash_path = f"pod.metadata.annotations.{CONFIG_HASH_ANNOTATION}"
    pods = {item: value for item, value in found.items() if item.startswith("pod.")}
    assert pods.pop(hash_path)
    assert pods == {
        f"{path}.name": "mine",
        f"{path}.items[0].key": None,
        f"{path}.items[0].path": None,
        f"{ENV}[CONFIG_FILE].name": "CONFIG_FILE",
        f"{ENV}[CONFIG_FILE].value": "/mig-parted-config/config.yaml",
        f"{ENV}[DEFAULT_CONFIG_FILE].name": None,
        f"{ENV}[DEFAULT_CONFIG_FILE].value": None,
    }


def test_clients_of_the_policy_are_mounted():
    volumes = pod_spec_of(
        object_of(objects_of(STATE, manager(gpuClientsConfig={"name": "mine"})), "DaemonSet")
    )["volumes"]
    assert {"name": "gpu-clients", "configMap": {"name": "mine"}} in volumes


def test_the_default_layout_is_a_matter_of_labels_and_changes_no_object():
    assert changes(STATE, manager(config={"default": ""})) == {}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {},
            {
                "CDI_ENABLED": "true",
                "NVIDIA_CDI_HOOK_PATH": "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
            },
            id="on",
        ),
        pytest.param({"toolkit": {"enabled": False}}, {"CDI_ENABLED": "true"}, id="no toolkit"),
        pytest.param({"cdi": {"enabled": False}}, {}, id="off"),
    ],
)
def test_devices_of_instances_are_told_to_the_container_device_interface(spec, expected):
    found = env_of(objects_of(STATE, spec), MAIN)
    assert {name: value for name, value in found.items() if "CDI" in name} == expected


def test_pods_start_again_with_what_they_read_at_their_start_and_not_for_other_fields():
    assert hash_of({}) == hash_of({"mig": {"strategy": "mixed"}})
    assert hash_of({}) != hash_of(manager(config={"name": "mine"}))


def test_clients_of_the_node_stop_where_the_driver_is_the_nodes_own():
    (script,) = (
        object_["data"]["entrypoint.sh"]
        for object_ in objects_of(STATE, {})
        if object_["metadata"]["name"] == "nvidia-mig-manager-entrypoint"
    )
    assert 'WITH_SHUTDOWN_HOST_GPU_CLIENTS="$IS_HOST_DRIVER"' in script
