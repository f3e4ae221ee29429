"""Deploy labels of a node: by workload type, for MIG, beside pools; what others wrote stays."""

import dataclasses

import pytest

from api.kinds.gpunodeinventory import NodeSystem
from api.kinds.nvidia.sandbox_operands import SandboxMode, WorkloadType
from api.names import (
    DEPLOY_LABELS_ANNOTATION,
    DRIVER_OWNER_LABEL,
    MIG_CONFIG_LABEL,
    NVIDIA_PRESENT_LABEL,
    PRESENT_LABEL,
)
from operands.nvidia.deploy_labels import deploy_labels, mig_capability, operands_of
from operands.nvidia.deploy_record import OPERANDS
from operands.nvidia.label_change import Hold, LabelReason
from operands.nvidia.node_software import KERNEL_LABEL, OS_LABEL, RUNTIME_LABEL
from tests.unit.operands.nvidia.label_cases import (
    ALL_HOLDS,
    CONTAINER,
    DEPLOY,
    GPU,
    MIG,
    NFD,
    a_driver,
    a_node,
    a_policy,
    applied,
    changed,
    operands,
    parameters,
    relabelled,
    stable,
    with_labels,
)

PLAIN = parameters()
VM = {"sandbox-validator", "cc-manager", "client"}
PASSTHROUGH = VM | {"vfio-manager", "kata-manager"}
VGPU = VM | {"sandbox-device-plugin", "vgpu-manager", "vgpu-device-manager"}
WORKLOAD = "nvidia.com/gpu.workload.config"


def reasons(node, policy=PLAIN) -> set[LabelReason]:
    return {item.reason for item in deploy_labels(node, policy).notes}


def note(node, reason, policy=PLAIN) -> str:
    """Return the only message for the reason."""
    (found,) = (item for item in deploy_labels(node, policy).notes if item.reason is reason)
    return found.message


@pytest.mark.parametrize("key", ["pci-10de", "pci-0302_10de", "pci-0300_10de"])
def test_each_of_three_pci_labels_shows_a_gpu(key):
    node = stable(a_node({f"feature.node.kubernetes.io/{key}.present": "true"}), PLAIN)
    assert operands(node) == CONTAINER
    assert node.labels[NVIDIA_PRESENT_LABEL] == "true"


def test_our_own_inventory_shows_a_gpu_where_no_feature_discovery_runs():
    assert operands(stable(a_node({"gpu.deckhouse.io/present": "true"}), PLAIN)) == CONTAINER


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({}, id="no labels"),
        pytest.param({"feature.node.kubernetes.io/pci-10de.present": "false"}, id="false"),
        pytest.param({"feature.node.kubernetes.io/pci-8086.present": "true"}, id="another vendor"),
        pytest.param({"gpu.deckhouse.io/present": "false"}, id="kept away by hand"),
    ],
)
def test_theme_742_a_node_without_a_gpu_gets_no_label(labels):
    """gpu-operator#742: labels on nodes without a GPU."""
    assert not deploy_labels(a_node(labels), PLAIN, expired=ALL_HOLDS)


@pytest.mark.parametrize("mode", SandboxMode)
@pytest.mark.parametrize("is_capable", [True, False])
@pytest.mark.parametrize(
    ("workload", "want"),
    [
        (None, CONTAINER),
        (WorkloadType.CONTAINER, CONTAINER),
        (WorkloadType.VM_PASSTHROUGH, PASSTHROUGH),
        (WorkloadType.VM_VGPU, VGPU),
    ],
)
def test_each_workload_type_has_its_operands(mode, is_capable, workload, want):
    policy = parameters(sandboxWorkloads={"enabled": True, "mode": mode.value})
    labels = {**NFD, "nvidia.com/mig.capable": str(is_capable).lower()}
    if workload is not None:
        labels[WORKLOAD] = workload.value
    want = set(want)
    if want == PASSTHROUGH:
        plugin = "sandbox" if mode is SandboxMode.KUBEVIRT else "kata-sandbox"
        want |= {f"{plugin}-device-plugin"}
    if want == CONTAINER and is_capable:
        want |= {"mig-manager"}
    assert operands(stable(a_node(labels), policy)) == want


def test_every_operand_of_a_workload_type_may_be_recorded():
    found = {
        name
        for workload in WorkloadType
        for mode in SandboxMode
        for name in operands_of(workload, mode)
    }
    assert found | {"mig-manager"} == set(OPERANDS)


def test_a_change_of_the_workload_type_exchanges_the_operands():
    policy = parameters(sandboxWorkloads={"enabled": True})
    node = stable(a_node({**NFD, **MIG}), policy)
    node = stable(relabelled(node, {WORKLOAD: "vm-vgpu"}), policy)
    assert operands(node) == VGPU
    assert operands(stable(relabelled(node, {WORKLOAD: None}), policy)) == CONTAINER | {
        "mig-manager"
    }


def test_a_policy_that_drops_its_default_workload_leaves_nothing_behind():
    """Lesson 41: the default workload was a variable of the process, and never reset."""
    sandbox = {"enabled": True, "defaultWorkload": "vm-passthrough"}
    before = parameters(sandboxWorkloads=sandbox)
    assert operands(stable(a_node(), before)) == PASSTHROUGH | {"sandbox-device-plugin"}
    kata = parameters(sandboxWorkloads={**sandbox, "mode": "kata"})
    assert operands(stable(a_node(), kata)) == PASSTHROUGH | {"kata-sandbox-device-plugin"}
    assert operands(stable(a_node(), before)) == PASSTHROUGH | {"sandbox-device-plugin"}
    after = stable(stable(a_node(), before), parameters(sandboxWorkloads={"enabled": True}))
    assert operands(after) == CONTAINER


def test_the_workload_label_counts_only_where_virtual_machines_are_served():
    node = a_node({**NFD, WORKLOAD: "vm-vgpu"})
    assert operands(stable(node, PLAIN)) == CONTAINER
    assert "spec.sandboxWorkloads.enabled" in note(node, LabelReason.WORKLOAD_IGNORED)


@pytest.mark.parametrize("value", ["vm", "Container", "x" * 63])
def test_a_workload_label_that_is_no_type_is_the_default_and_told(value):
    policy = parameters(sandboxWorkloads={"enabled": True, "defaultWorkload": "vm-vgpu"})
    node = a_node({**NFD, WORKLOAD: value})
    assert operands(stable(node, policy)) == VGPU
    message = note(node, LabelReason.WORKLOAD_UNKNOWN, policy)
    assert f"{WORKLOAD}={value}" in message
    assert "container, vm-passthrough, vm-vgpu" in message


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ({"nvidia.com/mig.capable": "true"}, True),
        ({"nvidia.com/mig.capable": "false"}, False),
        ({"nvidia.com/mig.capable": "false", "nvidia.com/gpu.product": "NVIDIA-H100"}, False),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, True),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4"}, True),
        ({"nvidia.com/gpu.product": "NVIDIA-A30"}, True),
        ({"nvidia.com/gpu.product": "NVIDIA-H200"}, None),
        ({"nvidia.com/mig.capable": "true", "nvidia.com/vgpu.host-driver-version": "580"}, False),
        ({}, None),
    ],
)
def test_mig_capability(labels, want):
    assert mig_capability(labels) is want


def test_a_mig_capable_node_gets_the_layout_without_instances_unless_it_has_one():
    assert stable(a_node({**NFD, **MIG}), PLAIN).labels[MIG_CONFIG_LABEL] == "all-disabled"
    node = stable(a_node({**NFD, **MIG, MIG_CONFIG_LABEL: "all-1g.10gb"}), PLAIN)
    assert node.labels[MIG_CONFIG_LABEL] == "all-1g.10gb"
    assert stable(node, None, expired=ALL_HOLDS).labels[MIG_CONFIG_LABEL] == "all-1g.10gb"


@pytest.mark.parametrize(
    ("spec", "labels"),
    [
        pytest.param({"migManager": {"enabled": False}}, MIG, id="no MIG manager"),
        pytest.param({"migManager": {"config": {"default": ""}}}, MIG, id="no default"),
        pytest.param({}, {"nvidia.com/mig.capable": "false"}, id="not capable"),
    ],
)
def test_other_nodes_get_no_layout(spec, labels):
    assert MIG_CONFIG_LABEL not in stable(a_node({**NFD, **labels}), parameters(**spec)).labels


def test_a_node_with_a_device_in_a_pool_gets_neither_device_plugin_nor_mig_manager():
    node = stable(a_node({**NFD, **MIG}), PLAIN)
    pooled = changed(node, is_in_pool=True)
    after = stable(pooled, PLAIN)
    assert operands(after) == CONTAINER - {"device-plugin"}
    assert MIG_CONFIG_LABEL not in after.labels
    found = {item.key: item for item in deploy_labels(after, PLAIN).notes}
    for name in ("device-plugin", "mig-manager"):
        assert found[f"{DEPLOY}{name}"].reason is LabelReason.IN_POOL
        assert "GPUPool" in found[f"{DEPLOY}{name}"].message
    back = stable(changed(after, is_in_pool=False), PLAIN)
    assert operands(back) == CONTAINER | {"mig-manager"}


def test_a_foreign_label_that_brings_a_second_device_plugin_to_a_pool_is_told():
    node = a_node({**NFD, f"{DEPLOY}device-plugin": "true"}, is_in_pool=True)
    after = stable(node, PLAIN)
    assert "device-plugin" in operands(after)
    assert "remove the label" in note(after, LabelReason.FOREIGN)


def test_themes_2288_and_491_a_value_of_another_writer_stays():
    """gpu-operator#2288, #491: deploy labels were overwritten."""
    node = with_labels(stable(a_node(), PLAIN), dcgm="false")
    after = stable(node, PLAIN)
    assert after.labels[f"{DEPLOY}dcgm"] == "false"
    assert "remove the label" in note(after, LabelReason.SWITCHED_OFF)
    left = stable(after, None, expired=ALL_HOLDS)
    assert left.labels == {**NFD, f"{DEPLOY}dcgm": "false"}


@pytest.mark.parametrize(
    "foreign",
    [
        {"dcgm": "false", "driver": "true"},
        {"device-plugin": "false"},
        {"driver": "pre-installed"},
    ],
    ids=str,
)
def test_a_value_that_was_there_before_the_policy_stays_after_it(foreign: dict[str, str]):
    """gpu-operator#2288, #1018: nodes arrive with labels that others wrote."""
    written = {f"{DEPLOY}{name}": text for name, text in foreign.items()}
    labels = {**NFD, **written, "zone": "a"}
    node = stable(a_node(labels), PLAIN)
    changed_policy = stable(node, parameters(mig={"strategy": "mixed"}))
    for now in (node, changed_policy):
        assert {key: now.labels[key] for key in written} == written
        assert operands(now) == CONTAINER - {name for name in foreign if foreign[name] != "true"}
    assert stable(node, None, expired=ALL_HOLDS).labels == labels


def test_theme_1018_an_empty_label_counts_as_absent():
    """gpu-operator#1018: empty deploy labels kept operands away."""
    node = stable(with_labels(a_node(), dcgm="", driver=""), PLAIN)
    assert operands(node) == CONTAINER
    emptied = with_labels(node, dcgm="")
    assert deploy_labels(emptied, PLAIN).restored == (f"{DEPLOY}dcgm",)
    assert stable(emptied, None, expired=ALL_HOLDS).labels == NFD


@pytest.mark.parametrize("value", ["paused-for-driver-upgrade", "paused-for-mig-change"])
def test_a_paused_operand_stays_paused_and_is_removed_with_the_policy(value):
    node = with_labels(stable(a_node(), PLAIN), driver=value, dcgm=value)
    after = stable(node, PLAIN)
    assert after == node
    assert reasons(after) == {LabelReason.MIG_UNKNOWN, LabelReason.PAUSED}
    assert stable(with_labels(after, driver="true", dcgm="true"), PLAIN).recorded == node.recorded
    assert stable(after, None, expired=ALL_HOLDS).labels == NFD


def test_theme_1469_a_label_that_was_removed_comes_back_and_is_told():
    """gpu-operator#1469: deploy labels were lost."""
    node = stable(a_node(), PLAIN)
    change = deploy_labels(with_labels(node, driver=None), PLAIN)
    assert change.labels == {f"{DEPLOY}driver": "true"}
    assert change.restored == (f"{DEPLOY}driver",)
    assert deploy_labels(a_node(), PLAIN).restored == ()


def test_a_derived_label_that_was_changed_is_put_back_and_told():
    node = stable(a_node(), PLAIN)
    change = deploy_labels(relabelled(node, {OS_LABEL: "rhel9"}), PLAIN)
    assert change.labels == {OS_LABEL: "ubuntu24.04"}
    assert change.restored == (OS_LABEL,)
    other = {**NFD, "feature.node.kubernetes.io/system-os_release.VERSION_ID": "26.04"}
    moved = deploy_labels(relabelled(node, dict(other)), PLAIN)
    assert moved.labels == {OS_LABEL: "ubuntu26.04"}
    assert moved.restored == ()


def test_a_derived_label_of_another_writer_stays_and_is_told():
    node = a_node({**NFD, OS_LABEL: "sles15", NVIDIA_PRESENT_LABEL: "false"})
    after = stable(node, PLAIN)
    assert (after.labels[OS_LABEL], after.labels[NVIDIA_PRESENT_LABEL]) == ("sles15", "false")
    messages = [
        item.message
        for item in deploy_labels(after, PLAIN).notes
        if item.reason is LabelReason.FOREIGN
    ]
    assert len(messages) == 2
    assert any("ubuntu24.04 would be right" in item for item in messages)


def test_software_of_the_node_is_on_it():
    node = a_node(runtime_version="cri-o://1.33", kernel_version="6.8.0-41-generic")
    labels = stable(node, PLAIN).labels
    assert (labels[OS_LABEL], labels[KERNEL_LABEL], labels[RUNTIME_LABEL]) == (
        "ubuntu24.04",
        "6.8.0-41-generic",
        "cri-o",
    )


@pytest.mark.parametrize(
    ("labels", "system", "expected"),
    [
        ({}, ("ubuntu", "24.04"), "ubuntu24.04"),
        ({}, ("rhel", "9.4"), "rhel9"),
        ({}, ("arch", ""), ""),
        (NFD, ("sles", "15"), "ubuntu24.04"),
    ],
)
def test_without_feature_discovery_the_system_is_what_the_node_agent_reports(
    labels: dict[str, str], system: tuple[str, str], expected: str
):
    name, version = system
    node = a_node({PRESENT_LABEL: "true", **labels}, system=NodeSystem(os=name, os_version=version))
    labelled = stable(node, PLAIN)
    assert labelled.labels.get(OS_LABEL, "") == expected
    without_report = dataclasses.replace(labelled, system=NodeSystem())
    assert stable(without_report, PLAIN).labels == labelled.labels
    upgraded = dataclasses.replace(labelled, system=NodeSystem(os="ubuntu", os_version="26.04"))
    assert stable(upgraded, PLAIN).labels[OS_LABEL] == (expected if labels else "ubuntu26.04")


def test_operands_switched_off_on_a_node_leave_only_its_presence():
    node = stable(a_node({**NFD, **MIG}), PLAIN)
    off = stable(relabelled(node, {"nvidia.com/gpu.deploy.operands": "false"}), PLAIN)
    assert off.labels == {
        **NFD,
        **MIG,
        NVIDIA_PRESENT_LABEL: "true",
        "nvidia.com/gpu.deploy.operands": "false",
    }
    assert reasons(off) == {LabelReason.OPERANDS_OFF}
    back = stable(relabelled(off, {"nvidia.com/gpu.deploy.operands": None}), PLAIN)
    assert operands(back) == CONTAINER | {"mig-manager"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"driver": {"upgradePolicy": {"autoUpgrade": True}}}, "true"),
        ({"driver": {"upgradePolicy": {"autoUpgrade": False}}}, ""),
        ({"driver": {"enabled": False, "upgradePolicy": {"autoUpgrade": True}}}, ""),
        (
            {
                "driver": {"upgradePolicy": {"autoUpgrade": True}},
                "sandboxWorkloads": {"enabled": True},
            },
            "",
        ),
    ],
)
def test_nodes_say_whether_they_get_a_new_driver_by_themselves(spec, want):
    assert stable(a_node(), parameters(**spec)).upgrade_enabled == want
    enabled = stable(a_node(), parameters(driver={"upgradePolicy": {"autoUpgrade": True}}))
    assert stable(enabled, parameters(**spec)).upgrade_enabled == want
    by_hand = stable(a_node(upgrade_enabled="false"), parameters(**spec))
    assert by_hand.upgrade_enabled == "false"
    assert stable(by_hand, None, expired=ALL_HOLDS).upgrade_enabled == "false"


BY_DRIVERS = {"driver": {"useNvidiaDriverCRD": True}}


def test_the_owner_of_the_driver_is_a_label_and_decides_about_upgrades():
    gold = a_driver("gold", nodeSelector={"pool": "gold"}, upgradePolicy={"autoUpgrade": False})
    policy = parameters(gold, a_driver("rest", default=True), **BY_DRIVERS)
    node = stable(a_node({**NFD, "pool": "gold"}), policy)
    assert (node.labels[DRIVER_OWNER_LABEL], node.upgrade_enabled) == ("gold", "")
    node = stable(relabelled(node, {"pool": None}), policy)
    assert (node.labels[DRIVER_OWNER_LABEL], node.upgrade_enabled) == ("rest", "true")
    assert DRIVER_OWNER_LABEL not in stable(node, PLAIN).labels


def test_two_drivers_that_select_a_node_leave_its_owner_alone():
    gold, blue = (a_driver(name, nodeSelector={name: "yes"}) for name in ("gold", "blue"))
    policy = parameters(gold, blue, **BY_DRIVERS)
    node = stable(a_node({**NFD, "gold": "yes"}), policy)
    both = relabelled(node, {"blue": "yes"})
    assert not deploy_labels(both, policy)
    assert "blue, gold" in note(both, LabelReason.OWNER_CONFLICT, policy)
    # Also on a node that had none.
    fresh = stable(a_node({**NFD, "gold": "yes", "blue": "yes"}), policy)
    assert DRIVER_OWNER_LABEL not in fresh.labels
    stable_again = stable(both, parameters(blue, **BY_DRIVERS))
    assert stable_again.labels[DRIVER_OWNER_LABEL] == "blue"


def test_a_node_that_no_driver_selects_says_so():
    policy = parameters(a_driver("gold", nodeSelector={"pool": "gold"}), **BY_DRIVERS)
    assert "spec.nodeSelector" in note(a_node(), LabelReason.NO_OWNER, policy)


# --- feature discovery that restarts ----------------------------------------------------------------


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(tuple(GPU), id="the PCI label"),
        pytest.param(tuple(NFD), id="all labels of NFD"),
        pytest.param((*NFD, *MIG, "nvidia.com/gpu.product"), id="NFD's and GFD's"),
        pytest.param((*MIG, "nvidia.com/gpu.product"), id="GFD's"),
        *(pytest.param((key,), id=key) for key in NFD),
    ],
)
def test_theme_316_labels_stay_while_feature_discovery_restarts(gone):
    """gpu-operator#316: deploy labels were lost when NFD's labels changed."""
    node = stable(a_node({**NFD, **MIG, "nvidia.com/gpu.product": "NVIDIA-H200"}), PLAIN)
    away = relabelled(node, dict.fromkeys(gone))
    assert not deploy_labels(away, PLAIN)


def test_a_node_whose_gpu_is_gone_loses_its_labels_after_the_hold():
    node = stable(a_node({**NFD, **MIG}), PLAIN)
    gone = relabelled(node, dict.fromkeys([*GPU, *MIG]))
    assert deploy_labels(gone, PLAIN).held == {Hold.DEVICE}
    after = stable(gone, PLAIN, expired=frozenset({Hold.DEVICE}))
    without = {key: value for key, value in NFD.items() if key not in GPU}
    assert after.labels == {**without, NVIDIA_PRESENT_LABEL: "false"}
    assert deploy_labels(after, PLAIN).held == frozenset()
    assert operands(stable(relabelled(after, dict(GPU)), PLAIN)) == CONTAINER
    assert stable(after, None, expired=ALL_HOLDS).labels == without


def test_a_node_of_which_feature_discovery_shows_nothing_keeps_its_labels_for_ever():
    node = stable(a_node(), PLAIN)
    silent = relabelled(node, dict.fromkeys(NFD))
    assert not deploy_labels(silent, PLAIN, expired=ALL_HOLDS)
    assert reasons(silent) == {LabelReason.FEATURES_MISSING}


def test_an_owner_whose_selector_has_labels_of_feature_discovery_keeps_the_node():
    key = "feature.node.kubernetes.io/system-os_release.ID"
    ubuntu, remaining = (
        a_driver("ubuntu", nodeSelector={key: "ubuntu"}),
        a_driver("rest", default=True),
    )
    policy = parameters(ubuntu, remaining, **BY_DRIVERS)
    node = stable(a_node(), policy)
    away = relabelled(node, {key: None})
    change = deploy_labels(away, policy)
    assert (bool(change), change.held) == (False, frozenset({Hold.OWNER}))
    moved = stable(away, policy, expired=frozenset({Hold.OWNER}))
    assert moved.labels[DRIVER_OWNER_LABEL] == "rest"
    # A label with another value is a statement.
    other = stable(relabelled(node, {key: "rhel"}), policy)
    assert other.labels[DRIVER_OWNER_LABEL] == "rest"


def test_theme_1391_nothing_is_left_of_a_policy_that_is_gone():
    """Lesson 50, gpu-operator#1391: labels were never removed at uninstall."""
    policy = parameters(a_driver("gold"), **BY_DRIVERS)
    before = a_node({**NFD, **MIG, "zone": "a"}, runtime_version="containerd://2.1")
    node = stable(before, policy)
    assert node.recorded
    assert node.upgrade_enabled
    assert stable(node, None, expired=ALL_HOLDS) == before


def test_labels_of_the_gpu_operator_become_ours_by_hand():
    """None of them goes away meanwhile: that would take the driver off the node."""
    before = stable(a_node({**NFD, **MIG, "zone": "a"}), parameters(a_driver("gold"), **BY_DRIVERS))
    theirs = with_labels(changed(before, recorded=""), dcgm="false", driver="paused-for-mig-change")
    adopting = changed(theirs, recorded="adopt")
    change = deploy_labels(adopting, parameters(a_driver("gold"), **BY_DRIVERS))
    assert (change.labels, set(change.annotations)) == ({}, {DEPLOY_LABELS_ANNOTATION})
    after = stable(adopting, PLAIN)
    assert DRIVER_OWNER_LABEL not in after.labels
    left = stable(after, None, expired=ALL_HOLDS)
    assert left.labels == {**NFD, **MIG, "zone": "a", f"{DEPLOY}dcgm": "false"}
    assert not left.upgrade_enabled
    # Without it they are another writer's, and stay.
    assert stable(theirs, None, expired=ALL_HOLDS).labels == theirs.labels


def test_adoption_concerns_only_labels_of_operands():
    node = a_node({"zone": "a", MIG_CONFIG_LABEL: "all-1g.10gb"}, recorded="adopt")
    assert not deploy_labels(node, PLAIN, expired=ALL_HOLDS)
    assert stable(node, None, expired=ALL_HOLDS) == changed(node, recorded="")


def test_labels_are_not_removed_at_once_where_no_policy_was_seen_to_be_deleted():
    node = stable(a_node(), PLAIN)
    change = deploy_labels(node, None)
    assert (bool(change), change.held) == (False, frozenset({Hold.POLICY}))
    assert deploy_labels(a_node(), None).held == frozenset()


def test_an_edited_record_makes_us_remove_no_foreign_label():
    node = a_node({"zone": "a", f"{DEPLOY}dcgm": "false"}, recorded=f"zone=a,{DEPLOY}dcgm,=,,x=")
    assert applied(node, deploy_labels(node, None, expired=ALL_HOLDS)).labels == node.labels


def test_components_that_are_switched_off_keep_their_label():
    """As in the GPU Operator: a component that is switched on again starts on all nodes at once."""
    off = parameters(dcgm={"enabled": False}, devicePlugin={"enabled": False})
    assert operands(stable(a_node(), off)) == CONTAINER


def test_policies_that_differ_otherwise_have_equal_terms():
    assert parameters(dcgm={"enabled": False}) == parameters()
    assert parameters(a_driver("gold"), **BY_DRIVERS) == parameters(a_driver("gold"), **BY_DRIVERS)
    assert parameters(a_driver("gold"), **BY_DRIVERS) != parameters(a_driver("blue"), **BY_DRIVERS)
    assert a_policy() == a_policy()
