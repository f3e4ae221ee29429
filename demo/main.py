"""`gpu-control-plane demo`: the main job on an embedded cluster, narrated and checked.

API server, registry, kube-scheduler, DaemonSet controller, kubelet and the nodes' agents are fakes in this process
(`simulator`); detector and validator run their real reports and files (`demo.node_programs`), and the roles of agents
that serve kernel caches are the real ones (`demo.node_caches`).
The server is the real one, in a process of its own, called over HTTPS with its own certificates, by
the same handlers as in production. Every claim is checked; the exit status tells whether all of
them hold.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo.chapters import changes as demo_changes
from demo.chapters import device_assignment, operand_switch, placement, waiting_pod
from demo.chapters import pods as demo_pods
from demo.chapters.accounting import accounts
from demo.chapters.autoscaling_chapter import from_zero_and_back
from demo.chapters.bare_node import bare_node
from demo.chapters.kernel_caches import kernel_caches
from demo.cluster import DemoCluster
from demo.ending import ended, say
from demo.objects import FLEET
from demo.story import Story

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Chapter = Callable[[Story], Awaitable[None]]

LIMIT_S: Final = 240.0
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
        status = await ended(_narrate(chapters, Path(folder), log), log)
    if status == 0:
        say("\nEvery claim above was checked.")
    return status


async def _narrate(chapters: "Sequence[Chapter]", folder: Path, log: Path) -> None:
    say("In memory: an API server, a registry, a scheduler, Karpenter, kubelets, node agents.")
    say("In a process of its own: the real GPU control plane, called over HTTPS as by Kubernetes.")
    say("The demo needs nothing else, and takes about a minute.")
    async with asyncio.timeout(LIMIT_S), DemoCluster(folder, log, FLEET) as cluster:
        story = Story(cluster, say)
        for chapter in chapters:
            await chapter(story)
