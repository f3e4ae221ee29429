"""Line charts as SVG text: panels one below the other, each with axes, grid and a legend by colour and dash."""

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH: Final = 760
_HEIGHT: Final = 280
"""Height of a panel."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 34, 48
_LEGEND_ROW: Final = 18
_LEGEND_COLUMN: Final = 170
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c5c5c")
"""Okabe and Ito's, which people with any colour vision tell apart."""
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
_TICKS: Final = 6
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One named line; points in the order of x."""

    name: str
    points: "Sequence[tuple[float, float]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One coordinate system."""

    title: str
    x_label: str
    lines: "Sequence[Line]"
    is_share: bool = True
    """y is a share, shown in percent; otherwise a number."""
    x_is_share: bool = True
    x_from: float = -math.inf
    """Points before it are left out."""
    y_from_zero: bool = True


def svg(panels: "Sequence[Panel]") -> str:
    """Return the picture; the same panels give the same text."""
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    columns = max(1, (WIDTH - _LEFT) // _LEGEND_COLUMN)
    legend = _LEGEND_ROW * -(-len(names) // columns) + 14
    height = legend + _HEIGHT * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}" font-family="system-ui, sans-serif" font-size="12" fill="#222222">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(names, columns),
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate(0 {legend + number * _HEIGHT})">')
        parts += _panel(panel, names)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _legend(names: "Sequence[str]", columns: int) -> "Iterator[str]":
    for number, name in enumerate(names):
        x = _LEFT + number % columns * _LEGEND_COLUMN
        y = 16 + number // columns * _LEGEND_ROW
        yield f'<line x1="{x}" y1="{y - 4}" x2="{x + 28}" y2="{y - 4}" {_stroke(number)}/>'
        yield f'<text x="{x + 34}" y="{y}">{escape(name)}</text>'


def _panel(panel: Panel, names: "Sequence[str]") -> "Iterator[str]":
    printed = [
        Line(line.name, [point for point in line.points if point[0] >= panel.x_from])
        for line in panel.lines
    ]
    xs = [x for line in printed for x, _ in line.points]
    ys = [y for line in printed for _, y in line.points]
    x_range = _spread(min(xs, default=0.0), max(xs, default=1.0))
    lowest = min([0.0, *ys] if panel.y_from_zero else ys, default=0.0)
    y_range = _rounded(lowest, max(ys, default=1.0))
    yield f'<text x="{_LEFT}" y="20" font-weight="600">{escape(panel.title)}</text>'
    for tick in _ticks(*y_range):
        y = _y(tick, y_range)
        yield f'<line x1="{_LEFT}" y1="{y}" x2="{WIDTH - _RIGHT}" y2="{y}" stroke="#dddddd"/>'
        yield (
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{_text(tick, is_share=panel.is_share)}</text>"
        )
    bottom = _HEIGHT - _BOTTOM
    for tick in _ticks(*x_range):
        x = _x(tick, x_range)
        yield f'<line x1="{x}" y1="{bottom}" x2="{x}" y2="{bottom + 5}" stroke="#888888"/>'
        yield (
            f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">'
            f"{_text(tick, is_share=panel.x_is_share)}</text>"
        )
    yield f'<line x1="{_LEFT}" y1="{bottom}" x2="{WIDTH - _RIGHT}" y2="{bottom}" stroke="#888888"/>'
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    yield (
        f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">{escape(panel.x_label)}</text>'
    )
    for line in printed:
        points = " ".join(f"{_x(x, x_range)},{_y(y, y_range)}" for x, y in line.points)
        yield f'<polyline points="{points}" fill="none" {_stroke(names.index(line.name))}/>'


def _stroke(number: int) -> str:
    colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
    pattern = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{colour}" stroke-width="2" stroke-linejoin="round"{pattern}'


def _rounded(low: float, high: float) -> Range:
    """Return a range of whole steps around the values."""
    low, high = _spread(low, high)
    step = _step(low, high)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _spread(low: float, high: float) -> Range:
    """Return a range that is not empty."""
    return (low, high) if high > low else (low, low + 1.0)


def _step(low: float, high: float) -> float:
    rough = (high - low) / _TICKS
    magnitude = 10.0 ** math.floor(math.log10(rough))
    return magnitude * next(step for step in _STEPS if step * magnitude >= rough * 0.999)


def _ticks(low: float, high: float) -> list[float]:
    step = _step(low, high)
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [number * step for number in range(first, last + 1)]


def _x(value: float, range_: Range) -> float:
    share = (value - range_[0]) / (range_[1] - range_[0])
    return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)


def _y(value: float, range_: Range) -> float:
    share = (value - range_[0]) / (range_[1] - range_[0])
    return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)


def _text(value: float, *, is_share: bool) -> str:
    return f"{value * 100:.4g} %" if is_share else f"{value:.6g}"
