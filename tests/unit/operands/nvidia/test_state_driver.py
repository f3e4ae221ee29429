"""State `state-driver` of a ClusterPolicy: what each field of the spec does to the driver's pods."""

from typing import Any

import pytest

from operands.nvidia.node_software import HostSoftware
from operands.nvidia.policy_operands import StateFault, StateSettingsError
from operands.nvidia.states import driver as state_driver
from tests.support.kubernetes_schemas import check_object
from tests.unit.operands.nvidia.driver_cases import (
    RHEL,
    RHEL_CRI_O,
    SLES,
    UBUNTU,
    a_policy,
    changed,
    check_golden,
    container,
    daemon_sets,
    env_of,
    mounts_of,
    objects_of,
    pod_of,
)

DRIVER = "nvidia-driver-ctr"
MANAGER = "k8s-driver-manager"
PEERMEM = "nvidia-peermem-ctr"
GDS = "nvidia-fs-ctr"
GDRCOPY = "nvidia-gdrcopy-ctr"
FULL: dict[str, Any] = {
    "driver": {
        "kernelModuleType": "open",
        "rdma": {"enabled": True, "useHostMofed": True},
        "repoConfig": {"configMapName": "repositories"},
        "certConfig": {"name": "certificates"},
        "kernelModuleConfig": {"name": "parameters"},
        "secretEnv": "proxy",
        "resources": {"limits": {"memory": "4Gi"}},
    },
    "gds": {"enabled": True, "env": [{"name": "LEVEL", "value": "debug"}]},
    "gdrcopy": {"enabled": True},
}
LICENSING: dict[str, Any] = {
    "driver": {
        "licensingConfig": {"secretName": "licence", "nlsEnabled": True},
        "virtualTopology": {"config": "topology"},
    }
}
CASES = {
    "default": a_policy(),
    "mixed-systems": a_policy(RHEL, RHEL_CRI_O, SLES, UBUNTU),
    "precompiled": a_policy(RHEL, UBUNTU, driver={"usePrecompiled": True}),
    "rdma-gds-gdrcopy": a_policy(**FULL),
    "vgpu-licensing": a_policy(**LICENSING),
}


@pytest.mark.parametrize("case", CASES)
def test_objects_are_the_approved_ones(case: str):
    check_golden(CASES[case], "state-driver", case)


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_takes_the_objects(version: str):
    for case in CASES.values():
        for object_ in objects_of(case):
            check_object(object_, version)


POD = "pod.containers[nvidia-driver-ctr]"
EACH_FIELD: list[Any] = [
    pytest.param(
        {"driver": {"kernelModuleType": "open"}},
        {
            f"{POD}.env[KERNEL_MODULE_TYPE].value": "open",
            f"{POD}.env[OPEN_KERNEL_MODULES_ENABLED].name": "OPEN_KERNEL_MODULES_ENABLED",
            f"{POD}.env[OPEN_KERNEL_MODULES_ENABLED].value": "true",
        },
        id="open modules",
    ),
    pytest.param(
        {"driver": {"kernelModuleType": "proprietary"}},
        {f"{POD}.env[KERNEL_MODULE_TYPE].value": "proprietary"},
        id="proprietary modules",
    ),
    pytest.param({"driver": {"useOpenKernelModules": True}}, {}, id="a field without effect"),
    pytest.param({"driver": {"upgradePolicy": {"autoUpgrade": True}}}, {}, id="an upgrade policy"),
    pytest.param(
        {"driver": {"args": ["init", "--max-threads=4"]}},
        {f"{POD}.args[1]": "--max-threads=4"},
        id="arguments take the place of the operand's",
    ),
    pytest.param(
        {"driver": {"env": [{"name": "KERNEL_MODULE_TYPE", "value": "mine"}]}},
        {f"{POD}.env[KERNEL_MODULE_TYPE].value": "mine"},
        id="a variable of the spec wins",
    ),
    pytest.param(
        {"driver": {"manager": {"env": [{"name": "ENABLE_AUTO_DRAIN", "value": "true"}]}}},
        {"pod.initContainers[k8s-driver-manager].env[ENABLE_AUTO_DRAIN].value": "true"},
        id="a variable of k8s-driver-manager",
    ),
    pytest.param(
        {"driver": {"manager": {"image": "registry.example.com/manager:2"}}},
        {
            "pod.initContainers[k8s-driver-manager].image": "registry.example.com/manager:2",
        },
        id="the image of k8s-driver-manager has no system in its tag",
    ),
    pytest.param(
        {"driver": {"imagePullPolicy": "Always"}},
        {f"{POD}.imagePullPolicy": "Always"},
        id="a pull policy",
    ),
    pytest.param(
        {"driver": {"secretEnv": "proxy"}},
        {f"{POD}.envFrom[0].secretRef.name": "proxy"},
        id="a Secret of variables",
    ),
    pytest.param(
        {"driver": {"hostNetwork": True}},
        {"pod.dnsPolicy": "ClusterFirstWithHostNet", "pod.hostNetwork": True},
        id="the node's network",
    ),
    pytest.param(
        {"driver": {"startupProbe": {"initialDelaySeconds": 0, "failureThreshold": 9}}},
        {
            f"{POD}.startupProbe.failureThreshold": 9,
            f"{POD}.startupProbe.initialDelaySeconds": None,
        },
        id="a startup probe, whose other fields keep their default",
    ),
    pytest.param(
        {"driver": {"licensingConfig": {"configMapName": "licence"}}},
        {
            **{
                f"{POD}.volumeMounts[licensing-config].{key}": value
                for key, value in (
                    ("mountPath", "/drivers/gridd.conf"),
                    ("name", "licensing-config"),
                    ("readOnly", True),
                    ("subPath", "gridd.conf"),
                )
            },
            **{
                f"pod.volumes[licensing-config].{key}": value
                for key, value in (
                    ("configMap.items[0].key", "gridd.conf"),
                    ("configMap.items[0].path", "gridd.conf"),
                    ("configMap.name", "licence"),
                    ("name", "licensing-config"),
                )
            },
        },
        id="a licence in a ConfigMap, without a token",
    ),
    pytest.param(
        {
            "daemonsets": {
                "updateStrategy": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "3"},
            }
        },
        {},
        id="the driver's pods are never rolled",
    ),
    pytest.param(
        {"daemonsets": {"labels": {"app": "mine", "app.kubernetes.io/component": "mine"}}},
        {},
        id="labels by which pods are found stay",
    ),
    pytest.param(
        {"hostPaths": {"driverInstallDir": "/opt/driver"}},
        {},
        id="a driver of the node's own elsewhere moves no driver that we bring",
    ),
    pytest.param({"hostPaths": {"kubeletRootDir": "/data/kubelet"}}, {}, id="kubelet's directory"),
]


@pytest.mark.parametrize(("spec", "expected"), EACH_FIELD)
def test_a_field_changes_what_it_is_to_change_and_nothing_else(
    spec: dict[str, Any], expected: dict[str, Any]
):
    assert changed(a_policy(), a_policy(**spec)) == expected


def test_the_state_is_off_with_the_driver_and_where_driver_objects_describe_it():
    assert objects_of(a_policy(driver={"enabled": False})) == []
    assert objects_of(a_policy(driver={"useNvidiaDriverCRD": True})) == []


def test_an_image_by_digest_serves_every_system():
    digest = {
        "repository": "registry.example.com",
        "image": "driver",
        "version": f"sha256:{'a' * 64}",
    }
    images = {
        set_["spec"]["template"]["spec"]["containers"][0]["image"]
        for set_ in daemon_sets(a_policy(RHEL, UBUNTU, driver=digest)).values()
    }
    assert images == {f"registry.example.com/driver@sha256:{'a' * 64}"}


def test_peermem_runs_from_the_drivers_image_with_the_networks_sources():
    rdma = a_policy(driver={"rdma": {"enabled": True}})
    assert container(rdma, PEERMEM)["image"] == container(rdma, DRIVER)["image"]
    for name in (DRIVER, MANAGER):
        assert env_of(container(rdma, name))["GPU_DIRECT_RDMA_ENABLED"] == "true"
        assert "USE_HOST_MOFED" not in env_of(container(rdma, name))
    host = a_policy(driver={"rdma": {"enabled": True, "useHostMofed": True}})
    for name in (DRIVER, MANAGER, PEERMEM):
        assert env_of(container(host, name))["USE_HOST_MOFED"] == "true"
    sources = {
        volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod_of(host)["volumes"]
    }
    assert sources["mlnx-ofed-usr-src"] == "/usr/src"


@pytest.mark.parametrize(
    ("software", "repositories", "certificates"),
    [
        pytest.param(
            UBUNTU, "/etc/apt/sources.list.d", "/usr/local/share/ca-certificates", id="apt"
        ),
        pytest.param(RHEL, "/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem", id="yum"),
        pytest.param(SLES, "/etc/zypp/repos.d", "/etc/pki/trust/anchors", id="zypp"),
    ],
)
def test_repositories_and_certificates_lie_where_the_system_has_them(
    software, repositories: str, certificates: str
):
    full = a_policy(software, **FULL)
    for name in (DRIVER, GDS, GDRCOPY):
        mounts = mounts_of(container(full, name))
        assert mounts[f"{repositories}/custom.list"] == "repo-config"
        assert mounts[f"{certificates}/ca.crt"] == "cert-config"
    assert "repo-config" not in mounts_of(container(full, PEERMEM)).values()


def test_an_empty_config_map_is_no_volume():
    assert changed(a_policy(), a_policy(driver={"certConfig": {"name": "nothing"}})) == {}


def test_a_licence_in_a_secret_counts_before_that_in_a_config_map():
    both = {"secretName": "licence", "configMapName": "other", "nlsEnabled": True}
    licensed = a_policy(driver={"licensingConfig": both})
    (volume,) = (item for item in pod_of(licensed)["volumes"] if item["name"] == "licensing-config")
    assert volume["secret"]["secretName"] == "licence"
    assert set(mounts_of(container(licensed, DRIVER))) >= {
        "/drivers/gridd.conf",
        "/drivers/ClientConfigToken/client_configuration_token.tok",
    }


def subscription_of(policy) -> set[str]:
    return {
        place
        for place, volume in mounts_of(container(policy, DRIVER)).items()
        if volume.startswith("subscription-config")
    }


def test_the_nodes_subscription_reaches_the_driver_where_no_runtime_hands_it_on():
    assert subscription_of(a_policy(RHEL)) == {
        "/run/secrets/etc-pki-entitlement",
        "/run/secrets/redhat.repo",
        "/run/secrets/rhsm",
    }
    assert subscription_of(a_policy(RHEL_CRI_O)) == set()
    assert subscription_of(a_policy(UBUNTU)) == set()
    assert subscription_of(a_policy(SLES)) == {"/etc/SUSEConnect", "/etc/zypp/credentials.d"}
    repositories = {"repoConfig": {"configMapName": "repositories"}}
    assert subscription_of(a_policy(RHEL, driver=repositories)) == set()


def test_a_precompiled_driver_of_suse_reads_the_nodes_modules_and_installs_nothing():
    precompiled = a_policy(
        SLES, driver={"usePrecompiled": True, "repoConfig": {"configMapName": "repositories"}}
    )
    mounts = mounts_of(container(precompiled, DRIVER))
    assert mounts["/run/host/lib/modules"] == "lib-modules"
    assert not {"repo-config", "subscription-config-0"} & set(mounts.values())


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe"])
def test_a_further_probe_is_there_where_the_spec_asks_for_it(probe: str):
    """In the GPU Operator a ClusterPolicy with one ends the process: the manifest has no probe to change."""
    assert probe not in container(a_policy(), DRIVER)
    found = container(a_policy(driver={probe: {"timeoutSeconds": 7}}), DRIVER)[probe]
    assert found["timeoutSeconds"] == 7
    assert found["failureThreshold"] == 3
    assert found["exec"]["command"]


def test_pull_secrets_are_those_of_every_image():
    secrets = pod_of(
        a_policy(
            driver={
                "imagePullSecrets": ["a", "b"],
                "manager": {"imagePullSecrets": ["b", "c"]},
            },
            gds={"enabled": True, "imagePullSecrets": ["d"]},
            gdrcopy={"enabled": False, "imagePullSecrets": ["not this"]},
        )
    )["imagePullSecrets"]
    assert sorted(secret["name"] for secret in secrets) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("block", ["gds", "gdrcopy"])
def test_a_precompiled_driver_runs_without_further_modules(block: str):
    with pytest.raises(StateSettingsError, match=f"spec.{block} off") as caught:
        objects_of(a_policy(driver={"usePrecompiled": True}, **{block: {"enabled": True}}))
    assert caught.value.fault is StateFault.SPEC_INVALID


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        pytest.param({"driver": {"repository": "x"}}, "spec.driver.image", id="half"),
        pytest.param(
            {"driver": {"image": "driver"}}, "spec.driver: driver has no tag", id="no tag"
        ),
        pytest.param(
            {"driver": {"manager": {"version": "1"}}}, "spec.driver.manager.", id="manager"
        ),
        pytest.param({"gds": {"enabled": True, "version": "1"}}, "spec.gds.", id="gds"),
        pytest.param(
            {
                "driver": {
                    "usePrecompiled": True,
                    "repository": "r",
                    "image": "i",
                    "version": "sha256:0",
                }
            },
            "spec.driver.version",
            id="precompiled by digest",
        ),
    ],
)
def test_an_image_in_half_names_the_field(spec: dict[str, Any], where: str):
    with pytest.raises(StateSettingsError, match=f"ClusterPolicy gpus: {where}") as caught:
        objects_of(a_policy(**spec))
    assert caught.value.fault is StateFault.IMAGE_INVALID


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("repoConfig", {"configMapName": "absent"}),
        ("certConfig", {"name": "absent"}),
        ("kernelModuleConfig", {"name": "absent"}),
    ],
)
def test_a_config_map_that_is_not_there_is_named_with_its_field(field: str, spec: dict[str, str]):
    policy = a_policy(driver={field: spec})
    assert state_driver.config_maps_of_policy(policy) == {"absent"}
    with pytest.raises(StateSettingsError, match=f"driver.{field}: .* gpu/absent") as caught:
        objects_of(policy)
    assert caught.value.fault is StateFault.CONFIG_MAP_MISSING


def test_no_config_map_is_read_for_a_driver_that_is_off():
    policy = a_policy(driver={"enabled": False, "certConfig": {"name": "certificates"}})
    assert state_driver.config_maps_of_policy(policy) == frozenset()


def test_a_system_without_a_known_directory_is_told_and_takes_no_driver_away():
    """The whole state keeps what it had: a mistake in a spec uninstalls no driver."""
    strange = HostSoftware(os_tag="arch2026", kernel="6.9", runtime="containerd")
    policy = a_policy(strange, UBUNTU, driver={"certConfig": {"name": "certificates"}})
    with pytest.raises(StateSettingsError, match=r"driver\.certConfig: .* arch2026") as caught:
        objects_of(policy)
    assert caught.value.fault is StateFault.SPEC_INVALID
