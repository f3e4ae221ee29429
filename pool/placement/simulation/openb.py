"""Pods of the Alibaba trace "openb" as it is published (alibaba/clusterdata, cluster-trace-gpu-v2023)."""

import csv
from typing import TYPE_CHECKING

import msgspec

from pool.placement.fragmentation.target_workload import WHOLE_DEVICE, TargetShape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


class TraceError(Exception):
    """A trace cannot be read: the file, the row and the column are named."""


class TracePod(msgspec.Struct, frozen=True):
    """A row of the list of pods."""

    name: str
    cpu_milli: int
    memory_mib: int
    devices: int
    milli: int
    """Thousandths of each device."""
    models: tuple[str, ...]
    created_s: int | None
    deleted_s: int | None

    @property
    def shape(self) -> TargetShape:
        return TargetShape(self.cpu_milli, self.milli, self.devices, self.models)


def read_pods(lines: "Iterable[str]", file: str) -> list[TracePod]:
    """Read `openb_pod_list_*.csv`; the column `gpu_spec` and those of times may be missing.

    Raises:
        TraceError: a row of it cannot be read.
    """
    needed = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    return [_pod(row) for row in rows(lines, file, needed)]


def tune(
    arrivals: list[TracePod],
    trace: "Sequence[TracePod]",
    *,
    requested: float,
    below: "Callable[[int], int]",
) -> None:
    """Add pods of the trace, or remove some, until the arrivals ask for a demand.

    The rule is that of hkust-adsl/kubernetes-scheduler-simulator (pkg/simulator/core.go).

    Args:
        arrivals: changed in place.
        trace: what is drawn from.
        requested: milli of devices.
        below: draws a number from 0 to below its argument.
    """
    demand = sum(pod.shape.demand for pod in arrivals)
    if demand > requested:
        while demand > requested:
            demand -= arrivals.pop(below(len(arrivals))).shape.demand
        return
    if demand == requested or not any(pod.milli for pod in trace):
        return
    while True:
        pod = trace[below(len(trace))]
        # The published program compares with the demand on one device.
        if demand + pod.milli > requested:
            return
        demand += pod.shape.demand
        arrivals.append(pod)


def in_time(pods: "Iterable[TracePod]") -> "Iterator[tuple[TracePod, float, float | None]]":
    """Yield pods as they arrived, with the time of that and their duration."""
    for pod in sorted(pods, key=lambda pod: (pod.created_s or 0, pod.name)):
        created = pod.created_s or 0
        lasted = None if pod.deleted_s is None else float(max(0, pod.deleted_s - created))
        yield pod, float(created), lasted


class TraceRow(msgspec.Struct, frozen=True):
    """A row, which names itself in errors."""

    cells: "Mapping[str | None, str | None]"
    number_of_line: int
    file: str

    def text(self, column: str) -> str:
        value = self.optional(column)
        if not value:
            raise self.error(column, "is empty")
        return value

    def optional(self, column: str) -> str:
        return (self.cells.get(column) or "").strip()

    def number(self, column: str) -> int:
        text = self.text(column)
        try:
            value = int(text) if text.isdecimal() else float(text)
        except ValueError:
            value = -1.0
        if value < 0 or value != value // 1:
            raise self.error(column, f"is not a whole number of 0 or more: {text[:40]!r}")
        return int(value)

    def optional_number(self, column: str) -> int | None:
        return self.number(column) if self.optional(column) else None

    def error(self, column: str, problem: str) -> TraceError:
        return TraceError(f"{self.file}, row {self.number_of_line}, column {column}: {problem}")


def rows(lines: "Iterable[str]", file: str, needed: "Sequence[str]") -> "Iterator[TraceRow]":
    reader = csv.DictReader(lines)
    try:
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise TraceError(f"{file}, row 1: there is no column {', '.join(missing)}")
        for cells in reader:
            row = TraceRow(cells, reader.line_num, file)
            if None in cells:
                raise TraceError(
                    f"{file}, row {reader.line_num}: there are more cells than columns"
                )
            yield row
    except (csv.Error, UnicodeDecodeError) as error:
        raise TraceError(f"{file}, row {reader.line_num + 1}: {error}") from error


def _pod(row: TraceRow) -> TracePod:
    devices = row.number("num_gpu")
    milli = row.number("gpu_milli") if devices else 0
    if devices > 1 and milli != WHOLE_DEVICE:
        raise row.error(
            "gpu_milli", f"is {milli}; a pod of {devices} devices asks whole ones, {WHOLE_DEVICE}"
        )
    if devices == 1 and not 0 < milli <= WHOLE_DEVICE:
        raise row.error("gpu_milli", f"is {milli}, not 1 to {WHOLE_DEVICE}")
    return TracePod(
        row.text("name"),
        row.number("cpu_milli"),
        row.number("memory_mib"),
        devices,
        milli,
        tuple(filter(None, row.optional("gpu_spec").split("|"))),
        row.optional_number("creation_time"),
        row.optional_number("deletion_time"),
    )
