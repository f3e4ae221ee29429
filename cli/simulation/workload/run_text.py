"""Reports of workload simulations as a table, as pictures, and as one page."""

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Final

from cli.simulation.workload import chart
from cli.simulation.workload.run_report import IDLE_TEXTS, Axis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cli.simulation.workload.run_report import Point, RunReport, StrategyReport

_ZOOM_FROM: Final = 0.8
"""Arrived demand from which strategies differ; a panel shows it enlarged."""
_FIRST_SIZES: Final[tuple[str, ...]] = ("cpu only", "share")
_X_LABELS: Final = {
    Axis.ARRIVED: "arrived demand, share of the cluster's devices",
    Axis.TIME: "hours",
}
_STYLE: Final = (
    "body{font:14px system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}"
    "td,th{border:1px solid #ccc;padding:.3em .7em;text-align:right}"
    "td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}"
)


def text_of(report: "RunReport") -> str:
    """Return the tables for a terminal."""
    lines = [_headline(report)]
    for rows in _tables(report):
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines.append("")
        lines += [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines) + "\n"


def svg_of(report: "RunReport") -> str:
    """Return the picture: allocation and fragmentation, and waiting pods for a workload in time."""
    panels = [
        _panel(report, "Allocated devices", lambda point: point.allocated),
        *_end_panels(report),
        _panel(
            report,
            "Fragmented devices: what the next pod cannot be expected to use",
            lambda point: point.fragmented,
        ),
    ]
    if report.axis is Axis.TIME:
        waiting = _panel(report, "Waiting pods", lambda point: float(point.waiting))
        panels.append(replace(waiting, is_share=False))
    return chart.svg(panels)


def html_of(report: "RunReport") -> str:
    """Return one page with the tables and the picture, without references to anything else."""
    tables = "\n".join(_html_table(rows) for rows in _tables(report))
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Simulated workload'
        f"</title><style>{_STYLE}</style></head><body>\n<h1>Simulated workload</h1>\n"
        f"<p>{escape(_headline(report)).replace(chr(10), '<br>')}</p>\n{tables}\n<ul>{notes}</ul>\n{svg_of(report)}"
        "</body></html>\n"
    )


def _headline(report: "RunReport") -> str:
    return (
        f"{report.workload}: {report.pods} pods, which ask for {report.demand:.1%} of the cluster's devices\n"
        f"{report.cluster}: {report.devices} devices on {report.nodes} nodes"
    )


def _tables(report: "RunReport") -> "Iterator[list[list[str]]]":
    yield _summary(report)
    yield _by_size(report)
    if report.axis is Axis.ARRIVED:
        yield _idle(report)
    if any(strategy.hours_by_pool for strategy in report.strategies):
        yield _hours(report)


def _summary(report: "RunReport") -> list[list[str]]:
    is_time = report.axis is Axis.TIME
    if is_time:
        head = ["strategy", "mean allocated", "peak", "mean fragmented", "not placed"]
        head += ["waited", "mean wait", "longest wait"]
    else:
        head = ["strategy", "allocated", "fragmented", "not placed", "first refusal at"]
    rows = [head]
    for item in report.strategies:
        row = [item.strategy, _percent(item.allocated)]
        row += [_percent(item.peak_allocated)] if is_time else []
        row += [_percent(item.fragmented), f"{item.not_placed} of {item.pods}"]
        if is_time:
            row += [str(item.waited), _duration(item.mean_wait_s), _duration(item.longest_wait_s)]
        else:
            row.append("never" if item.first_refusal is None else _percent(item.first_refusal))
        rows.append(row)
    return rows


def _by_size(report: "RunReport") -> list[list[str]]:
    sizes = {size for item in report.strategies for size in item.by_size}
    ordered = [size for size in _FIRST_SIZES if size in sizes]
    ordered += sorted(sizes - set(_FIRST_SIZES), key=int)
    rows = [["not placed, by devices", *ordered]]
    for entry in report.strategies:
        found = (entry.by_size.get(size) for size in ordered)
        rows.append(
            [
                entry.strategy,
                *(f"{item.not_placed} of {item.asked}" if item else "" for item in found),
            ]
        )
    return rows


def _idle(report: "RunReport") -> list[list[str]]:
    causes = [
        cause for cause in IDLE_TEXTS if any(item.idle.get(cause) for item in report.strategies)
    ]
    rows = [["idle at the end, by cause", *(IDLE_TEXTS[cause] for cause in causes)]]
    rows += [
        [item.strategy, *(_percent(item.idle.get(cause, 0.0)) for cause in causes)]
        for item in report.strategies
    ]
    return rows


def _hours(report: "RunReport") -> list[list[str]]:
    pools = sorted({pool for item in report.strategies for pool in item.hours_by_pool})
    names = sorted({name for item in report.strategies for name in item.hours_by_namespace})
    head = ["device-hours"]
    head += [f"pool {pool} busy / idle" for pool in pools]
    head += [f"namespace {name}" for name in names]
    rows = [head]
    for item in report.strategies:
        row = [item.strategy]
        for pool in pools:
            hours = item.hours_by_pool.get(pool)
            row.append(f"{hours.busy:.1f} / {hours.idle or 0.0:.1f}" if hours else "")
        for name in names:
            hours = item.hours_by_namespace.get(name)
            row.append(f"{hours.busy:.1f}" if hours else "")
        rows.append(row)
    return rows


def _end_panels(report: "RunReport") -> "Iterator[chart.Panel]":
    ends = [strategy.curve[-1].x for strategy in report.strategies if strategy.curve]
    if report.axis is Axis.TIME or not ends or max(ends) <= _ZOOM_FROM:
        return
    yield _panel(
        report,
        f"Allocated devices from {_ZOOM_FROM:.0%} of arrived demand on",
        lambda point: point.allocated,
        x_from=_ZOOM_FROM,
    )


def _panel(
    report: "RunReport",
    title: str,
    value: "Callable[[Point], float]",
    *,
    x_from: float = 0.0,
) -> chart.Panel:
    lines = [
        chart.Line(
            _name(strategy, report.strategies),
            [(point.x, value(point)) for point in strategy.curve],
        )
        for strategy in report.strategies
    ]
    return chart.Panel(
        title=title,
        x_label=_X_LABELS[report.axis],
        lines=lines,
        x_is_share=report.axis is Axis.ARRIVED,
        x_from=x_from,
        y_from_zero=x_from == 0.0,
    )


def _name(report: "StrategyReport", all_: "Sequence[StrategyReport]") -> str:
    alike = sum(item.strategy == report.strategy for item in all_)
    return f"{report.strategy}, seed {report.seed}" if alike > 1 else report.strategy


def _html_table(rows: list[list[str]]) -> str:
    head, *body = rows
    lines = ["<table>", f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in body]
    return "\n".join([*lines, "</table>"])


def _percent(share: float) -> str:
    return f"{share * 100:.2f} %"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
