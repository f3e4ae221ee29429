"""What a benchmark finds: figures, what they should reach, and one JSON file a subject."""

import dataclasses
import json
import platform
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import psutil

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "bench"
CHECKS: Final[Counter[str]] = Counter()
"""How often each kind of answer or state was found to be right, in this process."""


def checked(what: str) -> None:
    """Note that an answer or a state is right; stands behind the assertions."""
    CHECKS[what] += 1


@dataclass(frozen=True, slots=True)
class Aim:
    """What one figure of a case should reach."""

    figure: str
    """A field of Result."""
    limit: float
    side: Literal["at most", "at least"]

    def shortfall(self, value: float) -> float:
        """Return by which share of the limit the figure misses it; 0 or less where it is met."""
        over = value - self.limit if self.side == "at most" else self.limit - value
        return over / self.limit if self.limit else over


def at_most(figure: str, limit: float) -> Aim:
    return Aim(figure, limit, "at most")


def at_least(figure: str, limit: float) -> Aim:
    return Aim(figure, limit, "at least")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One case; None where the case has no such figure."""

    subject: str
    case: str
    samples: int | None = None
    """How many measurements the figures are made of."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    rate_per_s: float | None = None
    base_p50_ms: float | None = None
    """Median of what the case is compared with: an echo, or the smaller size."""
    more_ms: float | None = None
    """Median of the differences to what the case is compared with, in pairs."""
    ratio: float | None = None
    """p50 over the base's p50, rate over the base's rate, or processor time with what is measured over that without."""
    ratio_to_limit: float | None = None
    """Rate over that of an echo extender with two webhooks that decide nothing."""
    stall_ms: float | None = None
    """Longest gap between two turns of a task that asks for one every millisecond."""
    stall_cpu_ms: float | None = None
    """Most processor time that the loop's thread spent between two such turns."""
    rss_mib: float | None = None
    growth_mib: float | None = None
    """Median resident memory of the run's last tenth over that of its first tenth."""
    scheduling_ms: float | None = None
    """kube-scheduler's serial part for one pod: filter and score, extender calls included."""
    scheduler_cpu_ms: float | None = None
    """Processor time of kube-scheduler for one pod."""
    cpu_ratio: float | None = None
    """What the echo extender's pod costs in processor time, over what this one's costs."""
    apiserver_cpu_ms: float | None = None
    """Processor time of kube-apiserver for one pod."""
    cpu_ms: float | None = None
    """Processor time of all of the control plane's processes for one pod, or of one process for one request."""
    writes_per_pod: float | None = None
    """Write requests to the API server for one pod, Events left out."""
    reads_per_pod: float | None = None
    cpu_s: float | None = None
    """Processor time of our process for the whole of it."""
    core_pct: float | None = None
    """What of one core it takes more than without it."""
    allocation_pct: float | None = None
    """Allocated share of the devices when 130 % of them have been asked for, mean over seeds."""
    allocation_sd: float | None = None
    """Its standard deviation over seeds."""
    over_fgd_pct: float | None = None
    """Points over FGD's on the same workload."""
    first_refusal_pct: float | None = None
    """Demand that had arrived when a pod was refused first, mean over seeds."""
    refused_8: float | None = None
    """Refused pods of eight devices, mean over seeds."""
    refused: str | None = None
    """Refused of asked pods by size: CPU only, share of a device, 1, 2, 4, 8 devices."""
    others_cores: float | None = None
    """Cores that programs which do not belong to the measurement used meanwhile."""
    node_claims: int | None = None
    """NodeClaims of Karpenter that were made for the case's pods."""
    aims: tuple[Aim, ...] = ()


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the sample below which this share of all lies."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def in_ms(samples_s: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile in milliseconds."""
    return statistics.median(samples_s) * 1e3, percentile(samples_s, 0.99) * 1e3


def rss_mib(pid: int) -> float:
    """Return a process's resident memory."""
    return psutil.Process(pid).memory_info().rss / 2**20


def write(subject: str, results: Sequence[Result], directory: Path = RESULTS) -> None:
    """Write a subject's file: where it was measured, and each case."""
    directory.mkdir(parents=True, exist_ok=True)
    content = {
        "subject": subject,
        "machine": _machine(),
        "results": [dataclasses.asdict(result) for result in results],
    }
    path = directory / f"{subject}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> tuple[str, list[Result]]:
    """Return the machine and the results of a subject's file."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content["machine"], [
        Result(**{**result, "aims": tuple(Aim(**aim) for aim in result["aims"])})
        for result in content["results"]
    ]


def _machine() -> str:
    memory_gib = psutil.virtual_memory().total / 2**30
    return (
        f"{_cpu()}, {psutil.cpu_count()} cores, {memory_gib:.0f} GiB; "
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    )


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
