"""State `state-mps-control-daemon`: the Multi-Process Service in the device plugin's image."""

from operands.nvidia.states.mps_control_daemon import STATE
from operands.transforms import object_of, pod_spec_of
from tests.unit.operands.nvidia.state_changes import BLOCK, FULL, changes, check_golden, objects_of

CONFIG = {"config": {"name": "plugin-configs", "default": "shared"}}


def test_objects_by_default_are_the_approved_ones():
    check_golden(STATE, "default", {})


def test_objects_of_a_full_block_are_the_approved_ones():
    plugin = {**BLOCK, **CONFIG, "mps": {"root": "/data/mps"}}
    check_golden(STATE, "full", {**FULL, "devicePlugin": plugin, "mig": {"strategy": "mixed"}})


def test_the_root_of_mps_is_that_of_the_device_plugin():
    assert changes(STATE, {"devicePlugin": {"mps": {"root": "/data/mps"}}}) == {
        "pod.volumes[mps-root].hostPath.path": "/data/mps",
        "pod.volumes[mps-shm].hostPath.path": "/data/mps/shm",
    }


def test_the_strategy_of_mig_is_told():
    path = "pod.containers[mps-control-daemon-ctr].env[MIG_STRATEGY]"
    assert changes(STATE, {"mig": {"strategy": "mixed"}}) == {
        f"{path}.name": "MIG_STRATEGY",
        f"{path}.value": "mixed",
    }


def test_config_managers_see_the_processes_of_the_node_as_the_daemon_does():
    spec = pod_spec_of(object_of(objects_of(STATE, {"devicePlugin": CONFIG}), "DaemonSet"))
    assert [container["name"] for container in spec["containers"]] == [
        "mps-control-daemon-ctr",
        "config-manager",
    ]
    assert spec["hostPID"] is True
    assert "shareProcessNamespace" not in spec


def test_shared_memory_is_mounted_before_the_daemon_starts():
    spec = pod_spec_of(object_of(objects_of(STATE, {}), "DaemonSet"))
    assert [container["name"] for container in spec["initContainers"]] == [
        "toolkit-validation",
        "mps-control-daemon-mounts",
    ]
