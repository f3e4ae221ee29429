"""What a benchmark writes: one JSON file a subject, and the page made of all of them."""

import json
import platform
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "performance.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One case; times in milliseconds, None where the case has no such figure."""

    subject: str
    case: str
    p50_ms: float | None = None
    p99_ms: float | None = None
    rate_per_s: float | None = None
    echo_p50_ms: float | None = None
    ratio: float | None = None
    """p50 over the echo's p50, or rate over the echo's rate."""
    rss_mib: float | None = None
    aim: str = ""
    python: str = platform.python_version()
    cpu: str = ""


def percentile(samples: "Sequence[float]", share: float) -> float:
    """Return the sample below which this share of all lies."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def in_ms(samples_s: "Sequence[float]") -> tuple[float, float]:
    """Return the median and the 99th percentile in milliseconds."""
    return statistics.median(samples_s) * 1e3, percentile(samples_s, 0.99) * 1e3


def rss_mib(pid: int) -> float:
    """Return a process's resident memory."""
    return psutil.Process(pid).memory_info().rss / 2**20


def write(subject: str, results: "Sequence[Result]") -> None:
    """Write a subject's file."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(result), "cpu": _cpu()} for result in results]
    path = RESULTS / f"{subject}.json"
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def write_page() -> None:
    """Make docs/performance.md of all result files."""
    lines = [
        "# Performance",
        "",
        "Made by `make bench` from `build/bench/*.json`; do not edit.",
        "Every figure was taken together with its echo in one run: an aiohttp handler on the same TLS "
        "settings that reads the same request and answers with as many bytes.",
        "Ratios hold on other machines; milliseconds do not.",
        "",
        f"Machine: {_cpu()}, {psutil.cpu_count()} cores, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, shared with the load generator; "
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}.",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        lines += ["", f"## {path.stem}", "", *_table(json.loads(path.read_text(encoding="utf-8")))]
    PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")


_COLUMNS = (
    ("case", "case", "{}"),
    ("p50_ms", "p50 ms", "{:.2f}"),
    ("p99_ms", "p99 ms", "{:.2f}"),
    ("rate_per_s", "rate /s", "{:,.0f}"),
    ("echo_p50_ms", "echo p50 ms", "{:.2f}"),
    ("ratio", "ratio", "{:.2f}"),
    ("rss_mib", "RSS MiB", "{:.0f}"),
    ("aim", "aim", "{}"),
)


def _table(rows: list[dict[str, object]]) -> list[str]:
    shown = [column for column in _COLUMNS if any(row[column[0]] not in {None, ""} for row in rows)]
    lines = [
        "| " + " | ".join(title for _, title, _ in shown) + " |",
        "|" + "|".join("---" if key in {"case", "aim"} else "--:" for key, _, _ in shown) + "|",
    ]
    for row in rows:
        cells = ("" if row[key] in {None, ""} else form.format(row[key]) for key, _, form in shown)
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
