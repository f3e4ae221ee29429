"""`gpu-control-plane demo`: the main job on an embedded cluster, narrated and checked.

API server, registry, kube-scheduler, DaemonSet controller, kubelet and the nodes' agents are fakes in this process
(`simulator`); detector and validator run their real reports and files (`demo.node_programs`), and the roles of agents
that serve kernel caches are the real ones (`demo.node_caches`).
The server is the real one, in a process of its own, called over HTTPS with its own certificates, by
the same handlers as in production. Every claim is checked; the exit status tells whether all of
them hold.
"""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp

from demo.chapters import changes as demo_changes
from demo.chapters import device_assignment, operand_switch, placement, waiting_pod
from demo.chapters import pods as demo_pods
from demo.chapters.accounting import accounts
from demo.chapters.autoscaling_chapter import from_zero_and_back
from demo.chapters.bare_node import bare_node
from demo.chapters.kernel_caches import kernel_caches
from demo.cluster import AdmissionDenied, DemoCluster
from demo.objects import FLEET
from demo.story import Story, UntrueError
from kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Chapter = Callable[[Story], Awaitable[None]]

LIMIT_S: Final = 200.0
"""Twice the duration on a busy machine."""

CHAPTERS: "Final[tuple[Chapter, ...]]" = (
    bare_node,
    device_assignment.discovery,
    operand_switch.switched_on,
    operand_switch.switched_off,
    device_assignment.manual_assignment,
    device_assignment.assignment_by_product,
    demo_pods.whole_devices,
    demo_pods.time_slices,
    demo_pods.refusals,
    demo_pods.exhaustion,
    demo_pods.expiry,
    demo_changes.fault,
    demo_changes.reslicing,
    placement.aligned_set,
    placement.what_if,
    placement.fractions,
    accounts,
    kernel_caches,
    waiting_pod.fragmented,
    from_zero_and_back,
    waiting_pod.why,
)


async def run_demo(log_file: Path | None, chapters: "Sequence[Chapter]" = CHAPTERS) -> int:
    """Run all chapters; return 0 if every claim holds."""
    with tempfile.TemporaryDirectory(prefix="gpu-demo-") as folder:
        log = log_file or Path(folder) / "server.log"
        try:
            await _narrate(chapters, Path(folder), log)
        except UntrueError as untrue:
            return _fail(f"NOT TRUE: {untrue}", log)
        except TimeoutError:
            return _fail(f"NOT DONE after {LIMIT_S:g} s", log)
        except (KubeError, AdmissionDenied, aiohttp.ClientError, OSError, ExceptionGroup) as error:
            return _fail(f"BROKEN: {type(error).__name__}: {error}", log)
    say("\nEvery claim above was checked.")
    return 0


async def _narrate(chapters: "Sequence[Chapter]", folder: Path, log: Path) -> None:
    say("In memory: an API server, a registry, a scheduler, Karpenter, kubelets, node agents.")
    say("In a process of its own: the real GPU control plane, called over HTTPS as by Kubernetes.")
    say("The demo needs nothing else, and takes about a minute.")
    async with asyncio.timeout(LIMIT_S), DemoCluster(folder, log, FLEET) as cluster:
        story = Story(cluster, say)
        for chapter in chapters:
            await chapter(story)


def say(text: str = "") -> None:
    """Print a line at once, while the demo runs."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _fail(text: str, log: Path) -> int:
    say(f"\n{text}")
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8").splitlines()[-20:]
    if lines:
        say("The last lines of the server's log:")
        for line in lines:
            say(f"  {line}")
    return 1
