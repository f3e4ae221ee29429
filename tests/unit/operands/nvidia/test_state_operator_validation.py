"""State `state-operator-validation`: the checks of a node's software, as init containers in their order."""

import itertools
from typing import Any

import pytest

from operands.nvidia.states.operator_validation import STATE
from operands.operand_state import ALL_KINDS_SERVED
from tests.support.kubernetes_schemas import check_object
from tests.unit.operands.nvidia.driver_cases import a_policy, env_of
from tests.unit.operands.nvidia.state_changes import FULL, check_golden

MAIN = "nvidia-operator-validator"
WITHOUT_PLUGIN = f"{MAIN}-without-plugin"
STEPS = ["driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation"]
GATE = "nvidia.com/gpu.deploy.device-plugin"


def daemon_sets(**spec: Any) -> dict[str, dict[str, Any]]:
    return {
        object_["metadata"]["name"]: object_
        for object_ in STATE.objects(a_policy(**spec), ALL_KINDS_SERVED)
        if object_["kind"] == "DaemonSet"
    }


def pod_of(name: str = MAIN, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = daemon_sets(**spec)[name]["spec"]["template"]["spec"]
    return found


def step(name: str, **spec: Any) -> dict[str, str]:
    """The variables of a check."""
    (found,) = (
        container for container in pod_of(**spec)["initContainers"] if container["name"] == name
    )
    return env_of(found)


@pytest.mark.parametrize(
    ("case", "spec"),
    [("default", {}), ("full", FULL), ("no-plugin", {"devicePlugin": {"enabled": False}})],
)
def test_objects_are_the_approved_ones(case: str, spec: dict[str, Any]):
    check_golden(STATE, case, spec)
    for object_ in STATE.objects(a_policy(**spec), ALL_KINDS_SERVED):
        check_object(object_, "1.30")
        check_object(object_, "1.37")


@pytest.mark.parametrize("block", ["driver", "toolkit"])
def test_software_that_another_one_brought_is_checked_too(block: str):
    off: dict[str, Any] = {block: {"enabled": False}}
    names = [container["name"] for container in pod_of(**off)["initContainers"]]
    assert names == STEPS


def is_selected(pod: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether the pod's required affinity takes a node, as kube-scheduler reads it."""
    operators = {
        "Exists": lambda requirement: requirement["key"] in labels,
        "DoesNotExist": lambda requirement: requirement["key"] not in labels,
        "In": lambda requirement: labels.get(requirement["key"]) in requirement["values"],
        "NotIn": lambda requirement: labels.get(requirement["key"]) not in requirement["values"],
    }
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return any(
        all(
            operators[expression["operator"]](expression) for expression in term["matchExpressions"]
        )
        for term in terms["nodeSelectorTerms"]
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({GATE: "true"}, MAIN, id="on"),
        pytest.param({GATE: "paused-for-driver-upgrade"}, MAIN, id="paused, and back soon"),
        pytest.param({GATE: "paused-for-mig-change"}, MAIN, id="paused for MIG"),
        pytest.param({}, WITHOUT_PLUGIN, id="a node of a GPUPool"),
        pytest.param({GATE: "false"}, WITHOUT_PLUGIN, id="off by hand"),
        pytest.param({GATE: ""}, WITHOUT_PLUGIN, id="empty"),
    ],
)
def test_a_node_without_the_device_plugin_is_validated_without_it(
    labels: dict[str, str], expected: str
):
    """The check would wait for units of nvidia.com/gpu, which a node of a GPUPool never has."""
    selected = [
        name
        for name, item in daemon_sets().items()
        if is_selected(item["spec"]["template"]["spec"], labels)
    ]
    assert selected == [expected]
    names = [container["name"] for container in pod_of(WITHOUT_PLUGIN)["initContainers"]]
    assert names == STEPS[:3]


def test_both_are_the_validator_to_upgrades_and_select_their_own_pods():
    found = list(daemon_sets().values())
    for item in found:
        assert item["spec"]["template"]["metadata"]["labels"]["app"] == MAIN
    for item, other in itertools.permutations(found, 2):
        labels = other["spec"]["template"]["metadata"]["labels"]
        assert not item["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("name", ["driver", "toolkit", "cuda", "plugin"])
def test_a_check_has_the_variables_of_its_step(name: str):
    spec = {"validator": {name: {"env": [{"name": "STEP", "value": name}]}}}
    assert step(f"{name}-validation", **spec)["STEP"] == name
    others = [item for item in STEPS if item != f"{name}-validation"]
    assert all("STEP" not in step(other, **spec) for other in others)


def test_variables_of_the_validator_are_those_of_its_own_container():
    pod = pod_of(validator={"env": [{"name": "LEVEL", "value": "debug"}]})
    assert env_of(pod["containers"][0]) == {"LEVEL": "debug"}
    assert all("LEVEL" not in env_of(container) for container in pod["initContainers"])


def test_pods_of_checks_are_made_like_the_validators():
    spec = {
        "validator": {
            "image": "registry.example.com/own:2",
            "imagePullPolicy": "Always",
            "imagePullSecrets": ["a", "b"],
        },
        "operator": {"runtimeClass": "gpus"},
        "mig": {"strategy": "mixed"},
    }
    for name in ("cuda-validation", "plugin-validation"):
        variables = step(name, **spec)
        assert variables["VALIDATOR_IMAGE"] == "registry.example.com/own:2"
        assert variables["VALIDATOR_IMAGE_PULL_POLICY"] == "Always"
        assert variables["VALIDATOR_IMAGE_PULL_SECRETS"] == "a,b"
        assert variables["VALIDATOR_RUNTIME_CLASS"] == "gpus"
    assert step("plugin-validation", **spec)["MIG_STRATEGY"] == "mixed"


def test_pods_get_devices_by_the_runtime_class_or_by_the_plugin_of_the_runtime():
    assert pod_of()["runtimeClassName"] == "nvidia"
    spec = {"cdi": {"nriPluginEnabled": True}}
    found = daemon_sets(**spec)[MAIN]
    assert "runtimeClassName" not in found["spec"]["template"]["spec"]
    assert found["spec"]["template"]["metadata"]["annotations"] == {
        "nvidia.cdi.k8s.io/container.toolkit-validation": "management.nvidia.com/gpu=all"
    }
    assert "VALIDATOR_RUNTIME_CLASS" not in step("cuda-validation", **spec)


def test_results_are_removed_with_the_pod():
    (main,) = pod_of()["containers"]
    assert (
        main["lifecycle"]["preStop"]["exec"]["command"][-1]
        == "rm -f /run/nvidia/validations/*-ready"
    )


def test_a_driver_elsewhere_is_looked_for_there():
    (found,) = (
        container
        for container in pod_of(hostPaths={"driverInstallDir": "/opt/driver"})["initContainers"]
        if container["name"] == "driver-validation"
    )
    variables = env_of(found)
    assert variables["DRIVER_INSTALL_DIR"] == "/opt/driver"
    mounts = {mount["name"]: mount["mountPath"] for mount in found["volumeMounts"]}
    assert mounts["driver-install-dir"] == variables["DRIVER_INSTALL_DIR_CTR_PATH"]
