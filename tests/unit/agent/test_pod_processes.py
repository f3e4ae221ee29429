"""Which pods have processes, by what the kernel shows of each process."""

from pathlib import Path

import pytest

from agent.kubelet.pod_processes import pods_of_processes, pods_with_processes
from api.names import PodUid

UID = PodUid("0a1b2c3d-0000-4000-8000-00000000000a")
OTHER = PodUid("0a1b2c3d-0000-4000-8000-00000000000b")
UNDERSCORED = UID.replace("-", "_")


def a_process(procfs: Path, pid: int, cgroup: str, *threads: str) -> None:
    """A process whose threads are in these states."""
    directory = procfs / str(pid)
    directory.mkdir()
    (directory / "cgroup").write_text(f"12:cpuset:/\n0::{cgroup}\n")
    for number, state in enumerate(threads):
        thread = directory / "task" / str(pid + number)
        thread.mkdir(parents=True)
        (thread / "stat").write_text(f"{pid + number} (a ) R (b) {state} 1 1 1\n")


@pytest.mark.parametrize(
    "cgroup",
    [
        pytest.param(f"/kubepods/besteffort/pod{UID}/cafe", id="cgroupfs"),
        pytest.param(f"/a/root/kubepods/pod{UID}/cafe/inner", id="below another root"),
        pytest.param(
            f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-cafe.scope", id="systemd"
        ),
        pytest.param(f"/../pod{UID}/cafe", id="seen from a namespace of cgroups"),
    ],
)
def test_a_process_in_a_cgroup_of_the_pod_is_the_pod_s(tmp_path: Path, cgroup: str) -> None:
    a_process(tmp_path, 7, "/", "S")
    a_process(tmp_path, 8, cgroup, "S")
    assert pods_with_processes([UID, OTHER], tmp_path) == {UID}


@pytest.mark.parametrize(
    ("threads", "runs"),
    [
        pytest.param(["D"], True, id="in the kernel"),
        pytest.param(["Z"], False, id="exited"),
        pytest.param(["Z", "S"], True, id="its first thread exited"),
        pytest.param(["Z", "X"], False, id="all exited"),
        pytest.param([], False, id="gone meanwhile"),
    ],
)
def test_a_process_that_exited_has_nothing_any_more(
    tmp_path: Path, threads: list[str], *, runs: bool
) -> None:
    a_process(tmp_path, 8, f"/kubepods/pod{UID}/cafe", *threads)
    assert pods_with_processes([UID], tmp_path) == ({UID} if runs else set())


def test_what_is_no_process_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "9").mkdir()
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "cgroup").write_text(f"0::/pod{UID}")
    assert pods_with_processes([UID], tmp_path) == set()


def test_nothing_is_read_where_nobody_is_asked_about(tmp_path: Path) -> None:
    assert pods_with_processes([], tmp_path / "missing") == set()


@pytest.mark.parametrize(
    ("cgroup", "pod"),
    [
        pytest.param(f"/kubepods/besteffort/pod{UID}/cafe", UID, id="cgroupfs"),
        pytest.param(
            f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-cafe.scope", UID, id="systemd"
        ),
        pytest.param("/kubepods/pod" + 32 * "a" + "/cafe", 32 * "a", id="static pod"),
        pytest.param(f"/kubepods/pod{UID}/cafe/pod{OTHER}/b", UID, id="that names another below"),
        pytest.param("/system.slice/nvidia-persistenced.service", None, id="of the node"),
        pytest.param("/machine.slice/libpod-cafe.scope", None, id="container without a pod"),
    ],
)
def test_pod_of_a_process(tmp_path: Path, cgroup: str, pod: str | None) -> None:
    a_process(tmp_path, 8, cgroup, "S")
    assert pods_of_processes([8], tmp_path) == {8: pod}


def test_process_that_is_gone_is_nobody_s(tmp_path: Path) -> None:
    a_process(tmp_path, 8, "/", "S")
    assert pods_of_processes([0, 7, 8], tmp_path) == {8: None}
