"""The driver's files on a node: where they are found, and what a container sees of them."""

import os
import socket
from pathlib import Path

import pytest

from agent.driver.libraries import DriverFiles, driver_state, find_driver_files, host_of
from agent.nvml.library import find_libraries

MULTIARCH = "usr/lib/x86_64-linux-gnu"
LIB = "/usr/local/nvidia/lib64"


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def link(root: Path, name: str, target: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def put_driver(root: Path, directory: str = MULTIARCH) -> None:
    put(root, f"{directory}/libcuda.so.570.1", f"{directory}/libnvidia-ml.so.570.1")
    link(root, f"{directory}/libcuda.so.1", "libcuda.so.570.1")
    link(root, f"{directory}/libcuda.so", "libcuda.so.1")
    link(root, f"{directory}/libnvidia-ml.so.1", "libnvidia-ml.so.570.1")


def test_the_directory_that_an_operator_names_is_searched_first(tmp_path: Path):
    put_driver(tmp_path, MULTIARCH)
    put_driver(tmp_path, "opt/vendor/lib")
    named = mounts(find_driver_files(tmp_path, "/opt/vendor/lib"))
    assert named[f"{LIB}/libcuda.so.1"] == "/opt/vendor/lib/libcuda.so.570.1"
    found = [str(path) for path in find_libraries(tmp_path, first="/opt/vendor/lib")]
    assert [path.removeprefix(str(tmp_path)) for path in found] == [
        "/opt/vendor/lib/libnvidia-ml.so.570.1",
        f"/{MULTIARCH}/libnvidia-ml.so.570.1",
    ]
    elsewhere = mounts(find_driver_files(tmp_path, "/absent"))
    assert elsewhere[f"{LIB}/libcuda.so.1"] == f"/{MULTIARCH}/libcuda.so.570.1"
    assert driver_state(tmp_path, "/opt/vendor/lib") != driver_state(tmp_path)


def mounts(found: DriverFiles) -> dict[str, str]:
    return {mount.container_path: mount.host_path for mount in found.mounts}


def test_a_library_is_seen_under_its_own_name_and_those_of_its_links(tmp_path: Path):
    put_driver(tmp_path)
    put(tmp_path, f"{MULTIARCH}/libc.so.6", f"{MULTIARCH}/libcudart.so.12", "usr/bin/nvidia-smi")
    put(tmp_path, f"{MULTIARCH}/libcuda.sometimes", f"{MULTIARCH}/libcuda.so-old", "usr/bin/ls")
    assert mounts(find_driver_files(tmp_path)) == {
        f"{LIB}/libcuda.so": f"/{MULTIARCH}/libcuda.so.570.1",
        f"{LIB}/libcuda.so.1": f"/{MULTIARCH}/libcuda.so.570.1",
        f"{LIB}/libcuda.so.570.1": f"/{MULTIARCH}/libcuda.so.570.1",
        f"{LIB}/libnvidia-ml.so.1": f"/{MULTIARCH}/libnvidia-ml.so.570.1",
        f"{LIB}/libnvidia-ml.so.570.1": f"/{MULTIARCH}/libnvidia-ml.so.570.1",
        "/usr/local/nvidia/bin/nvidia-smi": "/usr/bin/nvidia-smi",
    }


@pytest.mark.parametrize(
    "directory",
    [
        pytest.param(MULTIARCH, id="Debian"),
        pytest.param("usr/lib64", id="Red Hat"),
        pytest.param("home/kubernetes/bin/nvidia/lib64", id="GKE"),
        pytest.param("usr/local/glibc/usr/lib", id="Talos"),
        pytest.param("run/opengl-driver/lib", id="NixOS"),
        pytest.param("usr/lib/wsl/lib", id="WSL2"),
        pytest.param("opt/nvidia/lib64", id="Flatcar"),
        pytest.param(
            "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla", id="Bottlerocket"
        ),
    ],
)
@pytest.mark.parametrize("root", ["", "run/nvidia/driver/"])
def test_libraries_are_found_where_a_distribution_has_them(
    tmp_path: Path, directory: str, root: str
):
    """For containers, for the agent's own NVML, and for the validator's libcuda alike."""
    put_driver(tmp_path, f"{root}{directory}")
    assert find_driver_files(tmp_path).has_libraries
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        found = list(find_libraries(tmp_path, name))
        assert [str(path.parent.relative_to(tmp_path)) for path in found] == [f"{root}{directory}"]


def test_debians_links_to_alternatives_are_followed_inside_the_nodes_root(tmp_path: Path):
    put(tmp_path, f"{MULTIARCH}/nvidia/current/libcuda.so.570.1")
    link(tmp_path, f"{MULTIARCH}/libcuda.so.1", "/etc/alternatives/glx--libcuda.so.1")
    link(
        tmp_path,
        "etc/alternatives/glx--libcuda.so.1",
        f"/{MULTIARCH}/nvidia/current/libcuda.so.570.1",
    )
    link(tmp_path, "etc/alternatives/nvidia-smi", "../../opt/nvidia-smi")
    link(tmp_path, "usr/bin/nvidia-smi", "/etc/alternatives/nvidia-smi")
    put(tmp_path, "opt/nvidia-smi")
    at = f"/{MULTIARCH}/nvidia/current/libcuda.so.570.1"
    assert mounts(find_driver_files(tmp_path)) == {
        f"{LIB}/libcuda.so.1": at,
        f"{LIB}/libcuda.so.570.1": at,
        "/usr/local/nvidia/bin/nvidia-smi": "/opt/nvidia-smi",
    }


def test_red_hats_32_bit_libraries_come_last(tmp_path: Path):
    put_driver(tmp_path, "usr/lib")
    put_driver(tmp_path, "usr/lib64")
    link(tmp_path, "lib64", "usr/lib64")
    assert mounts(find_driver_files(tmp_path))[f"{LIB}/libcuda.so.1"].startswith("/usr/lib64/")


def test_the_driver_containers_root_is_found_under_the_nodes(tmp_path: Path):
    container = tmp_path / "run/nvidia/driver"
    put_driver(container)
    put(container, "usr/bin/nvidia-smi")
    put(tmp_path, "usr/local/nvidia/toolkit/nvidia-cdi-hook")
    under = "/run/nvidia/driver"
    for root in (tmp_path, container):
        found = find_driver_files(root)
        assert mounts(found)[f"{LIB}/libcuda.so.1"] == f"{under}/{MULTIARCH}/libcuda.so.570.1"
        assert mounts(found)["/usr/local/nvidia/bin/nvidia-smi"] == f"{under}/usr/bin/nvidia-smi"
        assert found.hook == "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
    assert host_of(container) == tmp_path


def test_the_socket_of_persistenced_is_where_it_was(tmp_path: Path, monkeypatch):
    put_driver(tmp_path)
    directory = tmp_path / "run/nvidia-persistenced"
    directory.mkdir(parents=True)
    monkeypatch.chdir(directory)
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket")
        found = mounts(find_driver_files(tmp_path))
    assert found["/run/nvidia-persistenced/socket"] == "/run/nvidia-persistenced/socket"


@pytest.mark.parametrize("what", ["nothing", "a circle", "a directory", "a link to nowhere"])
def test_where_there_is_no_driver_nothing_is_found(tmp_path: Path, what):
    name = f"{MULTIARCH}/libcuda.so.1"
    if what == "a circle":
        link(tmp_path, name, "libcuda.so")
        link(tmp_path, f"{MULTIARCH}/libcuda.so", "libcuda.so.1")
    elif what == "a directory":
        (tmp_path / name).mkdir(parents=True)
    elif what == "a link to nowhere":
        link(tmp_path, name, "../../../../../../../nowhere")
    found = find_driver_files(tmp_path)
    assert found.mounts == ()
    assert not found.has_libraries


def test_a_link_does_not_lead_out_of_the_nodes_root(tmp_path: Path):
    put(tmp_path, "outside.so")
    root = tmp_path / "host"
    link(root, f"{MULTIARCH}/libcuda.so.1", "../../../../outside.so")
    assert find_driver_files(root).mounts == ()


def test_the_state_moves_with_a_directory_that_counts(tmp_path: Path):
    put_driver(tmp_path)
    before = driver_state(tmp_path)
    assert driver_state(tmp_path) == before
    put(tmp_path, f"{MULTIARCH}/libnvidia-nvvm.so.570.1")
    # A coarse clock of the file system must not hide it.
    os.utime(tmp_path / MULTIARCH, ns=(1, 1))
    assert driver_state(tmp_path) != before
    put(tmp_path, "run/nvidia/driver/usr/lib64/libcuda.so.1")
    assert len(driver_state(tmp_path)) > len(before)
