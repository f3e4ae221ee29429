"""The validator's step `toolkit`: what a container runtime needs, by the way in which plugins hand out."""

from pathlib import Path
from typing import Any

import pytest

from agent.validator.steps import Outcome
from agent.validator.toolkit_check import ToolkitCheck
from api.nodefiles.poolconfig import DeviceInjection
from http_edge.system_clock import SystemClock
from tests.support.nvml.library import a_device
from tests.support.validated_node import ValidatedNode, cause_of, text_of

UUID = a_device(0).uuid
OTHER = a_device(1).uuid


@pytest.fixture
def node(tmp_path: Path) -> ValidatedNode:
    return ValidatedNode(tmp_path, a_device(0), a_device(1))


async def snapshot(node: ValidatedNode) -> Outcome:
    return await ToolkitCheck(node.checked, SystemClock()).run()


async def test_a_specification_with_all_devices_passes(node: ValidatedNode):
    node.specify()
    assert text_of(await snapshot(node)) == "CDI devices of the kind gpu.deckhouse.io/gpu: 2"


async def test_a_specification_in_yaml_passes(node: ValidatedNode):
    """nvidia-ctk writes YAML; JSON is YAML, too."""
    path = node.specify()
    path.rename(path.with_suffix(".yaml"))
    assert text_of(await snapshot(node))


async def test_a_missing_specification_is_named(node: ValidatedNode):
    assert cause_of(await snapshot(node)).startswith(
        "no CDI specification of the kind gpu.deckhouse.io/gpu in /etc/cdi or /var/run/cdi: the node agent writes"
    )


async def test_a_device_that_the_specification_lacks_is_named(node: ValidatedNode):
    node.specify(UUID)
    assert f"lacks device {OTHER}" in cause_of(await snapshot(node))


async def test_a_device_that_the_driver_lost_is_not_needed(node: ValidatedNode):
    """The agent knows it from before; its driver has none of its facts."""
    node.specify(UUID)
    node.nvml.unplug(OTHER)
    assert text_of(await snapshot(node))


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        pytest.param({"kind": "nvidia.com/gpu"}, "no CDI specification", id="another kind"),
        pytest.param({"cdiVersion": "9.1.0"}, "cdiVersion '9.1.0' is not known", id="version"),
        pytest.param({"devices": []}, "it has no device", id="no device"),
        pytest.param(
            {"devices": [{"name": UUID}, {"name": UUID}]}, "two devices of one name", id="twice"
        ),
        pytest.param({"devices": "all"}, "Expected `array`", id="type"),
        pytest.param(
            {"containerEdits": {"hooks": [{"hookName": "later", "path": "/x"}]}},
            "hookName 'later' is not known",
            id="hook's name",
        ),
        pytest.param(
            {"containerEdits": {"hooks": [{"hookName": "createContainer", "path": "/usr/x"}]}},
            "the hook /usr/x is missing on the node",
            id="hook",
        ),
        pytest.param(
            {"containerEdits": {"mounts": [{"hostPath": "/usr/lib/x", "containerPath": "/x"}]}},
            "/usr/lib/x is missing on the node",
            id="mount",
        ),
        pytest.param(
            {"containerEdits": {"deviceNodes": [{"path": "/dev/nvidia-modeset"}]}},
            "the device file /dev/nvidia-modeset is missing on the node",
            id="device file",
        ),
        pytest.param(
            {"containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "major": 7, "minor": 7}]}},
            "the device file /dev/nvidia0 has other numbers on the node",
            id="numbers",
        ),
        pytest.param(
            {"containerEdits": {"deviceNodes": [{"path": "../dev/nvidia0"}]}},
            "is missing on the node",
            id="a path that leads away",
        ),
    ],
)
async def test_a_specification_that_no_runtime_takes_is_explained(
    node: ValidatedNode, changes: dict[str, Any], cause: str
):
    node.specify(**changes)
    assert cause in cause_of(await snapshot(node))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 5000])
async def test_a_file_that_cannot_be_read_is_named(node: ValidatedNode, content: bytes):
    node.specify().write_bytes(content)
    assert "gpu.deckhouse.io-gpu.json: " in cause_of(await snapshot(node))


async def test_two_files_with_one_device_are_a_conflict(node: ValidatedNode):
    path = node.specify()
    path.with_name("copy.json").write_bytes(path.read_bytes())
    assert "two CDI specifications of one directory have the device" in cause_of(
        await snapshot(node)
    )


async def test_the_second_directory_wins(node: ValidatedNode):
    node.specify(
        directory="etc/cdi", containerEdits={"mounts": [{"hostPath": "/no", "containerPath": "/x"}]}
    )
    assert "/no is missing" in cause_of(await snapshot(node))
    node.specify()
    assert text_of(await snapshot(node))


async def test_an_absolute_link_is_followed_on_the_node(node: ValidatedNode):
    """/var/run is a link to /run on a node, and would lead into the container's own /run."""
    node.specify(directory="run/cdi")
    (node.root / "var").mkdir()
    (node.root / "var" / "run").symlink_to("/run")
    assert text_of(await snapshot(node))


async def test_nvidias_runtime_is_needed_where_it_hands_out(tmp_path: Path):
    node = ValidatedNode(tmp_path, a_device(0), hand_out=DeviceInjection.ENVIRONMENT)
    assert "nvidia-container-runtime is not on the node" in cause_of(await snapshot(node))
    program = node.root / "usr" / "bin" / "nvidia-container-runtime"
    program.parent.mkdir(parents=True)
    program.touch()
    assert text_of(await snapshot(node)) == "nvidia-container-runtime"


async def test_libraries_are_needed_where_kubelet_hands_out_files(tmp_path: Path):
    node = ValidatedNode(tmp_path, a_device(0), hand_out=DeviceInjection.DEVICES)
    assert text_of(await snapshot(node)) == "the driver's libraries"
    node.nvml.library.unlink()
    node.nvml.cuda_library.unlink()
    assert "install NVIDIA's driver" in cause_of(await snapshot(node))


def test_the_signature_changes_with_the_files(node: ValidatedNode):
    check = ToolkitCheck(node.checked, SystemClock())
    before = check.signature()
    path = node.specify()
    between = check.signature()
    assert before != between == check.signature()
    path.unlink()
    assert check.signature() != between
