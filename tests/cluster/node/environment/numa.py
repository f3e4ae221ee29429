"""Two NUMA nodes for an unmodified kubelet on a machine that has one.

kubelet learns the NUMA nodes from /sys/devices/system/node, through cAdvisor. It is started in a mount
namespace of its own, where a directory of ours lies over that one; the mount goes with the process. What
kubelet mounts there no container sees: its pods must do without tokens, secrets and volumes in memory.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.node.environment import paths

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES: Final = 2
_REAL: Final = Path("/sys/devices/system/node")
_CPUS: Final = Path("/sys/devices/system/cpu")
_PLAYED: Final = paths.STATE / "numa"


def write_numa_nodes() -> None:
    """Write the directory: the machine's processors, dealt out to the nodes, and its memory, on each."""
    cpus = sorted(path for path in _CPUS.glob("cpu[0-9]*") if (path / "topology").is_dir())
    for number in range(NODES):
        node = _PLAYED / f"node{number}"
        node.mkdir(parents=True)
        meminfo = (_REAL / "node0" / "meminfo").read_text(encoding="ascii")
        meminfo = meminfo.replace("Node 0", f"Node {number}")
        (node / "meminfo").write_text(meminfo, encoding="ascii")
        distances = ("10" if other == number else "20" for other in range(NODES))
        (node / "distance").write_text(" ".join(distances) + "\n", encoding="ascii")
        for cpu in cpus[number::NODES]:
            (node / cpu.name).symlink_to(cpu)
    for name in ("online", "possible"):
        (_PLAYED / name).write_text(f"0-{NODES - 1}\n", encoding="ascii")


def argv_with_numa_nodes(argv: "Sequence[str]") -> list[str]:
    """Return the command that runs a program among these NUMA nodes."""
    script = f'mount --bind {_PLAYED} {_REAL} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", *argv]
