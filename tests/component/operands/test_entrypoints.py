"""Entrypoints of operands of a ClusterPolicy, run by a shell: they wait for the driver, and hand on what they know."""

import subprocess
from pathlib import Path

import pytest

from operands.asset_files import load_assets

PROGRAMS = {
    "state-container-toolkit": "nvidia-toolkit",
    "state-device-plugin": "nvidia-device-plugin",
    "state-mig-manager": "nvidia-mig-manager",
}
DRIVER_READY = "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\n"
SHOWS_ALL = '#!/bin/sh\nfor one in "$@"; do echo "argument=$one"; done\nenv\n'
EACH_STATE = pytest.mark.parametrize("state", PROGRAMS)


@pytest.fixture(name="node")
def a_node(tmp_path: Path) -> Path:
    """A directory with a driver that is validated, modules of the kernel, and programs that show what they are given."""
    (tmp_path / "driver-ready").write_text(DRIVER_READY, encoding="utf-8")
    (tmp_path / "modules").write_text("nvidia 1 0\n", encoding="utf-8")
    for name in PROGRAMS.values():
        program = tmp_path / name
        program.write_text(SHOWS_ALL, encoding="utf-8")
        program.chmod(0o755)
    sleep = tmp_path / "sleep"
    sleep.write_text(
        f"#!/bin/sh\necho pause\ncp {tmp_path}/later {tmp_path}/driver-ready 2>/dev/null\nexit 0\n",
        encoding="utf-8",
    )
    sleep.chmod(0o755)
    return tmp_path


def run(state: str, node: Path, *arguments: str, **variables: str) -> list[str]:
    """Run the entrypoint of a state on the node, and return the lines that it and its program print."""
    (text,) = (
        asset["data"]["entrypoint.sh"]
        for asset in load_assets(state)
        if asset["kind"] == "ConfigMap" and "entrypoint.sh" in asset["data"]
    )
    script = node / "entrypoint.sh"
    text = text.replace("/run/nvidia/validations", str(node)).replace("/proc", str(node))
    script.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["/bin/sh", str(script), *arguments],
        env={"PATH": f"{node}:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@EACH_STATE
def test_the_program_gets_the_arguments_of_the_policy_and_where_the_driver_is(
    state: str, node: Path
):
    found = run(state, node, "--verbose", "two words")
    assert [item for item in found if item.startswith("argument=")] == [
        "argument=--verbose",
        "argument=two words",
    ]
    assert found.index("NVIDIA_DRIVER_ROOT=/") < found.index("argument=--verbose")
    assert found.count("NVIDIA_DRIVER_ROOT=/") == 2


@EACH_STATE
def test_the_program_waits_until_the_driver_is_validated(state: str, node: Path):
    (node / "driver-ready").rename(node / "later")
    found = run(state, node)
    assert found[:2] == ["waiting until the driver is validated", "pause"]
    assert "IS_HOST_DRIVER=true" in found


@pytest.mark.parametrize(
    ("modules", "given", "expected"),
    [
        pytest.param("nvidia 1 0\n", {}, set(), id="none"),
        pytest.param("gdrdrv 1 0\n", {}, {"GDRCOPY_ENABLED=true"}, id="gdrcopy"),
        pytest.param(
            "nvidia_fs 1 0\n", {}, {"GDS_ENABLED=true", "MOFED_ENABLED=true"}, id="nvidia-fs"
        ),
        pytest.param("my_nvidia_fs 1 0\nnvidia 1 0 nvidia_fs\n", {}, set(), id="other modules"),
        pytest.param(
            "nvidia_fs 1 0\n",
            {"GDS_ENABLED": "false"},
            {"GDS_ENABLED=false", "MOFED_ENABLED=true"},
            id="the policy decides",
        ),
    ],
)
def test_the_device_plugin_offers_modules_of_the_node(node: Path, modules, given, expected):
    (node / "modules").write_text(modules, encoding="utf-8")
    found = run("state-device-plugin", node, **given)
    assert {item for item in found if item.startswith(("GDRCOPY", "GDS", "MOFED"))} == expected


def test_the_mig_manager_stops_clients_of_the_node_with_a_driver_of_the_node(node: Path):
    assert "WITH_SHUTDOWN_HOST_GPU_CLIENTS=true" in run("state-mig-manager", node)
    container = DRIVER_READY.replace("true", "false")
    (node / "driver-ready").write_text(container, encoding="utf-8")
    assert "WITH_SHUTDOWN_HOST_GPU_CLIENTS=false" in run("state-mig-manager", node)
