"""What all operands of containers have in common: their block, their gate, their wait, and that they can be off."""

import pytest

from operands.nvidia.policy_operands import StateFault, StateSettingsError
from operands.nvidia.states import (
    container_toolkit,
    dcgm,
    dcgm_exporter,
    device_plugin,
    gpu_feature_discovery,
    mig_manager,
    mps_control_daemon,
    node_status_exporter,
)
from operands.transforms import object_of, pod_spec_of
from tests.support.kubernetes_schemas import check_object
from tests.unit.operands.nvidia.state_changes import (
    BLOCK,
    CRI_O,
    DOCKER,
    FULL,
    State,
    changes,
    env_of,
    objects_of,
)

MAIN = {
    container_toolkit.STATE: ("toolkit", "nvidia-container-toolkit-ctr"),
    device_plugin.STATE: ("devicePlugin", "nvidia-device-plugin"),
    mps_control_daemon.STATE: ("devicePlugin", "mps-control-daemon-ctr"),
    dcgm.STATE: ("dcgm", "nvidia-dcgm-ctr"),
    dcgm_exporter.STATE: ("dcgmExporter", "nvidia-dcgm-exporter"),
    gpu_feature_discovery.STATE: ("gfd", "gpu-feature-discovery"),
    mig_manager.STATE: ("migManager", "nvidia-mig-manager"),
    node_status_exporter.STATE: ("nodeStatusExporter", "nvidia-node-status-exporter"),
}
NAMES = {
    "state-container-toolkit": "nvidia-container-toolkit-daemonset",
    "state-device-plugin": "nvidia-device-plugin-daemonset",
    "state-mps-control-daemon": "nvidia-device-plugin-mps-control-daemon",
    "state-dcgm": "nvidia-dcgm",
    "state-dcgm-exporter": "nvidia-dcgm-exporter",
    "gpu-feature-discovery": "gpu-feature-discovery",
    "state-mig-manager": "nvidia-mig-manager",
    "state-node-status-exporter": "nvidia-node-status-exporter",
}
ON = {"nodeStatusExporter": {"enabled": True}}
"""The only one that is off by default."""
EACH_STATE = pytest.mark.parametrize(
    "state", [pytest.param(state, id=state.name) for state in MAIN]
)


def changed_by(state: State, **fields):
    """What fields of the state's block change."""
    block, _ = MAIN[state]
    on = {**ON.get(block, {})}
    return changes(state, {**ON, block: {**on, **fields}}, ON)


def operand_containers(state: State) -> list[str]:
    """Paths of the containers that run the state's own image, and so not that of the validator."""
    pod = pod_spec_of(object_of(objects_of(state, ON), "DaemonSet"))
    return [
        f"pod.{part}[{item['name']}]"
        for part in ("containers", "initContainers")
        for item in pod.get(part, ())
        if not item["name"].endswith("-validation")
    ]


@EACH_STATE
def test_image_of_the_block(state: State):
    found = changed_by(state, repository="r.example.com/x", image="y", version="sha256:0a")
    assert found == {
        f"{path}.image": "r.example.com/x/y@sha256:0a" for path in operand_containers(state)
    }


@EACH_STATE
def test_pull_policy_of_the_block(state: State):
    found = changed_by(state, imagePullPolicy="Always")
    assert found == {f"{path}.imagePullPolicy": "Always" for path in operand_containers(state)}


@EACH_STATE
def test_pull_secrets_of_the_block(state: State):
    found = changed_by(state, imagePullSecrets=["one", "two"])
    assert found == {f"pod.imagePullSecrets[{name}].name": name for name in ("one", "two")}


@EACH_STATE
def test_resources_of_the_block_are_those_of_each_container(state: State):
    found = changed_by(state, resources={"limits": {"memory": "1Gi"}})
    assert found == {f"{path}.resources.limits.memory": "1Gi" for path in operand_containers(state)}


@EACH_STATE
def test_network_of_the_node(state: State):
    assert changed_by(state, hostNetwork=True) == {
        "pod.hostNetwork": True,
        "pod.dnsPolicy": "ClusterFirstWithHostNet",
    }


@EACH_STATE
def test_environment_of_the_block_reaches_the_main_container(state: State):
    found = changed_by(state, env=[{"name": "LEVEL", "value": "debug"}])
    path = f"pod.containers[{MAIN[state][1]}].env[LEVEL]"
    expected = {f"{path}.name": "LEVEL", f"{path}.value": "debug"}
    assert found == ({} if state is mps_control_daemon.STATE else expected)


@EACH_STATE
def test_arguments_of_the_block_reach_the_program(state: State):
    """The command runs an entrypoint where there is one, and that hands the arguments on."""
    found = changed_by(state, args=["--verbose"])
    path = f"pod.containers[{MAIN[state][1]}]"
    expected = {f"{path}.args[0]": "--verbose"}
    assert found == ({} if state is mps_control_daemon.STATE else expected)
    objects = objects_of(state, ON)
    for text in (
        object_["data"].get("entrypoint.sh")
        for object_ in objects
        if object_["kind"] == "ConfigMap"
    ):
        assert text is None or text.endswith(' "$@"\n')


@EACH_STATE
def test_a_variable_of_the_block_is_stronger_than_that_of_the_state(state: State):
    block, main = MAIN[state]
    before = env_of(objects_of(state, ON), main) if state is not dcgm.STATE else {}
    files = {"RUNTIME", "RUNTIME_CONFIG", "RUNTIME_SOCKET", "RUNTIME_DROP_IN_CONFIG_HOST_PATH"}
    for name in before:
        if name in files or name.startswith(("CONTAINERD_", "RUNTIME_")):
            continue
        spec = {block: {**ON.get(block, {}), "env": [{"name": name, "value": "mine"}]}}
        found = env_of(objects_of(state, {**ON, **spec}), main)
        expected = before[name] if state is mps_control_daemon.STATE else "mine"
        assert found == {**before, name: expected}


@EACH_STATE
def test_a_block_that_is_off_has_no_objects(state: State):
    block, _ = MAIN[state]
    assert objects_of(state, {**ON, block: {"enabled": False}}) == []
    assert objects_of(state, {block: {**BLOCK, "enabled": False}}) == []


@EACH_STATE
def test_what_is_left_out_counts_as_on_but_for_the_exporter_of_node_status(state: State):
    assert bool(objects_of(state, {})) == (state is not node_status_exporter.STATE)


@EACH_STATE
def test_an_image_in_half_is_told_by_field_and_cure(state: State):
    block, _ = MAIN[state]
    spec = {block: {"enabled": True, "repository": "r.example.com"}}
    with pytest.raises(
        StateSettingsError, match=f"ClusterPolicy gpus: spec.{block}.image"
    ) as reported:
        objects_of(state, spec)
    assert reported.value.fault is StateFault.IMAGE_INVALID


@EACH_STATE
def test_pods_run_on_nodes_with_the_deploy_label_only(state: State):
    daemon_set = object_of(objects_of(state, ON), "DaemonSet")
    assert daemon_set["metadata"]["name"] == NAMES[state.name]
    selector = pod_spec_of(daemon_set)["nodeSelector"]
    others = {
        "state-container-toolkit": {"gpu.deckhouse.io/node-container-runtime": "containerd"},
        "state-mps-control-daemon": {"nvidia.com/mps.capable": "true"},
    }
    gate = {f"nvidia.com/gpu.deploy.{state.deploy_label}": "true"}
    assert selector == {**gate, **others.get(state.name, {})}


@EACH_STATE
def test_pods_wait_in_the_validators_image(state: State):
    found = changes(
        state,
        {**ON, "validator": {"image": "own", "resources": {"limits": {"memory": "64Mi"}}}},
        ON,
    )
    waiting = {
        "state-container-toolkit": ["driver-validation"],
        "state-node-status-exporter": [],
    }.get(state.name, ["toolkit-validation"])
    assert found == {
        f"pod.initContainers[{name}].{path}": value
        for name in waiting
        for path, value in (("image", "own"), ("resources.limits.memory", "64Mi"))
    }


@EACH_STATE
def test_needs_are_what_the_pods_wait_for(state: State):
    if state is node_status_exporter.STATE:
        assert state.needs == ()
    elif state is container_toolkit.STATE:
        assert state.needs == ("state-driver",)
    else:
        assert state.needs[0] == "state-operator-validation"


@EACH_STATE
def test_pods_get_devices_by_the_runtime_class(state: State):
    needs_devices = state not in {container_toolkit.STATE, node_status_exporter.STATE}
    found = changes(state, {**ON, "operator": {"runtimeClass": "gpus"}}, ON)
    if needs_devices:
        assert found == {"pod.runtimeClassName": "gpus"}
    else:
        assert "pod.runtimeClassName" not in found
        assert "runtimeClassName" not in pod_spec_of(object_of(objects_of(state, ON), "DaemonSet"))


@EACH_STATE
def test_pods_get_devices_by_the_plugin_of_the_runtime_without_a_class(state: State):
    _, main = MAIN[state]
    found = changes(state, {**ON, "cdi": {"nriPluginEnabled": True}}, ON)
    key = f"pod.metadata.annotations.nvidia.cdi.k8s.io/container.{main}"
    if state in {container_toolkit.STATE, node_status_exporter.STATE}:
        assert key not in found
    else:
        assert found == {"pod.runtimeClassName": None, key: "management.nvidia.com/gpu=all"}


@EACH_STATE
def test_objects_are_valid(state: State):
    block, _ = MAIN[state]
    for spec in (ON, {**FULL, block: BLOCK}):
        for object_ in objects_of(state, spec, (CRI_O, DOCKER)):
            if object_["kind"] != "ServiceMonitor":
                check_object(object_, "1.30")
                check_object(object_, "1.37")


@EACH_STATE
def test_without_a_gpu_there_are_no_pods(state: State):
    kinds = {object_["kind"] for object_ in objects_of(state, ON, ())}
    assert "ServiceAccount" in kinds
    assert "DaemonSet" not in kinds
