"""docs/performance.md, made of the subjects' files and of the notes that a person writes.

    python -m tests.bench.page

The page has one table. A subject without a file keeps the rows that it has there: a run measures a few subjects, and
build/bench is not in the repository.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import Final, NamedTuple

from tests.bench import report
from tests.bench.report import ROOT, Aim, Result

PAGE: Final = ROOT / "docs" / "performance.md"
NOTES: Final = ROOT / "docs" / "performance-notes.md"
SUBJECTS: Final = {
    "extender": "filter and prioritize over HTTPS, beside an aiohttp handler that reads the same request and answers "
    "with as many bytes; both are asked in turn.",
    "admission": "64 keep-alive connections over TLS, each of which mutates a pod and validates that very pod with the "
    "patch's annotation; beside it a handler that decides nothing.",
    "binding": "the real server beside an API server that counts, one pod at a time, through webhooks, watch, filter "
    "and prioritize.",
    "startup": "the real process from its start to the first 200 of /readyz, beside a full in-memory API server in "
    "another process.",
    "stall": "the longest gap between two turns of the event loop while watch events come in, and while all watches "
    "are gone; stall CPU is the loop's own processor time in it.",
    "placement": "sets of devices on one node, and strategies on the trace openb by the published protocol "
    "(docs/design/0011-which-devices.md): pods in random order until 130 % of the devices are asked for.",
    "console": "rows, snapshots and changes of the console in process, and 50 streams on loopback.",
    "agent": "the real agent beside doubles of kubelet and driver, and a pool's device plugin alone; RSS is all that a "
    "lone agent costs its node.",
    "cluster": "`make bench-cluster`: unmodified kube-apiserver, etcd and kube-scheduler, with no extender, an echo "
    "extender, an echo with two webhooks that decide nothing (the limit), and ours.",
    "karpenter_50_pods": "`make bench-karpenter`: the installed server, Karpenter and kube-scheduler unmodified, nodes "
    "whose kubelets are simulated.",
    "karpenter_100_pods": "the same with 100 pods.",
    "kernel_cache_pods": "pods on a real kubelet and containerd, with a warm cache and without, beside another volume.",
}
"""Name -> how it is measured, in the order of the table."""
_FIGURES: Final = {
    "samples": ("samples", "{:,}"),
    "p50_ms": ("p50 ms", "{:,.2f}"),
    "p99_ms": ("p99 ms", "{:,.2f}"),
    "rate_per_s": ("rate /s", "{:,.0f}"),
    "base_p50_ms": ("base p50 ms", "{:,.2f}"),
    "more_ms": ("more ms", "{:+,.1f}"),
    "ratio": ("ratio", "{:.2f}"),
    "cpu_ratio": ("ratio by CPU", "{:.2f}"),
    "ratio_to_limit": ("ratio to limit", "{:.2f}"),
    "stall_ms": ("stall ms", "{:.1f}"),
    "stall_cpu_ms": ("stall CPU ms", "{:.1f}"),
    "rss_mib": ("RSS MiB", "{:.0f}"),
    "growth_mib": ("growth MiB", "{:+.1f}"),
    "scheduling_ms": ("scheduling ms", "{:.2f}"),
    "scheduler_cpu_ms": ("scheduler CPU ms", "{:.2f}"),
    "apiserver_cpu_ms": ("API server CPU ms", "{:.2f}"),
    "cpu_ms": ("CPU ms", "{:.2f}"),
    "writes_per_pod": ("API writes", "{:.2f}"),
    "reads_per_pod": ("API reads", "{:.2f}"),
    "cpu_s": ("CPU s", "{:.1f}"),
    "core_pct": ("of a core %", "{:.2f}"),
    "allocation_pct": ("allocated %", "{:.2f}"),
    "allocation_sd": ("± over seeds", "{:.2f}"),
    "over_fgd_pct": ("over FGD", "{:+.2f}"),
    "first_refusal_pct": ("first refusal at %", "{:.1f}"),
    "refused_8": ("8-device pods refused", "{:.1f}"),
    "others_cores": ("cores of other programs", "{:.1f}"),
    "node_claims": ("NodeClaims", "{:,}"),
    "refused": ("refused of asked (CPU only, share, 1, 2, 4, 8)", "{}"),
}
"""Field of Result -> title and form of the figure."""
_MACHINE: Final = re.compile(r"^\* ([A-Z]): (.+)\.$", re.MULTILINE)
_TITLES: Final = ("subject", "case", "measured", "aim", "", "on")

Measured = tuple[str, list[Result]]
"""The machine of a subject's file, and its results."""


class Row(NamedTuple):
    """A row of the table; the last field is the machine's name, not its letter."""

    subject: str
    case: str
    measured: str
    aim: str
    outcome: str
    machine: str


def write(results: Path = report.RESULTS, page: Path = PAGE, notes: Path = NOTES) -> None:
    """Make the page of all result files, of the notes, and of the rows that it has without a file."""
    found = {path.stem: report.read(path) for path in sorted(results.glob("*.json"))}
    written = notes.read_text(encoding="utf-8") if notes.exists() else ""
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(text_of(found, notes=written, before=before), encoding="utf-8")


def text_of(found: Mapping[str, Measured], *, notes: str = "", before: str = "") -> str:
    """Return the page; a subject that is not found keeps its rows of the page before."""
    rows = [row for row in rows_of(before) if row.subject not in found]
    for machine, results in found.values():
        rows += [_row(result, machine) for result in results]
    order = list(SUBJECTS)
    rows.sort(key=lambda row: order.index(row.subject))
    machines = {
        name: ascii_uppercase[at]
        for at, name in enumerate(dict.fromkeys(row.machine for row in rows))
    }
    present = {row.subject for row in rows}
    lines = [
        "# Performance",
        "",
        "Made by `make bench` and `make bench-cluster` from `build/bench/*.json` and "
        "`docs/performance-notes.md`; do not edit. What has no such file stays as it was measured last.",
        "Every ratio was taken in one run; correctness is asserted before anything is timed.",
        "Ratios hold on other machines; milliseconds do not. The load generator shares the machine.",
        "",
        "## Figures",
        "",
        *(f"* **{name}**: {how}" for name, how in SUBJECTS.items() if name in present),
        "",
        "Machines:",
        "",
        *(f"* {letter}: {name}." for name, letter in machines.items()),
        "",
        _line(_TITLES),
        "|---|---|---|---|---|---|",
        *(_line((*row[:-1], machines[row.machine])) for row in rows),
    ]
    if notes:
        lines += ["", notes.rstrip("\n")]
    return "\n".join([*lines, ""])


def rows_of(page: str) -> list[Row]:
    """Return the rows of the page's table."""
    machines = dict(_MACHINE.findall(page))
    lines = page.partition(_line(_TITLES))[2].partition("\n\n")[0].splitlines()[2:]
    rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    return [Row._make((*cells[:-1], machines[cells[-1]])) for cells in rows]


def outcome_of(result: Result) -> str:
    """Return whether the aims are met, and by how much each is missed that is not."""
    if not result.aims:
        return ""
    missed = [text for aim in result.aims if (text := _miss(result, aim))]
    return f"not met: {'; '.join(missed)}" if missed else "met"


def aim_text(result: Result) -> str:
    """Return the aims in words."""
    return ", ".join(
        f"{_title(aim.figure)} {'≤' if aim.side == 'at most' else '≥'} {aim.limit:,g}"
        for aim in result.aims
    )


def figures_text(result: Result) -> str:
    """Return the figures that the case has, each with its title."""
    values = ((title, form, getattr(result, key)) for key, (title, form) in _FIGURES.items())
    return " · ".join(
        f"{title} {form.format(value)}" for title, form, value in values if value is not None
    )


def _title(figure: str) -> str:
    return _FIGURES[figure][0]


def _miss(result: Result, aim: Aim) -> str:
    value = getattr(result, aim.figure)
    if value is None:
        return f"{_title(aim.figure)} was not measured"
    share = aim.shortfall(value)
    if share <= 0:
        return ""
    if not aim.limit:
        return f"{_title(aim.figure)} {value:,g}"
    return f"{_title(aim.figure)} by {share:.0%}"


def _row(result: Result, machine: str) -> Row:
    return Row(
        result.subject,
        result.case,
        figures_text(result),
        aim_text(result),
        outcome_of(result),
        machine,
    )


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    write()
