"""Objects of an NVIDIADriver: those of its type, on the nodes that it owns, under names of its own."""

from dataclasses import replace
from typing import Any

import pytest

from operands.nvidia.driver_daemonsets import config_maps_of_driver, nodes_without_driver
from operands.nvidia.policy_operands import StateFault, StateSettingsError
from tests.support.kubernetes_schemas import check_object
from tests.unit.operands.nvidia.driver_cases import (
    NEWER_KERNEL,
    UBUNTU,
    UNKNOWN,
    a_driver,
    changed,
    check_golden,
    container,
    daemon_sets,
    env_of,
    mounts_of,
    objects_of,
    pod_of,
)

LONG = "a-driver-with-a-name-" + "x" * 220 + ".of.a-team"
POD = "pod.containers[nvidia-driver-ctr]"
CASES = {
    "gpu": a_driver(),
    "vgpu": a_driver(
        driverType="vgpu",
        licensingConfig={"secretName": "licence"},
        virtualTopologyConfig={"name": "topology"},
    ),
    "vgpu-host-manager": a_driver(driverType="vgpu-host-manager"),
    "precompiled": a_driver(UBUNTU, NEWER_KERNEL, usePrecompiled=True),
}


@pytest.mark.parametrize("case", CASES)
def test_objects_are_the_approved_ones(case: str):
    check_golden(CASES[case], "nvidia-driver", case)


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_takes_the_objects(version: str):
    for case in CASES.values():
        for object_ in objects_of(case):
            check_object(object_, version)


def test_two_drivers_share_no_object():
    names = [
        {
            (object_["kind"], object_["metadata"]["name"])
            for object_ in objects_of(a_driver(name=name))
        }
        for name in ("fast", "slow", LONG, LONG.replace("x.", "y."))
    ]
    assert len(set.union(*names)) == sum(len(item) for item in names)


def test_the_owner_of_an_absurd_name_is_a_label_value():
    owner = pod_of(a_driver(name=LONG))["nodeSelector"]["nvidia.com/gpu-operator.driver.owner"]
    assert len(owner) <= 63
    assert owner.startswith("a-driver-with-a-name-")


NODES = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
    }
}
OBJECT = "DaemonSet/nvidia-gpu-driver-fast-ubuntu24.04:metadata"
EACH_FIELD: list[Any] = [
    pytest.param(
        {"labels": {"team": "ml"}},
        {f"{OBJECT}.labels.team": "ml", "pod.metadata.labels.team": "ml"},
        id="labels",
    ),
    pytest.param(
        {"labels": {"app": "mine", "app.kubernetes.io/component": "mine"}},
        {},
        id="labels by which pods are found",
    ),
    pytest.param(
        {"annotations": {"note": "x"}},
        {f"{OBJECT}.annotations.note": "x", "pod.metadata.annotations.note": "x"},
        id="annotations",
    ),
    pytest.param(
        {"tolerations": [{"key": "team", "operator": "Exists"}]},
        {"pod.tolerations[0].key": "team", "pod.tolerations[1].operator": "Exists"},
        id="tolerations, beside that of every taint",
    ),
    pytest.param(
        {"priorityClassName": "gpus"}, {"pod.priorityClassName": "gpus"}, id="a priority class"
    ),
    pytest.param(
        {"podSecurityContext": {"runAsNonRoot": False}},
        {"pod.securityContext.runAsNonRoot": False},
        id="a security context",
    ),
    pytest.param(
        {"hostNetwork": True},
        {"pod.dnsPolicy": "ClusterFirstWithHostNet", "pod.hostNetwork": True},
        id="the node's network",
    ),
    pytest.param({"args": ["--x"]}, {f"{POD}.args[1]": "--x"}, id="arguments come on top"),
    pytest.param({"default": True}, {}, id="the default of nodes"),
    pytest.param({"nodeSelector": {"team": "ml"}}, {}, id="a selector, from which labels follow"),
    pytest.param({"upgradePolicy": {"autoUpgrade": False}}, {}, id="an upgrade policy"),
]


@pytest.mark.parametrize(("spec", "expected"), EACH_FIELD)
def test_a_field_changes_what_it_is_to_change_and_nothing_else(
    spec: dict[str, Any], expected: dict[str, Any]
):
    assert changed(a_driver(), a_driver(**spec)) == expected


def test_affinity_to_nodes_stands_beside_that_of_pods():
    affinity = pod_of(a_driver(nodeAffinity=NODES))["affinity"]
    assert affinity["nodeAffinity"] == NODES
    assert "podAntiAffinity" in affinity


def test_what_the_policy_says_about_all_pods_counts_where_the_driver_says_nothing():
    common = {
        "labels": {"team": "gpu", "of": "policy"},
        "annotations": {"a": "policy"},
        "tolerations": [{"key": "gpu"}],
        "priorityClassName": "of-policy",
        "updateStrategy": "RollingUpdate",
    }
    own = a_driver(
        daemonsets=common,
        labels={"team": "ml"},
        tolerations=[{"key": "team"}],
        priorityClassName="own",
    )
    (found,) = daemon_sets(own).values()
    assert found["spec"]["updateStrategy"] == {"type": "OnDelete"}
    template = found["spec"]["template"]
    assert template["metadata"]["labels"].items() >= {"team": "ml", "of": "policy"}.items()
    assert template["metadata"]["annotations"]["a"] == "policy"
    given = [{"key": "gpu"}, {"key": "team"}]
    assert template["spec"]["tolerations"] == [*given, {"operator": "Exists"}]
    assert template["spec"]["priorityClassName"] == "own"
    assert pod_of(a_driver(daemonsets=common))["priorityClassName"] == "of-policy"


def test_paths_of_the_nodes_are_those_of_the_policy():
    paths = {"rootFS": "/host", "driverInstallDir": "/opt/driver"}
    volumes = {
        volume["name"]: volume.get("hostPath")
        for volume in pod_of(a_driver(host_paths=paths))["volumes"]
    }
    assert volumes["host-root"] == {"path": "/host"}
    assert volumes["nv-firmware"]["path"] == "/run/nvidia/driver/lib/firmware"


def test_the_image_is_that_of_the_object_and_never_of_the_environment():
    assert container(a_driver(), "nvidia-driver-ctr")["image"] == (
        "registry.example.com/own/driver:580-ubuntu24.04"
    )
    with pytest.raises(StateSettingsError, match="NVIDIADriver fast: spec: ") as caught:
        objects_of(a_driver(repository="", version="", image=""))
    assert caught.value.fault is StateFault.IMAGE_INVALID


def test_a_licence_has_its_token_unless_it_is_switched_off():
    token = "/drivers/ClientConfigToken/client_configuration_token.tok"
    with_token = a_driver(driverType="vgpu", licensingConfig={"secretName": "s"})
    without = a_driver(driverType="vgpu", licensingConfig={"name": "c", "nlsEnabled": False})
    assert token in mounts_of(container(with_token, "nvidia-driver-ctr"))
    assert token not in mounts_of(container(without, "nvidia-driver-ctr"))


@pytest.mark.parametrize("version", ["2.17.5", "v2.17.6", "2.20.1-x", "3", "sha256:0a"])
def test_new_gpudirect_storage_needs_the_open_modules(version: str):
    gds = {"enabled": True, "repository": "r", "image": "gds", "version": version}
    with pytest.raises(StateSettingsError, match="kernelModuleType to open") as caught:
        objects_of(a_driver(gds=gds))
    assert caught.value.fault is StateFault.SPEC_INVALID
    assert objects_of(a_driver(gds=gds, kernelModuleType="open"))


@pytest.mark.parametrize("version", ["2.17.4", "2.2", "1.99.9", "main"])
def test_older_gpudirect_storage_runs_with_any_modules(version: str):
    gds = {"enabled": True, "repository": "r", "image": "gds", "version": version}
    driver = a_driver(gds=gds)
    assert env_of(container(driver, "nvidia-driver-ctr"))["GDS_ENABLED"] == "true"


@pytest.mark.parametrize("block", ["gds", "gdrcopy"])
def test_a_precompiled_driver_runs_without_further_modules(block: str):
    further: dict[str, Any] = {block: {"enabled": True}}
    with pytest.raises(StateSettingsError, match=f"spec.{block} off") as caught:
        objects_of(a_driver(usePrecompiled=True, **further))
    assert caught.value.fault is StateFault.SPEC_INVALID


def test_nodes_of_unknown_software_are_told():
    assert set(nodes_without_driver(a_driver(UNKNOWN, UBUNTU))) == {UNKNOWN}
    with pytest.raises(StateSettingsError) as caught:
        objects_of(a_driver(UNKNOWN))
    assert caught.value.fault is StateFault.OS_UNKNOWN


def test_a_driver_without_nodes_has_no_daemon_set():
    assert daemon_sets(replace(a_driver(), software=())) == {}


def test_config_maps_are_named_that_must_be_read():
    driver = a_driver(
        repoConfig={"name": "repositories"},
        certConfig={"name": "certificates"},
        kernelModuleConfig={"name": "parameters"},
    )
    assert config_maps_of_driver(driver) == {"repositories", "certificates", "parameters"}
    assert config_maps_of_driver(a_driver()) == frozenset()
    precompiled = a_driver(usePrecompiled=True, repoConfig={"name": "repositories"})
    assert config_maps_of_driver(precompiled) == frozenset()
