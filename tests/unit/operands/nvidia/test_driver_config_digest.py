"""DRIVER_CONFIG_DIGEST: what installs another driver moves it, and nothing else does.

A node whose digest stays has its driver's pod replaced, and keeps the pods of users and the loaded modules. In the GPU
Operator every change of the DaemonSet installed the driver again (#705), up to a changed label of a chart (#2454).
"""

from typing import Any

import pytest

from operands.nvidia.drivers.config_digest import DIGEST_VARIABLE, config_digest
from operands.upgrade.reasons import UpgradeReason
from tests.support import driver_upgrades as upgrades
from tests.unit.operands.nvidia.driver_cases import (
    RHEL,
    UBUNTU,
    a_driver,
    a_policy,
    changed,
    daemon_sets,
    digest_of,
)

BASE: dict[str, Any] = {"driver": {"repository": "r", "image": "driver", "version": "580"}}


def digest(operands) -> str:
    (found,) = daemon_sets(operands).values()
    return digest_of(found)


def a_base(**spec: Any):
    parts = {name: {**BASE.get(name, {}), **part} for name, part in spec.items()}
    return a_policy(**{**BASE, **parts})


MOVES: dict[str, dict[str, Any]] = {
    "image": {"driver": {"version": "581"}},
    "arguments": {"driver": {"args": ["init", "--verbose"]}},
    "a variable": {"driver": {"env": [{"name": "LEVEL", "value": "debug"}]}},
    "a Secret of variables": {"driver": {"secretEnv": "proxy"}},
    "kind of modules": {"driver": {"kernelModuleType": "open"}},
    "parameters of modules": {"driver": {"kernelModuleConfig": {"name": "parameters"}}},
    "repositories": {"driver": {"repoConfig": {"configMapName": "repositories"}}},
    "certificates": {"driver": {"certConfig": {"name": "certificates"}}},
    "a licence": {"driver": {"licensingConfig": {"secretName": "licence"}}},
    "topology": {"driver": {"virtualTopology": {"config": "topology"}}},
    "GPUDirect RDMA": {"driver": {"rdma": {"enabled": True}}},
    "the network driver of the node": {"driver": {"rdma": {"enabled": True, "useHostMofed": True}}},
    "GPUDirect Storage": {"gds": {"enabled": True}},
    "GDRCopy": {"gdrcopy": {"enabled": True}},
}
STAYS: dict[str, dict[str, Any]] = {
    "startup probe": {"driver": {"startupProbe": {"periodSeconds": 5}}},
    "liveness probe": {"driver": {"livenessProbe": {"periodSeconds": 5}}},
    "readiness probe": {"driver": {"readinessProbe": {"periodSeconds": 5}}},
    "resources": {"driver": {"resources": {"limits": {"memory": "4Gi"}}}},
    "pull policy": {"driver": {"imagePullPolicy": "Always"}},
    "pull secrets": {"driver": {"imagePullSecrets": ["registry"]}},
    "network": {"driver": {"hostNetwork": True}},
    "image of k8s-driver-manager": {"driver": {"manager": {"image": "registry/manager:2"}}},
    "variables of k8s-driver-manager": {
        "driver": {"manager": {"env": [{"name": "ENABLE_AUTO_DRAIN", "value": "true"}]}}
    },
    "labels": {"daemonsets": {"labels": {"helm.sh/chart": "gpu-operator-2"}}},
    "annotations": {"daemonsets": {"annotations": {"example.com/a": "b"}}},
    "tolerations": {"daemonsets": {"tolerations": [{"key": "a", "operator": "Exists"}]}},
    "priority": {"daemonsets": {"priorityClassName": "gpus"}},
    "security context": {"daemonsets": {"podSecurityContext": {"runAsNonRoot": False}}},
}


@pytest.mark.parametrize("spec", MOVES.values(), ids=MOVES)
def test_what_installs_another_driver_moves_the_digest(spec: dict[str, Any]):
    assert digest(a_base(**spec)) != digest(a_base())


@pytest.mark.parametrize("spec", STAYS.values(), ids=STAYS)
def test_what_installs_nothing_leaves_the_digest(spec: dict[str, Any]):
    """#705, #2454: the pods change, and the modules stay."""
    assert changed(a_base(), a_base(**spec))
    assert digest(a_base(**spec)) == digest(a_base())


def reason_of_upgrade(spec: dict[str, Any]) -> UpgradeReason:
    """Why a node whose pod has the base's driver is upgraded to that of the spec."""
    pod = upgrades.a_driver(upgrades.OUTDATED, config_digest=digest(a_base()))
    node = upgrades.a_node(
        "upgrade-required", driver_pods=(pod,), desired_digest=digest(a_base(**spec))
    )
    return upgrades.step(node).progress.reason


@pytest.mark.parametrize("spec", STAYS.values(), ids=STAYS)
def test_an_upgrade_that_installs_nothing_restarts_the_drivers_pod_only(spec: dict[str, Any]):
    """#705, #2454: no pod of a user is evicted."""
    assert reason_of_upgrade(spec) is UpgradeReason.RESTART_ONLY


@pytest.mark.parametrize("spec", MOVES.values(), ids=MOVES)
def test_an_upgrade_that_installs_another_driver_empties_the_node(spec: dict[str, Any]):
    assert reason_of_upgrade(spec) is UpgradeReason.STARTED


def test_changes_that_install_have_a_digest_each():
    digests = [digest(a_base(**spec)) for spec in MOVES.values()]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    "block",
    [{"env": [{"name": "LEVEL", "value": "debug"}]}, {"version": "2"}],
    ids=["env", "image"],
)
@pytest.mark.parametrize("name", ["gds", "gdrcopy"])
def test_containers_of_further_modules_count(name: str, block: dict[str, Any]):
    on = {"enabled": True, "repository": "r", "image": "i", "version": "1"}
    assert digest(a_base(**{name: on})) != digest(a_base(**{name: {**on, **block}}))


def test_the_order_of_variables_does_not_count():
    first, second = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}
    assert digest(a_base(driver={"env": [first, second]})) == digest(
        a_base(driver={"env": [second, first]})
    )


def test_variables_cannot_be_taken_for_one_another():
    one = a_base(driver={"env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}]})
    other = a_base(driver={"env": [{"name": "A", "value": ""}, {"name": "B", "value": "1"}]})
    assert digest(one) != digest(other)


def test_systems_have_different_digests():
    assert len({digest_of(set_) for set_ in daemon_sets(a_policy(RHEL, UBUNTU)).values()}) == 2


def test_a_precompiled_driver_of_another_kernel_has_another_digest():
    built = digest(a_base())
    assert digest(a_base(driver={"usePrecompiled": True})) != built


def test_the_driver_and_k8s_driver_manager_are_told_the_digest():
    (found,) = daemon_sets(a_policy(gds={"enabled": True})).values()
    pod = found["spec"]["template"]["spec"]
    reported = {
        container["name"]
        for container in (*pod["initContainers"], *pod["containers"])
        if DIGEST_VARIABLE in [item["name"] for item in container.get("env", ())]
    }
    assert reported == {"k8s-driver-manager", "nvidia-driver-ctr"}
    assert digest_of(found) == config_digest(found)
    assert len(digest_of(found)) == 64


def test_a_spec_cannot_set_the_digest():
    """It would keep modules loaded that the node is to lose."""
    given = {"env": [{"name": DIGEST_VARIABLE, "value": "mine"}]}
    assert digest(a_base(driver=given)) == digest(a_base())


def test_an_nvidia_driver_with_the_same_driver_has_the_same_digest():
    """Nodes that go over from a ClusterPolicy to an NVIDIADriver keep their modules."""
    from_policy = a_policy(
        driver={"repository": "registry.example.com/own", "image": "driver", "version": "580"}
    )
    assert digest(a_driver()) == digest(from_policy)
