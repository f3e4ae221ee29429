"""`gpu-control-plane demo`: the main job on an embedded cluster, narrated, and checked as it goes.

The API server, kube-scheduler, kubelet and the nodes' agents are doubles in this process
(`simulator`). Our server is the real one, in a process of its own, asked over HTTPS with its own
certificates, by the same handlers as in production. What the text claims is checked; the exit status says whether it held.
"""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp

from demo.chapters import changes as demo_changes
from demo.chapters import devices as demo_devices
from demo.chapters import pods as demo_pods
from demo.chapters.accounting import accounts
from demo.cluster import AdmissionDenied, DemoCluster
from demo.story import Story, UntrueError
from kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Chapter = Callable[[Story], Awaitable[None]]

LIMIT_S: Final = 120.0
"""Twice as long as it takes where much else is going on."""

CHAPTERS: "Final[tuple[Chapter, ...]]" = (
    demo_devices.nodes_tell,
    demo_devices.by_annotation,
    demo_devices.by_product,
    demo_pods.whole_devices,
    demo_pods.time_slices,
    demo_pods.refusals,
    demo_pods.exhaustion,
    demo_pods.expiry,
    demo_changes.fault,
    demo_changes.reslicing,
    accounts,
)


async def run_demo(log_file: Path | None, chapters: "Sequence[Chapter]" = CHAPTERS) -> int:
    """Tell the whole story; return 0 when every claim held."""
    with tempfile.TemporaryDirectory(prefix="gpu-demo-") as folder:
        log = log_file or Path(folder) / "server.log"
        try:
            await _tell(chapters, Path(folder), log)
        except UntrueError as untrue:
            return _give_up(f"NOT TRUE: {untrue}", log)
        except TimeoutError:
            return _give_up(f"NOT DONE after {LIMIT_S:g} s", log)
        except (KubeError, AdmissionDenied, aiohttp.ClientError, OSError, ExceptionGroup) as error:
            return _give_up(f"BROKEN: {type(error).__name__}: {error}", log)
    say("\nEvery claim above was checked.")
    return 0


async def _tell(chapters: "Sequence[Chapter]", folder: Path, log: Path) -> None:
    say(
        "In this process: an API server, a kube-scheduler, a kubelet and the nodes' agents, in memory."
    )
    say("Beside it, the real GPU control plane, which they call over HTTPS as Kubernetes does.")
    say("Nothing else is needed; it takes less than a minute.")
    async with asyncio.timeout(LIMIT_S), DemoCluster(folder, log) as cluster:
        story = Story(cluster, say)
        for chapter in chapters:
            await chapter(story)


def say(text: str = "") -> None:
    """Print a line at once, so that the story is told while it happens."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _give_up(text: str, log: Path) -> int:
    say(f"\n{text}")
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8").splitlines()[-20:]
    if lines:
        say("The server's last words:")
        for line in lines:
            say(f"  {line}")
    return 1
