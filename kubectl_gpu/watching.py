"""Answers that are shown once, or again whenever a list that they were made of changes."""

import gc
import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.text import printable
from kubectl_gpu.cluster_lists import ClusterLists
from kubectl_gpu.errors import ListExpiredError
from kubectl_gpu.exit_codes import ANSWERED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kubectl_gpu.cluster_source import ListQuery, ReadableSource
    from kubectl_gpu.kubectl import KubectlProxy, Watch
    from kubectl_gpu.terminal import Terminal

_LEAST_PAUSE_S: Final = 1.0
"""Seconds between two drawings; at least as long as reading and drawing takes, so that half of the time is left."""


@final
@dataclass(frozen=True, slots=True)
class Entries:
    """An answer as text, and the exit code that it stands for."""

    text: str
    code: int


def show(
    source: "ReadableSource",
    terminal: "Terminal",
    draw: "Callable[[ClusterLists], Entries]",
    *,
    has_gaps: bool = True,
) -> int:
    """Show the answer once; return its exit code. Without gaps in the text, they are complained about."""
    lists = ClusterLists(source)
    printed = draw(lists)
    terminal.write(printed.text + (gaps_text(lists.gaps) if has_gaps else ""))
    for gap in () if has_gaps else lists.gaps:
        terminal.print_error(f"partial: {gap}")
    return printed.code


def show_changes(
    source: "KubectlProxy", terminal: "Terminal", draw: "Callable[[ClusterLists], Entries]"
) -> int:
    """Show the answer until the reader goes away or the user ends it; return the last exit code."""
    gc.enable()
    code = ANSWERED
    try:
        while not terminal.is_closed:
            began = time.monotonic()
            lists = ClusterLists(source)
            printed = draw(lists)
            code = printed.code
            terminal.redraw(printed.text + gaps_text(lists.gaps))
            pause = max(_LEAST_PAUSE_S, time.monotonic() - began)
            if not terminal.is_closed:
                await_change(source, lists.versions)
                time.sleep(pause)
    except KeyboardInterrupt:
        pass
    return code


def await_change(source: "KubectlProxy", versions: "dict[ListQuery, str]") -> None:
    """Return once one of the lists has changed since its version, or a watch has ended.

    Raises:
        UnreadableError: the API server cannot be reached any more.
    """
    if not versions:  # the user may list nothing: what was read cannot be watched
        return
    watches: list[Watch] = []
    try:
        for query, version in versions.items():
            watches.append(source.watch(query, version))
        while not _has_changed(watches):
            pass
    finally:
        for watch in watches:
            watch.close()


def gaps_text(gaps: "Iterable[str]") -> str:
    return "".join(f"partial: {printable(gap)}\n" for gap in gaps)


def _has_changed(watches: "list[Watch]") -> bool:
    readable, _, _ = select.select(watches, [], [])
    try:
        return any(_is_change(event) for watch in readable for event in watch.events())
    except ListExpiredError:
        return True


def _is_change(event: bytes) -> bool:
    return b"BOOKMARK" not in event[:32]
