"""Groups of nodes with one driver each. Nodes of another system change nothing for the others.

The GPU Operator takes system and runtime of one node for the whole cluster (gpu-operator#328): its users saw drivers installed
again on all nodes when a node of another system joined (#328), and the wrong driver on nodes of the second (#433).
"""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operands.nvidia.drivers.groups import DriverGroup, DriverGrouping, driver_groups
from operands.nvidia.node_software import OS_ID_FEATURE, HostSoftware, RuntimeName
from operands.nvidia.policy_operands import PolicyOperands, StateFault, StateSettingsError
from operands.nvidia.states import driver as state_driver
from operands.nvidia.states import vgpu_manager
from operands.operand_state import ALL_KINDS_SERVED
from tests.unit.operands.nvidia.driver_cases import (
    NEWER_KERNEL,
    RHEL,
    RHEL_CRI_O,
    SLES,
    UBUNTU,
    UNKNOWN,
    a_policy,
    daemon_sets,
    objects_of,
)

SYSTEMS = (
    "",
    "ubuntu22.04",
    "ubuntu24.04",
    "rhel8",
    "rhel9",
    "sles15.6",
    "sl-micro6.0",
    "debian12",
)
KERNELS = ("", "6.8.0-60-generic", "6.8.0-71-generic", "5.14.0-570.el9.x86_64")
software = st.builds(
    HostSoftware,
    os_tag=st.sampled_from(SYSTEMS),
    kernel=st.sampled_from(KERNELS),
    runtime=st.sampled_from(["", *(item.value for item in RuntimeName)]),
)
clusters = st.sets(software, max_size=5)
PRECOMPILED: dict[str, Any] = {"usePrecompiled": True}
SANDBOX: dict[str, Any] = {"sandboxWorkloads": {"enabled": True}, "vgpuManager": {"enabled": True}}


def policy_for(nodes: set[HostSoftware], **spec: Any) -> PolicyOperands:
    policy = a_policy(**spec)
    return PolicyOperands(
        name=policy.name,
        spec=policy.spec,
        namespace=policy.namespace,
        environment=policy.environment,
        software=tuple(sorted(nodes)),
    )


def texts(policy: PolicyOperands, state=state_driver.STATE) -> dict[str, str]:
    """The DaemonSets as bytes by name; none, where no node has known software."""
    try:
        objects = state.objects(policy, ALL_KINDS_SERVED)
    except StateSettingsError as error:
        if error.fault is not StateFault.OS_UNKNOWN:
            raise
        return {}
    return {
        object_["metadata"]["name"]: json.dumps(object_)
        for object_ in objects
        if object_["kind"] == "DaemonSet"
    }


@pytest.mark.parametrize("driver", [{}, PRECOMPILED], ids=["built", "precompiled"])
@given(clusters, clusters)
def test_nodes_that_join_change_no_byte_of_the_objects_of_others(driver, before, joining):
    """gpu-operator#328, gpu-operator#433: the software of one node decides about all."""
    old = texts(policy_for(before, driver=driver))
    new = texts(policy_for(before | joining, driver=driver))
    assert old.items() <= new.items()


@given(clusters, clusters)
def test_hosts_of_virtual_gpus_that_join_change_no_byte_of_the_objects_of_others(before, joining):
    old = texts(policy_for(before, **SANDBOX), vgpu_manager.STATE)
    new = texts(policy_for(before | joining, **SANDBOX), vgpu_manager.STATE)
    assert old.items() <= new.items()


@pytest.mark.parametrize("driver", [{}, PRECOMPILED], ids=["built", "precompiled"])
@given(clusters)
def test_a_node_is_selected_by_one_daemon_set_or_told_to_have_none(driver, nodes):
    policy = policy_for(nodes, driver=driver)
    without = state_driver.nodes_without_driver(policy)
    found = (
        json.loads(text)["spec"]["template"]["spec"]["nodeSelector"]
        for text in texts(policy).values()
    )
    selectors = [
        {key: value for key, value in item.items() if not key.startswith("nvidia.com/")}
        for item in found
    ]
    for node in nodes:
        matching = [selector for selector in selectors if selector.items() <= node.labels().items()]
        assert len(matching) == (0 if node in without else 1)
        assert node not in without or without[node]


@pytest.mark.parametrize("driver", [{}, PRECOMPILED], ids=["built", "precompiled"])
@given(clusters)
def test_no_two_daemon_sets_select_the_same_pods(driver, nodes):
    found = [json.loads(text) for text in texts(policy_for(nodes, driver=driver)).values()]
    for item, other in itertools.permutations(found, 2):
        labels = other["spec"]["template"]["metadata"]["labels"]
        assert not item["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_each_system_of_a_mixed_cluster_has_its_driver():
    """Lesson 40. gpu-operator#328: there a ClusterPolicy has one system for the whole cluster."""
    assert list(daemon_sets(a_policy(SLES, UBUNTU, RHEL))) == [
        "nvidia-driver-daemonset-rhel9",
        "nvidia-driver-daemonset-sles15.6",
        "nvidia-driver-daemonset-ubuntu24.04",
    ]


def test_kernels_of_one_system_share_a_driver_that_is_built_on_the_node():
    assert len(daemon_sets(a_policy(UBUNTU, NEWER_KERNEL))) == 1


def test_kernels_of_one_system_have_a_precompiled_driver_each():
    assert list(daemon_sets(a_policy(UBUNTU, NEWER_KERNEL, driver=PRECOMPILED))) == [
        "nvidia-driver-daemonset-6.8.0-60-generic-ubuntu24.04",
        "nvidia-driver-daemonset-6.8.0-71-generic-ubuntu24.04",
    ]


def test_runtimes_of_a_system_with_subscriptions_have_a_daemon_set_each():
    """CRI-O hands the node's subscription on by itself, and containerd does not."""
    found = daemon_sets(a_policy(RHEL, RHEL_CRI_O))
    assert list(found) == ["nvidia-driver-daemonset-rhel9", "nvidia-driver-daemonset-rhel9-cri-o"]
    assert len(daemon_sets(a_policy(RHEL, RHEL_CRI_O, driver=PRECOMPILED))) == 1


def test_architectures_of_one_kernel_have_precompiled_drivers_of_different_names():
    """The GPU Operator leaves the architecture out of the name, and gives both one DaemonSet."""
    arm = HostSoftware(os_tag="rhel9", kernel="5.14.0-570.el9.aarch64", runtime="containerd")
    assert len(daemon_sets(a_policy(RHEL, arm, driver=PRECOMPILED))) == 2


def test_nodes_of_an_unknown_system_get_no_driver_and_the_others_do():
    policy = a_policy(UNKNOWN, UBUNTU)
    assert list(daemon_sets(policy)) == ["nvidia-driver-daemonset-ubuntu24.04"]
    ((without, reason),) = state_driver.nodes_without_driver(policy).items()
    assert without == UNKNOWN
    assert OS_ID_FEATURE in reason


def test_a_cluster_of_unknown_systems_is_a_fault_of_the_state():
    with pytest.raises(StateSettingsError, match=OS_ID_FEATURE) as caught:
        objects_of(a_policy(UNKNOWN))
    assert caught.value.fault is StateFault.OS_UNKNOWN


def test_nodes_of_an_unknown_kernel_get_no_precompiled_driver():
    no_kernel = HostSoftware(os_tag="ubuntu24.04", kernel="", runtime="containerd")
    policy = a_policy(no_kernel, UBUNTU, driver=PRECOMPILED)
    assert len(daemon_sets(policy)) == 1
    assert "kernel" in state_driver.nodes_without_driver(policy)[no_kernel]
    assert state_driver.nodes_without_driver(a_policy(no_kernel)) == {}


def test_a_driver_that_is_off_is_missed_nowhere():
    assert state_driver.nodes_without_driver(a_policy(UNKNOWN, driver={"enabled": False})) == {}


def test_without_nodes_there_is_no_daemon_set_and_no_fault():
    policy = policy_for(set())
    assert daemon_sets(policy) == {}
    assert [object_["kind"] for object_ in objects_of(policy)] == [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
    ]


@pytest.mark.parametrize(
    ("os_tag", "system"),
    [
        ("ubuntu24.04", "ubuntu"),
        ("rhel9", "rhel"),
        ("sl-micro6.0", "sl-micro"),
        ("debian-12", "debian"),
        ("24", ""),
    ],
)
def test_the_system_is_what_stands_before_the_version(os_tag: str, system: str):
    assert DriverGroup(os_tag=os_tag).system == system


def test_groups_are_sorted_and_distinct():
    groups = driver_groups((UBUNTU, SLES, NEWER_KERNEL), DriverGrouping.SYSTEM, spec_path="here")
    assert [group.os_tag for group in groups] == ["sles15.6", "ubuntu24.04"]
