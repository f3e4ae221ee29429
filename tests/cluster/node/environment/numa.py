"""Two NUMA nodes with processors of their own, for an unmodified kubelet on a machine that has one and few.

kubelet learns NUMA nodes and processors from /sys/devices/system/node, and which are online from
/sys/devices/system/cpu/online, through cAdvisor. It is started in a mount namespace of its own, where files of ours
lie over these; the mounts go with the process. What kubelet mounts there no container sees: its pods must do without
tokens, secrets and volumes in memory.

Processors that the machine lacks cannot be given to a container, so runc is called through a script that leaves the
set of processors out. kubelet keeps account of them all the same.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.node.environment import paths

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES: Final = 2
CPUS: Final = 16
"""The even ones are on NUMA node 0, the odd ones on NUMA node 1."""
_REAL: Final = Path("/sys/devices/system/node")
_ONLINE: Final = Path("/sys/devices/system/cpu/online")
_PLAYED: Final = paths.STATE / "numa"
_PLAYED_ONLINE: Final = paths.STATE / "cpus-online"
_RUNC: Final = paths.STATE / "runc-without-cpusets"
_SCRIPT: Final = r"""#!/bin/sh
# The resources of an update are on standard input, those of a new container in its bundle.
case " $* " in
*" update "*) sed 's/"cpus":"[^"]*"/"cpus":""/' | {runc} "$@"; exit ;;
*" create "*)
  bundle=
  for one; do [ "$last" = --bundle ] && bundle=$one; last=$one; done
  sed -i 's/"cpus":"[^"]*"/"cpus":""/' "$bundle/config.json" ;;
esac
exec {runc} "$@"
"""


def write_numa_nodes() -> None:
    """Write the directory: processors, dealt out to the nodes, and the machine's memory, on each."""
    for number in range(NODES):
        node = _PLAYED / f"node{number}"
        node.mkdir(parents=True)
        meminfo = (_REAL / "node0" / "meminfo").read_text(encoding="ascii")
        meminfo = meminfo.replace("Node 0", f"Node {number}")
        (node / "meminfo").write_text(meminfo, encoding="ascii")
        distances = ("10" if other == number else "20" for other in range(NODES))
        (node / "distance").write_text(" ".join(distances) + "\n", encoding="ascii")
        for cpu in range(number, CPUS, NODES):
            topology = node / f"cpu{cpu}" / "topology"
            topology.mkdir(parents=True)
            for name, value in (("core_id", cpu), ("physical_package_id", number), ("die_id", 0)):
                (topology / name).write_text(f"{value}\n", encoding="ascii")
    for name in ("online", "possible"):
        (_PLAYED / name).write_text(f"0-{NODES - 1}\n", encoding="ascii")
    _PLAYED_ONLINE.write_text(f"0-{CPUS - 1}\n", encoding="ascii")


def argv_with_numa_nodes(argv: "Sequence[str]") -> list[str]:
    """Return the command that runs a program among these NUMA nodes."""
    mounts = f"mount --bind {_PLAYED} {_REAL} && mount --bind {_PLAYED_ONLINE} {_ONLINE}"
    return ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *argv]


def runc_without_cpusets(runc: Path) -> Path:
    """Write the script; return its path."""
    _RUNC.parent.mkdir(parents=True, exist_ok=True)
    _RUNC.write_text(_SCRIPT.format(runc=runc), encoding="ascii")
    _RUNC.chmod(0o755)
    return _RUNC


def numa_node_of_cpu(cpu: int) -> int:
    return cpu % NODES
