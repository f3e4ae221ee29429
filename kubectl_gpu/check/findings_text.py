"""Findings for a terminal: a sign for each state, and below it what to do."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from kubectl_gpu.answer_forms import Tone, paint, wrapped
from kubectl_gpu.check.findings import Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubectl_gpu.check.findings import CheckFinding, CheckReport
    from kubectl_gpu.terminal import Terminal

_SIGNS: Final = {Level.GOOD: "√", Level.WARNING: "‼", Level.FAULT: "×"}  # noqa: RUF001  # linkerd's
_ASCII: Final = {Level.GOOD: "ok", Level.WARNING: "!!", Level.FAULT: "XX"}
_TONES: Final = {Level.GOOD: Tone.GOOD, Level.WARNING: Tone.WARNING, Level.FAULT: Tone.BAD}
_MOST: Final = 10
"""Rows of one state in a section; further ones are counted."""


def text_of_report(report: "CheckReport", terminal: "Terminal", *, shows_all: bool) -> str:
    """Return the lines."""
    return "".join(f"{line}\n" for line in _lines(report, terminal, shows_all=shows_all))


def _lines(report: "CheckReport", terminal: "Terminal", *, shows_all: bool) -> "Iterator[str]":
    section = ""
    shown: Counter[tuple[str, Level]] = Counter()
    left_out: Counter[str] = Counter()
    for item in report.items:
        if item.section != section:
            yield from _left_out(left_out.pop(section, 0))
            yield from ("",) if section else ()
            section = item.section
            yield paint(section, Tone.STRONG, terminal)
        shown[section, item.level] += 1
        if shown[section, item.level] > _MOST and not shows_all:
            left_out[section] += 1
            continue
        yield from _row(item, terminal)
    yield from _left_out(left_out.pop(section, 0))
    yield ""
    yield _summary(report, terminal)


def _row(one: "CheckFinding", terminal: "Terminal") -> "Iterator[str]":
    sign = (_SIGNS if terminal.has_unicode else _ASCII)[one.level]
    indent = " " * (len(sign) + 1)
    first, *others = wrapped(f"{one.subject}: {one.text}", terminal, indent=indent, hang="  ")
    yield f"{paint(sign, _TONES[one.level], terminal)} {first.removeprefix(indent)}"
    yield from others
    if one.cure:
        yield from wrapped(f"do: {one.cure}", terminal, indent=f"{indent}  ", hang="  ")


def _left_out(count: int) -> "Iterator[str]":
    if count:
        yield f"  {count} more (--all shows them)"


def _summary(report: "CheckReport", terminal: "Terminal") -> str:
    counts = Counter(item.level for item in report.items)
    faults, warnings = counts[Level.FAULT], counts[Level.WARNING]
    if not faults and not warnings:
        return paint("All is well.", Tone.GOOD, terminal)
    parts = [
        f"{count} {word if count == 1 else word + 's'}"
        for count, word in ((faults, "fault"), (warnings, "warning"))
        if count
    ]
    return paint(", ".join(parts), Tone.BAD if faults else Tone.WARNING, terminal)
