"""What is read off a turn: kube-scheduler's own histograms, processor time of each process, API writes."""

import collections
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
import psutil

from tests.cluster.system.installation import Metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.cluster.environment.audit import Write

_POINTS = ("PreFilter", "Filter", "PreScore", "Score", "Reserve", "PreBind", "Bind", "PostBind")
_EVENTS = "events"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of one setup."""

    rate_per_s: float
    """Pods over the time from the first creation to the last binding."""
    bound_p50_ms: float
    bound_p99_ms: float
    """From the creation of a pod to its binding, which under load is mostly waiting."""
    algorithm_ms: float
    """kube-scheduler's filter and score for one pod, extender calls included: the serial part."""
    attempts_per_pod: float
    points_ms: "Mapping[str, float]" = field(default_factory=dict)
    """Extension point -> its time for one pod, without extenders."""
    cpu_ms: "Mapping[str, float]" = field(default_factory=dict)
    """Process -> processor time for one pod."""
    writes: "Mapping[str, float]" = field(default_factory=dict)
    """`verb resource` -> how many of them for one pod, Events left out."""

    share_as_held: float | None = None
    """Of pods that were bound to the node that was held for them."""
    share_taken_over: float | None = None
    """Of pods whose units another pod took before the watch had shown them."""

    @property
    def all_cpu_ms(self) -> float:
        """Processor time of the control plane's processes for one pod."""
        return sum(spent for process, spent in self.cpu_ms.items() if process != "load")

    @property
    def writes_per_pod(self) -> float:
        return sum(self.writes.values())


class CpuMeter:
    """Processor time of processes from construction to `per_pod`; of a later one, from its start."""

    def __init__(self, pids: "Mapping[str, int]") -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._before = {name: _cpu_s(item) for name, item in self._processes.items()}

    def follow(self, name: str, pid: int) -> None:
        """Count this process too, which has started since; one that is counted already stays so."""
        if name not in self._processes:
            self._processes[name] = psutil.Process(pid)
            self._before[name] = 0.0

    def per_pod(self, count: int) -> dict[str, float]:
        """Return milliseconds of each process."""
        return {
            name: (_cpu_s(item) - self._before[name]) / count * 1e3
            for name, item in self._processes.items()
        }


async def scheduler_metrics(url: str) -> Metrics:
    """Read a kube-scheduler's /metrics."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/metrics", ssl=False) as answer,
    ):
        assert answer.status == 200, f"{url}/metrics said {answer.status}"
        return Metrics(await answer.text())


def algorithm_ms(metrics: Metrics, count: int) -> float:
    """Return the time that filter and score took for one pod, all its attempts together."""
    return metrics.total("scheduler_scheduling_algorithm_duration_seconds_sum") / count * 1e3


def points_ms(metrics: Metrics, count: int) -> dict[str, float]:
    """Return the time of the profile's plugins for one pod, by extension point."""
    name = "scheduler_framework_extension_point_duration_seconds_sum"
    return {point: metrics.total(name, extension_point=point) / count * 1e3 for point in _POINTS}


def attempts_per_pod(metrics: Metrics, count: int) -> float:
    return metrics.total("scheduler_schedule_attempts_total") / count


def writes_per_pod(writes: "Iterable[Write]", count: int) -> dict[str, float]:
    """Return how many writes of each kind one pod cost; refused ones are writes too."""
    kinds = collections.Counter(
        f"{write.verb} {write.resource}" for write in writes if write.resource != _EVENTS
    )
    return {kind: times / count for kind, times in kinds.most_common() if times >= count / 100}


def median_turn(turns: "Sequence[Turn]") -> Turn:
    """Return the figure-wise median."""

    def middle(values: "Iterable[float]") -> float:
        return statistics.median(values)

    def middles(maps: "Sequence[Mapping[str, float]]") -> dict[str, float]:
        keys = dict.fromkeys(key for map_ in maps for key in map_)
        return {key: middle(map_.get(key, 0.0) for map_ in maps) for key in keys}

    return Turn(
        rate_per_s=middle(turn.rate_per_s for turn in turns),
        bound_p50_ms=middle(turn.bound_p50_ms for turn in turns),
        bound_p99_ms=middle(turn.bound_p99_ms for turn in turns),
        algorithm_ms=middle(turn.algorithm_ms for turn in turns),
        attempts_per_pod=middle(turn.attempts_per_pod for turn in turns),
        points_ms=middles([turn.points_ms for turn in turns]),
        cpu_ms=middles([turn.cpu_ms for turn in turns]),
        writes=middles([turn.writes for turn in turns]),
        share_as_held=None
        if any(turn.share_as_held is None for turn in turns)
        else middle(turn.share_as_held or 0.0 for turn in turns),
        share_taken_over=None
        if any(turn.share_taken_over is None for turn in turns)
        else middle(turn.share_taken_over or 0.0 for turn in turns),
    )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
