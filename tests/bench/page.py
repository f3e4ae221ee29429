"""docs/performance.md, made of the subjects' files and of the notes that a person writes.

    python -m tests.bench.page

makes it of the files that are there. What has no file stays on the page as it is: a run measures a
few subjects, and build/bench is not in the repository.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tests.bench import report
from tests.bench.report import ROOT, Aim, Result

PAGE = ROOT / "docs" / "performance.md"
NOTES = ROOT / "docs" / "performance-notes.md"


class Section(NamedTuple):
    """How a subject is told."""

    title: str
    text: str
    beside: Mapping[str, str] = MappingProxyType({})
    """Subjects with rows in the same table -> how the cases of each begin there, and no others."""

    def beginnings(self, subject: str) -> dict[str, str]:
        """Return how the cases of each subject in the table begin; the section's own begin with none of the others."""
        return {subject: "", **self.beside}


SECTIONS = {
    "extender": Section(
        "Filter and prioritize",
        "Over HTTPS, beside an aiohttp handler that reads the same request and answers with as many "
        "bytes; both are asked in turn.",
    ),
    "scaling": Section(
        "The same in larger clusters",
        "Two servers, a small and a large cluster, are asked the same in turn; the ratio is of their "
        "medians.",
    ),
    "admission": Section(
        "Admission",
        "64 keep-alive connections over TLS. Each mutates a pod, then validates that very pod with the "
        "note of the patch; 1 reservation a pod. Beside it the same requests to a handler that decides nothing.",
    ),
    "worst": Section(
        "The worst pods",
        "One decision about the pods that cost most of those that were tried, in process, with 1,000 nodes: "
        "each field that is read filled to what the API server can send (3 MB), to just within its bound, and "
        "mixtures of all fields by seed. Stall is the processor time of the decision, its decoding included.",
    ),
    "binding": Section(
        "Bind",
        "The real server beside an API server that counts; one pod at a time, through both webhooks, the "
        "watch, filter and prioritize. Writes and reads are of the pod, its Binding included.",
    ),
    "startup": Section(
        "Start to ready",
        "The real server process, from its start to the first 200 of /readyz, beside a full in-memory API "
        "server that has the other core.",
    ),
    "stall": Section(
        "The longest stall of the event loop",
        "The real server, leading, follows an API server in another process at 5,000 nodes, 40,000 devices "
        "and 20,000 pods. A task of the server asks for a turn every millisecond: a stall is the longest "
        "gap between two turns, and the processor time that the loop spent in one.",
    ),
    "waiting": Section(
        "Why pods wait",
        "`kubectl gpu why` without kubectl and API server: lists that are encoded beforehand, read, and explained with "
        "remedies that are each tried on a copy, for a pod of eight devices in a pool that is three quarters full. Then "
        "the real server, leading, beside an API server in another process, with pods that wait: its processor time, "
        "conditions and Events included, and at the same time that of a leader that explains nothing.",
    ),
    "churn": Section(
        "One day's churn, replayed at speed",
        "100,000 pods are admitted, shown by the watch, filtered, scored, bound and ended; some are refused "
        "after admission, or deleted before they are bound. That no unit has two owners is asserted at "
        "every bind.",
    ),
    "inventory": Section(
        "From labels and features to devices",
        "The inventory beside a full in-memory API server in another process: a cluster whose nodes have "
        "their labels and NodeFeatures, and no device yet. First the cold start, then every node looked at "
        "again in the steady state, then one label of one node at a time, in a small and a large cluster.",
    ),
    "pool_reconcile": Section(
        "What pools run",
        "The controller of the pools' ConfigMaps and DaemonSets, with its informers, beside a full in-memory "
        "API server in another process: the start with nothing there, then every pool and node looked at "
        "again, then one device that changes at a time. Once with a DaemonSet for each pool, once with one for "
        "all (docs/design/0006-one-daemonset-or-many.md).",
    ),
    "operands": Section(
        "Nodes and operands",
        "What the leader does with the operands of all nodes, beside a full in-memory API server in another "
        "process; and the page of the devices' metrics over HTTP, in one process with its client and with "
        "the double of NVML's library, which reads a file at each call.",
    ),
    "placement": Section(
        "Placement",
        "The choice of devices on one node, and strategies on the production trace openb by the published "
        "protocol: pods in random order until 130 % of the devices are asked for, seeds 42 to 51, none ends, what "
        "does not fit is dropped. The deterministic published policies are met to the last digit. Below, FGD and "
        "LeastFragmentation on workloads derived from the trace with other seeds. CPU s is one replay.",
    ),
    "autoscaling": Section(
        "Nodes for waiting pods",
        "One plan in process: pods of eight sizes beside nodes of which every second has a free unit. Then random days "
        "of demand by seed, lived through by the whole server on a double of Karpenter in virtual time, a day compressed "
        "to six minutes: pods in bursts, nodes that take 4 to 20 seconds to come, times in which every launch fails, "
        "empty nodes that go. Nodes too many are NodeClaims asked for beyond the fewest nodes that could hold the "
        "waiting pods (a lower bound), beside nodes on their way and free units; unused ones came after other pods had "
        "ended or had been deleted. At the end of each day no pod, signal, gate, reservation or node is left. Last "
        "`make bench-karpenter`: the server as installed, Karpenter and kube-scheduler unmodified, nodes whose kubelets "
        "and agents are played, all on this machine.",
        {
            "karpenter_50_pods": "50 pods on Karpenter: ",
            "karpenter_100_pods": "100 pods on Karpenter: ",
        },
    ),
    "agent": Section(
        "The agent of a node",
        "The real process, beside kubelet's double, an API server over TLS and a driver without a device, each "
        "in another process: one agent with all roles, and a pool's device plugin alone. It runs as in its "
        "image: compiled modules, no package of developers, a pod's service account. RSS is all that a lone "
        "agent costs its node: anonymous pages, and those of files that nobody else has read.",
    ),
    "kernel_caches": Section(
        "Kernel caches",
        "A layer from a file into the node's content store, until all of it is on the disk, beside `tar xzf` of the same "
        "layer, which leaves it in memory; each in a process of its own, in turn, on one file system. Peak is the "
        "process's most resident memory over what it had before. Pods are those of a real kubelet and containerd, which "
        "starts each with a warm cache and without it, beside another volume that both have (`pytest tests/cluster/node/caches -m figures "
        "--with-cluster --long --write-figures`); more is the median of the differences. "
        "A restart has its API server in the same process.",
        {"kernel_cache_pods": "On a real kubelet: "},
    ),
    "console": Section(
        "The console",
        "What the console makes of a cluster for its viewers, in process: all rows at the start, which are made in steps "
        "(stall is the longest one); a snapshot as bytes, in parts between which others have their turn; the rows and "
        "the event of 25 pods that end or come; 50 streams by loopback, of which each gets each event; and single "
        "questions, each of which is one step.",
    ),
    "node_software": Section(
        "Node software",
        "The real server, leading, beside an API server in another process, with a ClusterPolicy that has every state of "
        "containers: until the last of its objects and labels is written; left alone; with labels of Node Feature "
        "Discovery that go and come; and its resident memory over that of a server without node software.",
    ),
    "cluster": Section(
        "On a real control plane",
        "`make bench-cluster`: an unmodified kube-apiserver, etcd and kube-scheduler; the same pods with no "
        "extender, with an echo extender of the same verbs, with the echo and two webhooks that decide nothing "
        "(the limit: what asking webhooks about a pod leaves), and with ours.",
    ),
}

_COLUMNS = (
    ("samples", "samples", "{:,}"),
    ("p50_ms", "p50 ms", "{:,.2f}"),
    ("p99_ms", "p99 ms", "{:,.2f}"),
    ("rate_per_s", "rate /s", "{:,.0f}"),
    ("base_p50_ms", "base p50 ms", "{:,.2f}"),
    ("more_ms", "more ms", "{:+,.1f}"),
    ("ratio", "ratio", "{:.2f}"),
    ("cpu_ratio", "ratio by CPU", "{:.2f}"),
    ("ratio_to_limit", "ratio to limit", "{:.2f}"),
    ("stall_ms", "stall ms", "{:.1f}"),
    ("stall_cpu_ms", "stall CPU ms", "{:.1f}"),
    ("peak_mib", "peak MiB", "{:.1f}"),
    ("rss_mib", "RSS MiB", "{:.0f}"),
    ("growth_mib", "growth MiB", "{:+.1f}"),
    ("left_over", "left over", "{:,}"),
    ("scheduling_ms", "scheduling ms", "{:.2f}"),
    ("scheduler_cpu_ms", "scheduler CPU ms", "{:.2f}"),
    ("apiserver_cpu_ms", "API server CPU ms", "{:.2f}"),
    ("cpu_ms", "CPU ms", "{:.2f}"),
    ("writes_per_pod", "API writes", "{:.2f}"),
    ("reads_per_pod", "API reads", "{:.2f}"),
    ("cpu_s", "CPU s", "{:.1f}"),
    ("core_pct", "of a core %", "{:.2f}"),
    ("writes", "writes", "{:,}"),
    ("allocation_pct", "allocated %", "{:.2f}"),
    ("allocation_sd", "± over seeds", "{:.2f}"),
    ("over_fgd_pct", "over FGD", "{:+.2f}"),
    ("first_refusal_pct", "first refusal at %", "{:.1f}"),
    ("refused_8", "8-device pods refused", "{:.1f}"),
    ("others_cores", "cores of other programs", "{:.1f}"),
    ("node_claims", "NodeClaims", "{:,}"),
    ("excess_nodes_pct", "nodes too many %", "{:.2f}"),
    ("unused_nodes_pct", "nodes unused %", "{:.1f}"),
    ("refused", "refused of asked: CPU only · share · 1 · 2 · 4 · 8", "{}"),
)
_TITLES = {key: title for key, title, _ in _COLUMNS}


SUBJECTS: Final = frozenset(
    subject for name, section in SECTIONS.items() for subject in section.beginnings(name)
)
"""What has a place on the page."""
_CASE, _AIM, _OUTCOME = "case", "aim", ""
_MACHINE: Final = "Machine: "
_SECTION: Final = "## "

Measured = tuple[str, list[Result]]
"""The machine of a subject's file, and what it found there."""
Row = Mapping[str, str]
"""Title of a column -> cell."""


def write(results: Path = report.RESULTS, page: Path = PAGE, notes: Path = NOTES) -> None:
    """Make the page of all result files, of the notes, and of what stands there without a file."""
    found = {path.stem: report.read(path) for path in sorted(results.glob("*.json"))}
    told = notes.read_text(encoding="utf-8") if notes.exists() else ""
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(text_of(found, notes=told, before=before), encoding="utf-8")


def text_of(found: Mapping[str, Measured], *, notes: str = "", before: str = "") -> str:
    """Return the page, in the order of SECTIONS.

    A section stays as it was before unless one of its subjects is found; then the rows of its other subjects stay.
    """
    lines = [
        "# Performance",
        "",
        "Made by `make bench` and `make bench-cluster` from `build/bench/*.json` and "
        "`docs/performance-notes.md`; do not edit. What has no such file stays as it was measured last.",
        "Every ratio was taken in one run; correctness is asserted before anything is timed.",
        "Ratios hold on other machines; milliseconds do not. The load generator shares the machine.",
    ]
    known = _sections(before)
    for subject, section in SECTIONS.items():
        if body := _section(subject, found, known.get(section.title, ())):
            lines += ["", *body]
    if notes:
        lines += ["", notes.rstrip("\n")]
    return "\n".join([*lines, ""])


def outcome_of(result: Result) -> str:
    """Return whether the aims are met, and by how much each is missed that is not."""
    if not result.aims:
        return ""
    missed = [text for aim in result.aims if (text := _miss(result, aim))]
    return f"not met: {'; '.join(missed)}" if missed else "met"


def aim_text(result: Result) -> str:
    """Return the aims in words."""
    return ", ".join(
        f"{_TITLES[aim.figure]} {'≤' if aim.side == 'at most' else '≥'} {aim.limit:,g}"
        for aim in result.aims
    )


def _miss(result: Result, aim: Aim) -> str:
    value = getattr(result, aim.figure)
    if value is None:
        return f"{_TITLES[aim.figure]} was not measured"
    share = aim.shortfall(value)
    if share <= 0:
        return ""
    if not aim.limit:
        return f"{_TITLES[aim.figure]} {value:,g}"
    return f"{_TITLES[aim.figure]} by {share:.0%}"


def _sections(page: str) -> dict[str, list[str]]:
    """Return the lines of each section by its title, heading included."""
    parts = re.split(f"^{_SECTION}", page, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: f"{_SECTION}{part}".rstrip("\n").split("\n") for part in parts}


def _section(subject: str, found: Mapping[str, Measured], before: Iterable[str]) -> list[str]:
    """Return the lines of the subject's section; none where nothing of it was ever measured."""
    section = SECTIONS[subject]
    beginnings = section.beginnings(subject)
    if not found.keys() & beginnings.keys():
        return list(before)
    kept = [row for row in _rows_of(before) if _subject_of(row, beginnings) not in found]
    machines = {found[one][0] for one in beginnings if one in found}
    if kept:
        machines |= {line[len(_MACHINE) : -1] for line in before if line.startswith(_MACHINE)}
    rows: list[Row] = []
    for one, beginning in beginnings.items():
        _, cases = found.get(one, ("", []))
        rows += [_row(case, beginning) for case in cases]
        rows += [row for row in kept if _subject_of(row, beginnings) == one]
    return [
        f"{_SECTION}{section.title}",
        "",
        section.text,
        "",
        *(f"{_MACHINE}{machine}." for machine in sorted(machines)),
        "",
        *_table(rows),
    ]


def _subject_of(row: Row, beginnings: Mapping[str, str]) -> str:
    """Return whose row it is: the subject with the longest beginning that its case has."""
    having = [one for one in beginnings if row[_CASE].startswith(beginnings[one])]
    return max(having, key=lambda one: len(beginnings[one]))


def _row(case: Result, beginning: str) -> Row:
    row = {_CASE: beginning + case.case}
    for key, title, form in _COLUMNS:
        value = getattr(case, key)
        row[title] = "" if value is None else form.format(value)
    return {**row, _AIM: aim_text(case), _OUTCOME: outcome_of(case)}


def _table(rows: list[Row]) -> list[str]:
    """Return a table of the columns that have a cell, those that only a kept row knows among them."""
    known = dict.fromkeys([*_TITLES.values(), *(title for row in rows for title in row)])
    figures = [
        title
        for title in known
        if title not in {_CASE, _AIM, _OUTCOME} and any(row.get(title) for row in rows)
    ]
    words = [_AIM, _OUTCOME] if any(row.get(_AIM) for row in rows) else []
    titles = [_CASE, *figures, *words]
    rules = ["---", *("--:" for _ in figures), *("---" for _ in words)]
    cells = ([row.get(title, "") for title in titles] for row in rows)
    return [_line(titles), "|" + "|".join(rules) + "|", *map(_line, cells)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rows_of(lines: Iterable[str]) -> list[Row]:
    """Return the rows of a section's table, as `_table` wrote it."""
    table = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line[:1] == "|"]
    if not table:
        return []
    titles, _, *rows = table
    return [dict(zip(titles, row, strict=True)) for row in rows]


if __name__ == "__main__":
    write()
