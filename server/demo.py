"""`gpu-control-plane demo`: the main job on an embedded cluster, narrated, and checked as it goes.

The API server, kube-scheduler and kubelet are doubles in this process (`simulator`). Our server is
the real one, in a process of its own, asked over HTTPS with its own certificates, by the same
handlers as in production. What the text claims is checked; the exit status says whether it held.
"""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server.demo_cluster import DemoCluster
from server.demo_story import Story, Untrue

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_S: Final = 60.0

_CHAPTERS: Final = (
    Story.introduce,
    Story.whole_cards,
    Story.time_slices,
    Story.refusals,
    Story.exhaustion,
    Story.expiry,
    Story.accounts,
)


async def show(log_file: Path | None) -> int:
    """Tell the whole story; return 0 when every claim held."""
    with tempfile.TemporaryDirectory(prefix="gpu-demo-") as folder:
        log = log_file or Path(folder) / "server.log"
        try:
            await _tell(Path(folder), log)
        except (Untrue, TimeoutError, OSError) as error:
            what = str(error) or f"the demo was not through after {LIMIT_S:g} s"
            say(f"\nNOT TRUE: {what}")
            _show_tail(log)
            return 1
    return 0


async def _tell(folder: Path, log: Path) -> None:
    async with asyncio.timeout(LIMIT_S), DemoCluster(folder, log) as cluster:
        story = Story(cluster, say)
        for chapter in _CHAPTERS:
            await chapter(story)


def say(text: str = "") -> None:
    """Print a line at once, so that the story is told while it happens."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _show_tail(log: Path) -> None:
    lines: Sequence[str] = []
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8").splitlines()[-20:]
    if lines:
        say("The server's last words:")
        for line in lines:
            say(f"  {line}")
