"""State `state-container-toolkit`: a DaemonSet for each runtime, the files of the runtime, and CDI."""

import json
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operands.nvidia.node_software import HostSoftware
from operands.nvidia.policy_operands import StateFault, StateSettingsError
from operands.nvidia.states.container_toolkit import STATE
from operands.transforms import container_of, object_of, pod_spec_of
from tests.unit.operands.nvidia.state_changes import (
    BLOCK,
    CONTAINERD,
    CRI_O,
    DOCKER,
    FULL,
    Json,
    changes,
    check_golden,
    env_of,
    kinds_of,
    objects_of,
)

MAIN = "nvidia-container-toolkit-ctr"
POD = f"pod.containers[{MAIN}]"
NAMES = {
    "containerd": "nvidia-container-toolkit-daemonset",
    "cri-o": "nvidia-container-toolkit-daemonset-cri-o",
    "docker": "nvidia-container-toolkit-daemonset-docker",
}
ALL = (CONTAINERD, CRI_O, DOCKER)
UNKNOWN = replace(CONTAINERD, runtime="")
NRI = {"cdi": {"enabled": True, "nriPluginEnabled": True}}
EACH_RUNTIME = pytest.mark.parametrize(
    "software", [pytest.param(item, id=item.runtime) for item in ALL]
)


def toolkit(**variables: str) -> Json:
    return {"toolkit": {"env": [{"name": key, "value": item} for key, item in variables.items()]}}


def the_pods(spec: Json, software: HostSoftware) -> Json:
    return object_of(objects_of(STATE, spec, (software,)), "DaemonSet")


def host_files(spec: Json, software: HostSoftware) -> dict[str, str]:
    """Directories of the node by their places in the toolkit's container."""
    daemon_set = the_pods(spec, software)
    volumes = {volume["name"]: volume for volume in pod_spec_of(daemon_set)["volumes"]}
    return {
        mount["mountPath"]: volumes[mount["name"]]["hostPath"]["path"]
        for mount in container_of(daemon_set, MAIN)["volumeMounts"]
        if "hostPath" in volumes[mount["name"]]
    }


def of_runtime(found: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in found.items() if name.startswith("/runtime")}


def test_objects_by_default_are_the_approved_ones():
    check_golden(STATE, "default", {})


def test_objects_of_all_runtimes_are_the_approved_ones():
    check_golden(STATE, "runtimes", {}, ALL)


def test_objects_of_a_full_block_are_the_approved_ones():
    check_golden(STATE, "full", {**FULL, "toolkit": {**BLOCK, "installDir": "/opt/toolkit"}}, ALL)


def test_objects_with_the_plugin_of_the_runtime_are_the_approved_ones():
    check_golden(STATE, "nri", NRI)


def test_nodes_of_an_unknown_runtime_get_none():
    assert "DaemonSet" not in {kind for kind, _ in kinds_of(objects_of(STATE, {}, (UNKNOWN,)))}


@given(st.sets(st.sampled_from([*ALL, UNKNOWN, replace(DOCKER, os_tag="rhel9")])), st.data())
def test_a_runtime_that_joins_or_leaves_changes_no_byte_of_the_others(nodes, data):
    others = data.draw(st.sets(st.sampled_from([*ALL, UNKNOWN])))
    before, after = (
        {name: json.dumps(item) for name, item in named(software).items()}
        for software in (nodes, nodes | others)
    )
    assert before.items() <= after.items()
    added = {NAMES[other.runtime] for other in others - nodes if other.runtime}
    assert {name for _, name in after.keys() - before.keys()} <= added


def named(software: Collection[HostSoftware]) -> dict[tuple[str, str], Json]:
    objects = objects_of(STATE, {}, tuple(sorted(software)))
    return {(object_["kind"], object_["metadata"]["name"]): object_ for object_ in objects}


@pytest.mark.parametrize(
    ("software", "variables", "directory", "on_node", "expected"),
    [
        pytest.param(
            CONTAINERD,
            {"CONTAINERD_CONFIG": "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl"},
            "config-dir",
            "/var/lib/rancher/k3s/agent/etc/containerd",
            {
                "CONTAINERD_CONFIG": "/runtime/config-dir/config.toml.tmpl",
                "RUNTIME_CONFIG": "/runtime/config-dir/config.toml.tmpl",
            },
            id="main file of k3s",
        ),
        pytest.param(
            CONTAINERD,
            {"RUNTIME_CONFIG": "/opt/containerd/c.toml"},
            "config-dir",
            "/opt/containerd",
            {"CONTAINERD_CONFIG": "/runtime/config-dir/c.toml"},
            id="main file of any runtime",
        ),
        pytest.param(
            CONTAINERD,
            {"CONTAINERD_SOCKET": "/run/k3s/containerd/containerd.sock"},
            "sock-dir",
            "/run/k3s/containerd",
            {"RUNTIME_SOCKET": "/runtime/sock-dir/containerd.sock"},
            id="socket of k3s",
        ),
        pytest.param(
            CONTAINERD,
            {"RUNTIME_DROP_IN_CONFIG": "/opt/conf.d/50-gpu.toml"},
            "config-dir.d",
            "/opt/conf.d",
            {
                "RUNTIME_DROP_IN_CONFIG": "/runtime/config-dir.d/50-gpu.toml",
                "RUNTIME_DROP_IN_CONFIG_HOST_PATH": "/opt/conf.d/50-gpu.toml",
            },
            id="drop-in file",
        ),
        pytest.param(
            CRI_O,
            {"CRIO_CONFIG": "/opt/crio/crio.conf"},
            "config-dir",
            "/opt/crio",
            {"RUNTIME_CONFIG": "/runtime/config-dir/crio.conf"},
            id="main file of cri-o",
        ),
        pytest.param(
            DOCKER,
            {"DOCKER_SOCKET": "/opt/docker.sock"},
            "sock-dir",
            "/opt",
            {"RUNTIME_SOCKET": "/runtime/sock-dir/docker.sock"},
            id="socket of docker",
        ),
    ],
)
def test_variables_of_the_policy_name_other_files(
    software, variables, directory, on_node, expected
):
    spec = toolkit(**variables)
    assert of_runtime(host_files(spec, software)) == {
        **of_runtime(host_files({}, software)),
        f"/runtime/{directory}": on_node,
    }
    found = env_of([the_pods(spec, software)], MAIN)
    assert found == {**env_of([the_pods({}, software)], MAIN), **found, **expected}


@pytest.mark.parametrize("path", ["config.toml", "/", "/etc/../config.toml"])
def test_a_file_without_its_whole_path_is_refused_with_the_cure(path: str):
    with pytest.raises(StateSettingsError) as reported:
        objects_of(STATE, toolkit(CONTAINERD_CONFIG=path))
    assert reported.value.fault is StateFault.SPEC_INVALID
    assert str(reported.value) == (
        f"ClusterPolicy gpus: spec.toolkit.env: CONTAINERD_CONFIG is {path!r}: set it to the whole path of a file"
    )


def test_sources_of_the_configuration_are_files_of_the_node():
    spec = toolkit(RUNTIME_CONFIG_SOURCE="command,file=/etc/containerd/base.toml")
    found = env_of(objects_of(STATE, spec), MAIN)
    assert found["RUNTIME_CONFIG_SOURCE"] == "command,file=/host/etc/containerd/base.toml"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"operator": {"runtimeClass": "gpus"}},
            {f"{POD}.env[CONTAINERD_RUNTIME_CLASS].value": "gpus"},
            id="runtime class",
        ),
        pytest.param(
            {"toolkit": {"installDir": "/opt/toolkit/"}},
            {
                f"{POD}.env[ROOT].value": "/opt/toolkit",
                f"{POD}.volumeMounts[toolkit-install-dir].mountPath": "/opt/toolkit",
                "pod.volumes[toolkit-install-dir].hostPath.path": "/opt/toolkit",
            },
            id="directory",
        ),
        pytest.param({"toolkit": {"installDir": ""}}, {}, id="empty directory"),
        pytest.param(
            {"cdi": {"enabled": False}},
            {
                f"{POD}.env[{name}].{key}": None
                for name in (
                    "CDI_ENABLED",
                    "NVIDIA_RUNTIME_SET_AS_DEFAULT",
                    "NVIDIA_CONTAINER_RUNTIME_MODE",
                )
                for key in ("name", "value")
            },
            id="no cdi",
        ),
        pytest.param(
            {"hostPaths": {"driverInstallDir": "/opt/driver"}},
            {
                "pod.volumes[driver-install-dir].hostPath.path": "/opt/driver",
                **{
                    f"pod.initContainers[driver-validation].env[{name}].{key}": value
                    for name in ("DRIVER_INSTALL_DIR", "DRIVER_INSTALL_DIR_CTR_PATH")
                    for key, value in (("name", name), ("value", "/opt/driver"))
                },
                "pod.initContainers[driver-validation].volumeMounts[driver-install-dir].mountPath": "/opt/driver",
            },
            id="driver's directory",
        ),
        pytest.param(
            {"hostPaths": {"rootFS": "/node"}},
            {
                "pod.volumes[host-root].hostPath.path": "/node",
                "pod.volumes[host-dev-char].hostPath.path": "/node/dev/char",
                **{
                    f"{path}.env[HOST_ROOT].{key}": value
                    for path in (POD, "pod.initContainers[driver-validation]")
                    for key, value in (("name", "HOST_ROOT"), ("value", "/node"))
                },
            },
            id="root of the node",
        ),
        pytest.param(
            {"validator": {"driver": {"env": [{"name": "STEP", "value": "driver"}]}}},
            {
                "pod.initContainers[driver-validation].env[STEP].name": "STEP",
                "pod.initContainers[driver-validation].env[STEP].value": "driver",
            },
            id="variables of the validation",
        ),
    ],
)
def test_a_field_changes_what_it_says_and_no_more(spec, expected):
    assert changes(STATE, spec) == expected


@EACH_RUNTIME
def test_with_the_plugin_of_the_runtime_its_files_are_left_alone(software):
    assert of_runtime(host_files(NRI, software)) == {"/runtime/nri-sock-dir": "/var/run/nri"}
    found = env_of([the_pods(NRI, software)], MAIN)
    assert found["ENABLE_NRI_PLUGIN"] == "true"
    assert found["NRI_SOCKET"] == "/runtime/nri-sock-dir/nri.sock"
    assert not [name for name in found if name.startswith(("RUNTIME_", "CONTAINERD_", "DOCKER_"))]


def test_the_socket_of_the_plugin_may_lie_elsewhere():
    spec = {**NRI, **toolkit(NRI_SOCKET="/opt/nri/other.sock")}
    assert of_runtime(host_files(spec, CONTAINERD)) == {"/runtime/nri-sock-dir": "/opt/nri"}
    assert env_of(objects_of(STATE, spec), MAIN)["NRI_SOCKET"] == "/runtime/nri-sock-dir/other.sock"
