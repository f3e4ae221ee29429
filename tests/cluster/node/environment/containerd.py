"""containerd, unmodified, with roots of its own; runc and the CNI plugins are Debian's.

runc is called through a script (`numa.runc_without_cpusets`).
"""

import asyncio
import json
import os
import subprocess
from typing import TYPE_CHECKING, final

from tests.cluster.environment import polling
from tests.cluster.node.environment import images, numa, paths

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.cluster.environment import binaries, processes

_READY_S = 120
_CTR_S = 120
_UNKNOWN_TO_CRI = 'labels."io.cri-containerd.image"!=managed'

_RUNTIMES = ("runc", "nvidia")
"""By handler: that of a ClusterPolicy's RuntimeClass, which NVIDIA's container toolkit would add, is runc as well."""

# ptp and no bridge: a veth pair a pod, gone with the pod's network namespace. No masquerade, which
# would want iptables: pods reach each other and this machine, not the world.
_NETWORK = {
    "cniVersion": "1.0.0",
    "name": paths.NAME,
    "plugins": [
        {
            "type": "ptp",
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "dataDir": str(paths.CNI_LEASES),
                "ranges": [[{"subnet": "10.244.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


@final
class Containerd:
    """Its containers live on in their shims whatever happens to it; `sweeping` ends them."""

    def __init__(self, run: "processes.Run", programs: "binaries.NodePrograms") -> None:
        self._programs = programs
        self.process: processes.ChildProcess = run.child(
            "containerd",
            [str(programs.containerd), "--config", str(paths.CONTAINERD_CONFIGURATION)],
            env={
                # containerd looks for its shim there.
                "PATH": f"{programs.containerd_shim.parent}:{os.environ['PATH']}",
                # runc's libseccomp.
                "LD_LIBRARY_PATH": str(programs.debian / "lib"),
            },
        )

    async def start(self) -> None:
        """Start it; returns when it answers."""
        for directory in (paths.CNI_CONFIGURATION, paths.CDI):
            directory.mkdir(parents=True, exist_ok=True)
        network = paths.CNI_CONFIGURATION / "10-ptp.conflist"
        network.write_text(json.dumps(_NETWORK), encoding="utf-8")
        configuration = _configuration(self._programs)
        paths.CONTAINERD_CONFIGURATION.write_text(configuration, encoding="utf-8")
        self.process.start()
        await self.process.wait_ready(self._ready, within=_READY_S)

    async def stop(self) -> None:
        """End it the orderly way; containers run on."""
        await self.process.terminate()

    def kill9(self) -> None:
        self.process.kill9()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def import_image(self, tar: "Path") -> None:
        """Make the images of an OCI layout tar usable by pods, under the names in its index."""
        # Without --local: "no unpack platforms defined".
        await self.ctr("images", "import", "--local", "--snapshotter", "overlayfs", str(tar))
        # CRI learns of them by an event; a pod that comes earlier waits for kubelet's back-off.
        await polling.eventually(self._has_all_images, what=f"CRI knows the images of {tar}")

    async def tag_image(self, image: str, names: "Iterable[str]") -> None:
        """Give an image further names; pods that come seconds later find it."""
        await self.ctr("images", "tag", "--force", image, *names)

    async def ctr(self, *args: str) -> str:
        """Run `ctr` in the namespace of Kubernetes; its output. A failure is an AssertionError."""
        argv = [str(self._programs.ctr), "-a", str(paths.CONTAINERD_SOCKET), "-n", "k8s.io", *args]
        done = await asyncio.to_thread(
            subprocess.run, argv, capture_output=True, text=True, timeout=_CTR_S, check=False
        )
        if done.returncode != 0:
            raise AssertionError(
                f"ctr {' '.join(args)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    async def _has_all_images(self) -> bool:
        return not await self.ctr("images", "list", "--quiet", _UNKNOWN_TO_CRI)

    async def _ready(self) -> str | None:
        try:
            await self.ctr("images", "list", "--quiet")
        except AssertionError as refused:
            return str(refused)
        return None


def _configuration(programs: "binaries.NodePrograms") -> str:
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    runtimes = "".join(
        _runtime(f"{runtime}.containerd.runtimes.{name}", programs) for name in _RUNTIMES
    )
    return f"""\
version = 3
root = '{paths.CONTAINERD_ROOT}'
state = '{paths.CONTAINERD_STATE}'
imports = []
disabled_plugins = ['io.containerd.nri.v1.nri']
[grpc]
address = '{paths.CONTAINERD_SOCKET}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{images.PAUSE}'
[{runtime}]
# Root may lack CAP_SYS_RESOURCE here, and runc would end with "can't get final child's PID from pipe".
restrict_oom_score_adj = true
# Below our state directory everything is found and unmounted at the end.
netns_mounts_under_state_dir = true
enable_cdi = true
cdi_spec_dirs = ['{paths.CDI}', '{paths.USUAL_CDI}']
[{runtime}.cni]
bin_dirs = ['{programs.debian / "cni"}']
conf_dir = '{paths.CNI_CONFIGURATION}'
# The plugin for it would leave a file in libcni's cache for each pod that is not ended in order.
use_internal_loopback = true
{runtimes}"""


def _runtime(table: str, programs: "binaries.NodePrograms") -> str:
    return f"""\
[{table}]
runtime_type = 'io.containerd.runc.v2'
[{table}.options]
BinaryName = '{numa.runc_without_cpusets(programs.debian / "runc")}'
Root = '{paths.CONTAINERD_STATE / "runc"}'
"""
