"""State `state-device-plugin`: what each field of the policy changes, and what restarts its pods."""

import pytest

from api.names import CONFIG_HASH_ANNOTATION
from operands.asset_files import load_assets
from operands.nvidia.states import device_plugin
from operands.nvidia.states.device_plugin import STATE
from operands.transforms import object_of, set_content_hash
from tests.unit.operands.nvidia.state_changes import (
    BLOCK,
    FULL,
    changes,
    check_golden,
    objects_of,
)

MAIN = "nvidia-device-plugin"
ENV = f"pod.containers[{MAIN}].env"
CONFIG = {"config": {"name": "plugin-configs", "default": "shared"}}
NO_CDI = {"cdi": {"enabled": False}}


def variable(name: str, value: str | None) -> dict[str, str | None]:
    """A variable that is new, or gone where the value is None."""
    return {f"{ENV}[{name}].name": value and name, f"{ENV}[{name}].value": value}


def test_objects_by_default_are_the_approved_ones():
    check_golden(STATE, "default", {})


def test_objects_of_a_full_block_are_the_approved_ones():
    plugin = {**BLOCK, **CONFIG, "mps": {"root": "/data/mps"}}
    check_golden(
        STATE,
        "full",
        {
            **FULL,
            "devicePlugin": plugin,
            "mig": {"strategy": "mixed"},
            "gds": {"enabled": True},
            "gdrcopy": {"enabled": True},
            "toolkit": {"installDir": "/opt/toolkit"},
        },
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"mig": {"strategy": "single"}}, variable("MIG_STRATEGY", "single"), id="mig single"
        ),
        pytest.param(
            {"mig": {"strategy": "none"}},
            variable("MIG_STRATEGY", "none") | variable("NVIDIA_MIG_MONITOR_DEVICES", None),
            id="mig none",
        ),
        pytest.param(
            {"gds": {"enabled": True}},
            variable("GDS_ENABLED", "true") | variable("MOFED_ENABLED", "true"),
            id="gds",
        ),
        pytest.param(
            {"gdrcopy": {"enabled": True}}, variable("GDRCOPY_ENABLED", "true"), id="gdrcopy"
        ),
        pytest.param(
            NO_CDI,
            {
                **variable("CDI_ENABLED", None),
                **variable("CDI_ANNOTATION_PREFIX", None),
                **variable("NVIDIA_CDI_HOOK_PATH", None),
                f"{ENV}[DEVICE_LIST_STRATEGY].value": "envvar",
            },
            id="no cdi",
        ),
        pytest.param(
            {"toolkit": {"installDir": "/opt/toolkit/"}},
            {f"{ENV}[NVIDIA_CDI_HOOK_PATH].value": "/opt/toolkit/toolkit/nvidia-cdi-hook"},
            id="directory of the toolkit",
        ),
        pytest.param({"toolkit": {"installDir": ""}}, {}, id="empty directory of the toolkit"),
        pytest.param(
            {"toolkit": {"enabled": False}},
            variable("NVIDIA_CDI_HOOK_PATH", None),
            id="no toolkit",
        ),
        pytest.param(
            {"devicePlugin": {"mps": {"root": "/data/mps/"}}},
            {
                f"{ENV}[MPS_ROOT].value": "/data/mps",
                "pod.volumes[mps-root].hostPath.path": "/data/mps",
                "pod.volumes[mps-shm].hostPath.path": "/data/mps/shm",
            },
            id="root of mps",
        ),
        pytest.param({"devicePlugin": {"mps": {"root": ""}}}, {}, id="empty root of mps"),
        pytest.param(
            {"hostPaths": {"kubeletRootDir": "/data/kubelet"}},
            {"pod.volumes[device-plugin].hostPath.path": "/data/kubelet/device-plugins"},
            id="kubelet's directory",
        ),
        pytest.param(
            {"hostPaths": {"driverInstallDir": "/opt/driver"}},
            {"pod.volumes[driver-install-dir].hostPath.path": "/opt/driver"},
            id="driver's directory",
        ),
    ],
)
def test_a_field_changes_what_it_says_and_no_more(spec, expected):
    assert changes(STATE, spec) == expected


def test_a_changed_entrypoint_restarts_the_pods(monkeypatch: pytest.MonkeyPatch):
    """Theme of gpu-operator#1144 and #412: pods that read a file at their start follow its changes."""
    objects = objects_of(STATE, {})
    config_map, daemon_set = object_of(objects, "ConfigMap"), object_of(objects, "DaemonSet")
    annotations = daemon_set["spec"]["template"]["metadata"]["annotations"]
    before = annotations[CONFIG_HASH_ANNOTATION]
    set_content_hash(daemon_set, config_map)
    assert annotations[CONFIG_HASH_ANNOTATION] == before
    config_map["data"]["entrypoint.sh"] += "\n"
    monkeypatch.setattr(
        device_plugin,
        "load_assets",
        lambda name: [
            config_map if asset["kind"] == "ConfigMap" else asset for asset in load_assets(name)
        ],
    )
    after = object_of(objects_of(STATE, {}), "DaemonSet")["spec"]["template"]["metadata"][
        "annotations"
    ]
    assert after[CONFIG_HASH_ANNOTATION] != before
