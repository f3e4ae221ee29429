"""`python -m tests.playground.cluster_process FOLDER`, the process that owns the playground: it starts everything, plays the story, and stays.

Whatever ends it, its reaper kills the others (tests/cluster/environment/processes.py).
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, final

import yaml

from api.well_known_labels import INSTANCE_TYPE_LABEL
from demo.demo_folder import demo_folder
from telemetry.logs import configure_logs
from tests.cluster.environment import (
    binaries,
    components,
    control_plane,
    kubectl,
    polling,
    processes,
    whole_cluster,
)
from tests.cluster.joints import from_zero
from tests.playground.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.environment.client import JsonObject

NAMESPACE: Final = "default"
AUDIT_LOG: Final = ("--audit-log-maxsize=100", "--audit-log-maxbackup=1")
"""Of a cluster that may stay for days; megabytes, and files beside the present one."""
UNSIGNED: Final = "unsigned"
ADDRESS: Final = re.compile(r"http://\S+")

TO_TRY: Final = """
The cluster stays until `make playground-down`. In each shell that uses it:

  . {environment}

which is
{exports}

The console, in a browser of this machine (the address is good for one login; `kubectl gpu console` gives another):
  {console}

Five things to try, with the files in {folder}:
  1  What is there now?
       kubectl get clusterpolicies,gpupools,gpudevices,clustergkmcaches,nodes
  2  A pod of two devices gets another node:
       kubectl apply -f {folder}/pair.yaml; kubectl gpu pools; kubectl get nodeclaims -w
  3  A pod for a machine that the pool cannot get is told why it waits:
       kubectl apply -f {folder}/picky.yaml; kubectl gpu why picky; kubectl events --for pod/picky -w
  4  A kernel cache that nobody signed is refused:
       kubectl apply -f {folder}/unsigned.yaml
  5  The pods end, and within a minute their empty nodes go:
       kubectl delete pod --all; kubectl get nodes -w --output-watch-events

Nodes are kwok's: pods run there without containers. Caches are pulled, verified and linked into folders of the pods.
"""


def say(line: str) -> None:
    print(line, flush=True)


@final
class Playground:
    """The processes and files of one cluster."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._nodes = demo_folder()
        """The files of nodes: paths of sockets are short."""
        self._run = processes.Run(state.logs)

    async def live(self) -> NoReturn:
        """Start the cluster, play the story in it, and stay until SIGTERM."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._end, 0)
        with self._failures_said():
            programs = binaries.find_binaries(say)
            say(f"starting Kubernetes {binaries.kubernetes_version()} (10 s)")
            plane = control_plane.ControlPlane(self._run, programs, apiserver_flags=AUDIT_LOG)
            await plane.start()
            await components.KubeControllerManager(plane).start()
            await components.Kwok(plane, binaries.find_kwok(say)).start()
            tool = kubectl.Kubectl(programs.kubectl, plane, self._run.scratch)
            say("starting Karpenter, kube-scheduler and the GPU control plane (20 s)")
            karpenter = binaries.find_karpenter(say)
            async with whole_cluster.running(
                plane, tool, karpenter, Path(self._nodes.name)
            ) as cluster:
                # Nothing is taken apart after a failure: everything goes.
                with self._failures_said():
                    await tool("config", "rename-context", "tests", "playground")
                    variables = self._write_environment(plane.kubeconfig(), programs.kubectl)
                    await self._show(cluster, variables)
                    await asyncio.Event().wait()
        raise AssertionError("the playground stays until it is ended")

    async def _show(self, cluster: whole_cluster.WholeCluster, variables: dict[str, str]) -> None:
        """Play the story, and write what the user can do then."""
        say("\nFrom no node to a running pod with a warm kernel cache, in seconds (20 s):")
        story = from_zero.FromZero(
            cluster=cluster,
            namespace=NAMESPACE,
            folder=self._state.folder,
            say=say,
        )
        await story.play()
        await cluster.images.pack(UNSIGNED, object_bytes=1_000, is_signed=False)
        (signed,) = (item for item in story.examples if item["kind"] == "GKMCache")
        signed["metadata"] |= {"name": UNSIGNED, "namespace": NAMESPACE}
        signed["spec"]["image"] = cluster.images.reference(UNSIGNED)
        self._write_files(signed)
        exports = [f"  export {key}={value}" for key, value in variables.items()]
        text = TO_TRY.format(
            environment=self._state.environment,
            exports="\n".join(exports),
            console=await self._console_address(variables),
            folder=self._state.folder,
        )
        part = self._state.ready.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.rename(self._state.ready)

    async def _console_address(self, variables: dict[str, str]) -> str:
        path = variables["PATH"].replace("$PATH", os.environ["PATH"])
        console = self._run.child(
            "console", ["kubectl", "gpu", "console"], env={**variables, "PATH": path}
        )
        console.start()

        async def missing() -> str | None:
            return None if ADDRESS.search(console.logs()) else "it has printed no address"

        await console.wait_ready(missing, within=polling.PATIENCE_S)
        found: list[str] = ADDRESS.findall(console.logs())
        return found[0]

    def _write_environment(self, kubeconfig: Path, program: Path) -> dict[str, str]:
        """Write kubeconfig, commands and the file that a shell reads; return the variables."""
        link = self._state.folder / "kubeconfig"
        link.symlink_to(kubeconfig)
        commands = self._state.folder / "bin"
        commands.mkdir()
        installed = Path(sys.executable).parent
        for target in (program, installed / "kubectl-gpu", installed / "gpu-control-plane"):
            (commands / target.name).symlink_to(target)
        variables = {"KUBECONFIG": str(link), "PATH": f"{commands}:$PATH"}
        lines = [f"export {key}={value}\n" for key, value in variables.items()]
        self._state.environment.write_text("".join(lines), encoding="utf-8")
        return variables

    def _write_files(self, unsigned: "JsonObject") -> None:
        """Write the files of the things to try, beside those of the story."""
        picky = from_zero.a_pod(NAMESPACE, "picky")
        picky["spec"]["nodeSelector"] = {INSTANCE_TYPE_LABEL: "gpu-8x"}
        files = {
            "pair": from_zero.a_pod(NAMESPACE, "pair", units=2),
            "picky": picky,
            "unsigned": unsigned,
        }
        for name, document in files.items():
            text = yaml.safe_dump(document, sort_keys=False)
            (self._state.folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    @contextlib.contextmanager
    def _failures_said(self) -> "Iterator[None]":
        try:
            yield
        except Exception as error:  # noqa: BLE001  # whatever it is, the cluster cannot stay
            say(f"The playground cannot go on: {error}")
            self._end(1)

    def _end(self, status: int) -> NoReturn:
        self._run.close()
        shutil.rmtree(self._nodes.name, ignore_errors=True)
        os._exit(status)


if __name__ == "__main__":
    configure_logs("error", "Console")
    asyncio.run(Playground(State(Path(sys.argv[1]))).live())
