"""States of a ClusterPolicy: which there are, in which order, and what a part of the spec switches on."""

import pytest

from api.driver_upgrade import DEPLOY_LABEL_PREFIX
from operands.asset_files import asset_names, load_assets
from operands.nvidia.policy_states import POLICY_STATES, STATE_NAMES
from operands.nvidia.states import kata_manager
from operands.transforms import pod_spec_of
from tests.unit.operands.nvidia.policy_cases import MATRIX, ON, SANDBOX, a_full_policy, a_policy

DOCUMENTED = (
    "pre-requisites",
    "state-operator-metrics",
    "state-driver",
    "state-container-toolkit",
    "state-operator-validation",
    "state-device-plugin",
    "state-mps-control-daemon",
    "state-dcgm",
    "state-dcgm-exporter",
    "gpu-feature-discovery",
    "state-mig-manager",
    "state-node-status-exporter",
    "state-vgpu-manager",
    "state-vgpu-device-manager",
    "state-sandbox-validation",
    "state-vfio-manager",
    "state-sandbox-device-plugin",
    "state-kata-device-plugin",
    "state-kata-manager",
    "state-cc-manager",
)
"""The GPU Operator's, v26.7."""
ALWAYS = frozenset({"pre-requisites", "state-operator-metrics", "state-operator-validation"})
SWITCHES = {
    "driver": {"state-driver"},
    "toolkit": {"state-container-toolkit"},
    "devicePlugin": {"state-device-plugin", "state-mps-control-daemon"},
    "dcgm": {"state-dcgm"},
    "dcgmExporter": {"state-dcgm-exporter"},
    "gfd": {"gpu-feature-discovery"},
    "migManager": {"state-mig-manager"},
    "nodeStatusExporter": {"state-node-status-exporter"},
}
SANDBOX_SWITCHES = {
    "vgpuManager": {"state-vgpu-manager"},
    "vgpuDeviceManager": {"state-vgpu-device-manager"},
    "vfioManager": {"state-vfio-manager"},
    "sandboxDevicePlugin": {"state-sandbox-device-plugin"},
}
KATA_SWITCHES = {
    "kataSandboxDevicePlugin": {"state-kata-device-plugin"},
    "ccManager": {"state-cc-manager"},
}
KATA = {"sandboxWorkloads": {"enabled": True, "mode": "kata"}}
NONE_ON = {name: {"enabled": False} for name in ON}


def running(settings) -> set[str]:
    return {state.name for state in POLICY_STATES if state.is_enabled(settings)}


def test_states_are_those_of_the_operator_in_its_order_and_their_needs_allow_it():
    assert STATE_NAMES == DOCUMENTED
    places = {name: place for place, name in enumerate(DOCUMENTED)}
    for state in POLICY_STATES:
        assert all(places[need] < places[state.name] for need in state.needs)


def test_the_label_of_a_state_is_the_one_that_its_daemon_sets_select():
    selected = {
        (state.name, key.removeprefix(DEPLOY_LABEL_PREFIX))
        for state in POLICY_STATES
        for asset in load_assets(state.name)
        if asset["kind"] == "DaemonSet"
        for key in pod_spec_of(asset)["nodeSelector"]
        if key.startswith(DEPLOY_LABEL_PREFIX)
    }
    declared = {(state.name, state.deploy_label) for state in POLICY_STATES if state.deploy_label}
    assert declared - {(kata_manager.NAME, "kata-manager")} == selected


@pytest.mark.parametrize(
    ("switch", "others"),
    [
        *((name, {}) for name in SWITCHES),
        *((name, SANDBOX) for name in SANDBOX_SWITCHES),
        *((name, KATA) for name in KATA_SWITCHES),
    ],
)
def test_a_switch_brings_its_states_and_no_other(switch: str, others):
    expected = {**SWITCHES, **SANDBOX_SWITCHES, **KATA_SWITCHES}[switch]
    before = running(a_policy(**{**NONE_ON, **others}))
    after = running(a_policy(**{**NONE_ON, **others, switch: {"enabled": True}}))
    assert after - before == expected
    assert before - after == set()


def test_with_all_off_only_states_without_a_switch_run():
    assert running(a_policy(**NONE_ON)) == ALWAYS
    assert running(a_policy(**NONE_ON, **SANDBOX)) == {*ALWAYS, "state-sandbox-validation"}


def test_states_of_virtual_machines_need_virtual_machines():
    of_sandbox = {
        *(
            name
            for names in (*SANDBOX_SWITCHES.values(), *KATA_SWITCHES.values())
            for name in names
        ),
        "state-sandbox-validation",
    }
    assert not running(a_full_policy()) & of_sandbox


def test_a_mode_runs_its_own_plugin_and_no_other():
    plugins = {"state-sandbox-device-plugin", "state-kata-device-plugin"}
    assert {name: running(policy) & plugins for name, policy in MATRIX.items()} == {
        name: {f"state-{'sandbox' if 'kubevirt' in name else 'kata'}-device-plugin"}
        for name in MATRIX
    }


def test_the_kata_manager_never_runs():
    kata = a_full_policy(**KATA, kataManager={"enabled": True, "image": "kata:1"})
    assert kata_manager.NAME not in running(kata)


@pytest.mark.parametrize("state", [name for name in STATE_NAMES if name != kata_manager.NAME])
def test_assets_have_a_number_and_their_kind(state: str):
    names = asset_names(state)
    assert names
    assert len({name[:4] for name in names}) == len(names)
    assert all(name[:4].isdigit() and name[4] == "_" for name in names)
