"""docs/performance.md, made of the subjects' files and of the notes that a person writes."""

from pathlib import Path
from typing import NamedTuple

from tests.bench import report
from tests.bench.report import ROOT, Aim, Result

PAGE = ROOT / "docs" / "performance.md"
NOTES = ROOT / "docs" / "performance-notes.md"


class Section(NamedTuple):
    """How a subject is told."""

    title: str
    text: str


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
    "agent": Section(
        "The agent of a node",
        "The real process, beside kubelet's double, an API server over TLS and a driver without a device, each "
        "in another process: one agent with all roles, and a pool's device plugin alone. It runs as in its "
        "image: compiled modules, no package of developers, a pod's service account. RSS is all that a lone "
        "agent costs its node: anonymous pages, and those of files that nobody else has read.",
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
    ("writes", "writes", "{:,}"),
    ("allocation_pct", "allocated %", "{:.2f}"),
    ("allocation_sd", "± over seeds", "{:.2f}"),
    ("over_fgd_pct", "over FGD", "{:+.2f}"),
    ("first_refusal_pct", "first refusal at %", "{:.1f}"),
    ("refused_8", "8-device pods refused", "{:.1f}"),
    ("refused", "refused of asked: CPU only · share · 1 · 2 · 4 · 8", "{}"),
)
_TITLES = {key: title for key, title, _ in _COLUMNS}


def write(results: Path = report.RESULTS, page: Path = PAGE, notes: Path = NOTES) -> None:
    """Make the page of all result files in their section's order, and of the notes."""
    page.write_text(text_of(results, notes), encoding="utf-8")


def text_of(results: Path, notes: Path) -> str:
    """Return the page."""
    found = {path.stem: report.read(path) for path in sorted(results.glob("*.json"))}
    order = [name for name in SECTIONS if name in found]
    machines = sorted({machine for machine, _ in found.values()})
    lines = [
        "# Performance",
        "",
        "Made by `make bench` and `make bench-cluster` from `build/bench/*.json` and "
        "`docs/performance-notes.md`; do not edit.",
        "Every ratio was taken in one run; correctness is asserted before anything is timed.",
        "Ratios hold on other machines; milliseconds do not.",
        "",
        *(f"Machine: {machine}. The load generator shares it." for machine in machines),
    ]
    for name in order:
        section, (_, cases) = SECTIONS[name], found[name]
        lines += ["", f"## {section.title}", "", section.text, "", *_table(cases)]
    if notes.exists():
        lines += ["", notes.read_text(encoding="utf-8").rstrip("\n")]
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


def _table(cases: list[Result]) -> list[str]:
    columns = [one for one in _COLUMNS if any(getattr(case, one[0]) is not None for case in cases)]
    has_aims = any(case.aims for case in cases)
    titles = ["case", *(title for _, title, _ in columns), *(["aim", ""] if has_aims else [])]
    rules = ["---", *("--:" for _ in columns), *(["---", "---"] if has_aims else [])]
    lines = ["| " + " | ".join(titles) + " |", "|" + "|".join(rules) + "|"]
    for case in cases:
        cells = [case.case]
        for key, _, form in columns:
            value = getattr(case, key)
            cells.append("" if value is None else form.format(value))
        cells += [aim_text(case), outcome_of(case)] if has_aims else []
        lines.append("| " + " | ".join(cells) + " |")
    return lines
