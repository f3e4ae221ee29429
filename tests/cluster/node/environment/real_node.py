"""A node of real containers: containerd and kubelet, unmodified, against the control plane of the tests."""

import asyncio
import contextlib
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any, final

from tests.cluster.environment import binaries, client, nodes, pods, polling
from tests.cluster.node.environment import containerd, images, kubelet, numa, paths, sweeping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.cluster.environment import control_plane as control_planes
    from tests.cluster.environment import kubectl as kubectls

_READY_S = 120
_SWEPT_S = 60
_PATIENCE_S = 20
"""For the end of a session that was just killed."""



@final
class RealNode:
    """One a machine, by nature: kubelet's device-plugin directory is fixed.

    `kubelet` and `containerd` can be stopped, killed and started again under running pods.
    `close` leaves nothing of it behind, and so does the end of the session, whatever ended it.
    """

    cdi_directory = paths.CDI
    """containerd reads CDI specs here, at each creation of a container."""

    plugins_directory = paths.DEVICE_PLUGINS
    pod_resources_directory = paths.POD_RESOURCES
    """With kubelet.sock of PodResources in it; /var/lib/kubelet/pod-resources leads there."""

    run_directory = paths.RUN
    """Ours to stand in for /run/gpu-control-plane, which pods may use too; so with /var/run/cdi."""

    dev_directory = paths.DEVICES
    """Ours to stand in for /dev; see `make_device`."""

    def __init__(
        self,
        control_plane: "control_planes.ControlPlane",
        programs: "binaries.NodePrograms",
        kubectl: "kubectls.Kubectl",
        *,
        name: str = f"{nodes.REAL_PREFIX}1",
        labels: "Mapping[str, str] | None" = None,
    ) -> None:
        self.name = name
        self._control_plane = control_plane
        self._programs = programs
        self._kubectl = kubectl
        self._sweeper: subprocess.Popen[str] | None = None
        self._imported: set[tuple[Path, int]] = set()
        self.containerd = containerd.Containerd(control_plane.run, programs)
        self.kubelet = kubelet.Kubelet(control_plane, programs, node_name=name, labels=labels or {})

    @property
    def busybox(self) -> "Path":
        """A program that brings `ip`, which not every machine has."""
        return self._programs.debian / "busybox"

    async def start(self) -> None:
        """Start everything; returns when the node is Ready and takes pods."""
        self._sweeper = await asyncio.to_thread(start_sweeper, self._control_plane.run.directory)
        for directory in (paths.DEVICES, paths.RUN, paths.POD_LOGS):
            directory.mkdir(parents=True)
        paths.KUBELET_DEFAULT_ROOT.mkdir(exist_ok=True)
        for name in paths.LINKED:
            (paths.KUBELET_DEFAULT_ROOT / name).symlink_to(paths.KUBELET_ROOT / name)
        numa.write_numa_nodes()
        await self.containerd.start()
        await self._import_own_images()
        await self.kubelet.start()
        await self.wait_ready()

    async def close(self) -> None:
        """End everything and leave nothing behind; fails with what would not go."""
        self.kubelet.kill9()
        self.containerd.kill9()
        if self._sweeper is None:
            return
        await asyncio.to_thread(self._sweeper.communicate, timeout=_SWEPT_S)
        if self._sweeper.returncode != 0:
            log = self._control_plane.run.directory / sweeping.LOG
            raise AssertionError(f"the node is not swept:\n{log.read_text(encoding='utf-8')}")
        await self._delete_objects()

    async def wait_ready(self) -> None:
        """Wait until the node says so itself, and let pods onto it.

        The taint of a new node is taken off here: the controller that would do it also judges
        nodes by their leases, and does not run.
        """
        async with client.open_client(self._control_plane.kubeconfig()) as api:

            async def ready() -> bool:
                with contextlib.suppress(client.ApiRefusedError):
                    status = (await api.get(f"{nodes.NODES}/{self.name}"))["status"]
                    conditions = status.get("conditions", [])
                    return any((e["type"], e["status"]) == ("Ready", "True") for e in conditions)
                return False

            await polling.eventually(ready, what=f"{self.name} Ready", within=_READY_S)
            await api.patch(f"{nodes.NODES}/{self.name}", {"spec": {"taints": None}})

    async def import_image(self, tar: "Path") -> None:
        """Make the images of an OCI layout tar usable by pods, which say imagePullPolicy Never; once."""
        written = tar, tar.stat().st_mtime_ns
        if written not in self._imported:
            await self.containerd.import_image(tar)
            self._imported.add(written)

    def a_pod(
        self,
        name: str,
        command: "Sequence[str]" = ("sleep", "100000"),
        *,
        limits: "Mapping[str, int | str] | None" = None,
        image: str = images.BUSYBOX,
        **spec: Any,
    ) -> dict[str, Any]:
        """Return a pod of one container, `main`, that is bound to this node from the start.

        `spec` goes over the fields of its spec; `nodeName=None` leaves it to a scheduler.
        """
        amounts = {resource: str(amount) for resource, amount in (limits or {}).items()}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.name,
                "restartPolicy": "Never",
                # A shell as process 1 ignores SIGTERM.
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "main",
                        "image": image,
                        "imagePullPolicy": "Never",
                        "command": list(command),
                        "resources": {"limits": amounts},
                    }
                ],
                **spec,
            },
        }

    async def exec(
        self, namespace: str, pod: str, argv: "Sequence[str]", *, container: str = "main"
    ) -> str:
        """Run a command in a container; its output. A failure is a KubectlFailed."""
        done = await self._kubectl("exec", "-n", namespace, pod, "-c", container, "--", *argv)
        return done.stdout

    async def logs(self, namespace: str, pod: str, *, container: str = "main") -> str:
        return (await self._kubectl("logs", "-n", namespace, pod, "-c", container)).stdout

    async def make_device(self, name: str) -> "Path":
        """Make a device node of that name below `dev_directory`: /dev/null under another name."""
        device = self.dev_directory / name
        device.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(device, 0o666 | stat.S_IFCHR, paths.DEVICE)
        device.chmod(0o666)
        return device

    async def _delete_objects(self) -> None:
        """Delete its pods and itself: no other test of the session shall see them."""
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            left = await api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")
            for pod in left["items"]:
                collection = pods.collection(pod["metadata"]["namespace"])
                with contextlib.suppress(client.ApiRefusedError):
                    await api.delete(
                        f"{collection}/{pod['metadata']['name']}",
                        options={"gracePeriodSeconds": 0},
                    )
            await nodes.delete_nodes(api, [self.name])

    async def _import_own_images(self) -> None:
        scratch = self._control_plane.run.scratch
        busybox = self._programs.debian / "busybox"
        applets = await asyncio.to_thread(images.applets_of, busybox)
        for image, command in ((images.PAUSE, ["sleep", "2147483647"]), (images.BUSYBOX, ["sh"])):
            tar = scratch / f"{image.partition('/')[2].partition(':')[0]}.tar"
            images.write_busybox_image(tar, busybox, name=image, applets=applets, command=command)
            await self.containerd.import_image(tar)


def refuse_unfit_machine(
    *, user: int, kubelet_directory: "Path", own: "Path" = paths.STATE
) -> None:
    """Fail with what is to be done where the node cannot or must not run; `user` is a uid.

    Where `own` is there, what kubelet's directory holds is left from an earlier session.
    """
    if user != 0:
        raise AssertionError(
            "tests/cluster/node runs containers and needs root: run it as root, or leave it out "
            "with --ignore=tests/cluster/node"
        )
    if own.exists() or not kubelet_directory.is_dir():
        return
    foreign = sorted(entry.name for entry in kubelet_directory.iterdir())
    if foreign:
        raise AssertionError(
            f"this machine is, or was, a Kubernetes node: {kubelet_directory} holds "
            f"{', '.join(foreign)}. The kubelet of the tests would take its device plugins: "
            "run tests/cluster/node elsewhere, or move that directory away"
        )


def start_sweeper(logs: "Path", *, patience_s: float = _PATIENCE_S) -> "subprocess.Popen[str]":
    with (logs / sweeping.LOG).open("a") as log:
        sweeper = subprocess.Popen(
            [sys.executable, "-m", sweeping.MODULE, str(patience_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(binaries.ROOT)},
            text=True,
            start_new_session=True,
        )
    assert sweeper.stdout is not None
    said = sweeper.stdout.readline().strip()
    if said == sweeping.READY:
        return sweeper
    sweeper.communicate()
    if said.startswith(sweeping.TAKEN):
        raise AssertionError(
            f"another session runs tests/cluster/node (its sweeper is process "
            f"{said.removeprefix(sweeping.TAKEN)}), and a machine has one kubelet: wait for its end"
        )
    raise AssertionError(
        "what an earlier session left on this machine does not go:\n"
        f"{(logs / sweeping.LOG).read_text(encoding='utf-8')}"
    )
