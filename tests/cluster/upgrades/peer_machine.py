"""NVIDIA's upgrade machine, k8s-operator-libs, for nodes of its own in the cluster of ours.

It is told another name of the driver, so that its labels are other ones and neither machine sees the nodes of the other.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.environment import client

if TYPE_CHECKING:
    from asyncio.subprocess import Process

Json = dict[str, Any]

DRIVER_NAME: Final = "peer"
"""In the names of its labels, where the GPU Operator has `gpu`."""
NODE_LABELS: Final = {"test.example.com/driver-of": "peer"}
ANSWER_S: Final = 120


@dataclass(frozen=True)
class PeerMachine:
    """A program that makes a step when it is asked, and then waits."""

    process: "Process"
    names: dict[str, str]
    """Its names of labels and annotations."""
    api: client.ApiClient
    namespace: str

    async def step(self, policy: Json) -> str:
        """Let it look at all of its nodes once; return "done", or why it did not get to the end."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(policy).encode() + b"\n")
        await self.process.stdin.drain()
        return await _line(self.process)

    async def roll_out(self, image: str) -> None:
        """Give the driver another image."""
        labels = {"app.kubernetes.io/component": "nvidia-driver"}
        await self._daemon_set("driver", image, labels, own_labels=labels)

    async def add_validator(self) -> None:
        """Run the pods that it waits for. Ours would not start beside a DaemonSet with this label."""
        labels = {"app": "nvidia-operator-validator"}
        await self._daemon_set("validator", "registry.test/validator:1", labels, own_labels={})

    async def _daemon_set(
        self, name: str, image: str, labels: dict[str, str], *, own_labels: dict[str, str]
    ) -> None:
        spec = {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "OnDelete"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": NODE_LABELS,
                    "containers": [{"name": name, "image": image}],
                },
            },
        }
        body = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name, "labels": own_labels},
            "spec": spec,
        }
        path = f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets/{name}"
        await self.api.patch(path, body, kind="apply", fieldManager="test", force="true")


@contextlib.asynccontextmanager
async def run_peer_machine(
    program: Path, *, kubeconfig: Path, log: Path, api: client.ApiClient, namespace: str
) -> AsyncIterator[PeerMachine]:
    """Run the program; it ends with the context, and with its standard input, whatever ends the tests."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            program,
            *("-kubeconfig", kubeconfig, "-namespace", namespace, "-driver", DRIVER_NAME),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield PeerMachine(process, json.loads(await _line(process)), api, namespace)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _line(process: "Process") -> str:
    assert process.stdout is not None
    async with asyncio.timeout(ANSWER_S):
        line = await process.stdout.readline()
    assert line, "operator-libs has ended: see its log"
    return line.decode().strip()
