"""Parser of a DCGM exporter's page: the few series that show the health of the node's devices.

The page is text in Prometheus' exposition format from a foreign pod: lines that cannot be parsed are counted
and skipped, and nothing here raises.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MAX_DEVICES: Final = 256
"""Most devices of one node; a page with more is not an exporter's page."""
_BLANK: Final = 9e18
"""DCGM writes values from 0x7ffffffffffffff0 on where it has none (dcgm_fields.h, DCGM_INT64_BLANK)."""
_XID: Final = "XID_ERRORS"
_VOLATILE: Final = "ECC_DBE_VOL_TOTAL"
_AGGREGATE: Final = "ECC_DBE_AGG_TOTAL"
_THERMAL: Final = "THERMAL_VIOLATION"
_XID_COUNT: Final = "XID_ERRORS_COUNT"
_LINE: Final = re.compile(
    rf"^DCGM_(?:FI_DEV_({_XID}|{_VOLATILE}|{_AGGREGATE}|{_THERMAL}|GPU_TEMP)|EXP_({_XID_COUNT}))\b([^\n]*)$",
    re.MULTILINE,
)
_ANY_LINE: Final = re.compile(r"^DCGM_FI_", re.MULTILINE)
_CODE: Final = re.compile(r'[{,][ \t]*xid="([0-9]{1,5})"')
_SAMPLE: Final = re.compile(r"\{(.*)\}[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*")
_UUID: Final = re.compile(r'(?:^|,)[ \t]*(?:UUID|uuid)="([^"\\]{1,96})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """Figures of one device; a counter that the page does not have is None.

    A partitioned or shared device has a line for each part: the largest figure counts.
    """

    xids: frozenset[int] = frozenset()
    """The last Xid error of the device, which DCGM shows until the driver is loaded again, and those that the exporter
    counts: `DCGM_EXP_XID_ERRORS_COUNT` has every Xid of its window, where the exporter is set up to show it."""
    last_xid: int = 0
    """0 for none."""
    volatile_errors: float | None = None
    """Double-bit ECC errors since the driver was loaded."""
    aggregate_errors: float | None = None
    """The same over the device's life."""
    thermal_violation: float | None = None
    """Time of thermal throttling; the unit differs by version."""


@dataclass(frozen=True, slots=True)
class ExporterPage:
    """A parsed page."""

    devices: Mapping[str, DeviceReading]
    """Devices by UUID: every device that one of the series above names."""
    bad_lines: int = 0
    """Lines of these series that cannot be parsed."""
    is_dcgm: bool = False
    """Whether any line is a series of DCGM."""


@dataclass(slots=True)
class _Figures:
    xids: set[int]
    counters: dict[str, float]


def parse_page(text: str) -> ExporterPage:
    """Return the figures of each device; of several lines of one series the largest value counts."""
    found: dict[str, _Figures] = {}
    bad_lines = 0
    for line in _LINE.finditer(text):
        field, count, remaining = line.groups()
        sample = _SAMPLE.fullmatch(remaining)
        uuid = _UUID.search(sample[1]) if sample else None
        value = _number(sample[2]) if sample else None
        if uuid is None or value is None or (uuid[1] not in found and len(found) == MAX_DEVICES):
            bad_lines += 1
            continue
        figures = found.setdefault(uuid[1], _Figures(set(), {}))
        counted = _CODE.search(remaining) if count and value else None
        if counted:
            figures.xids.add(int(counted[1]))
        elif not count:
            _note(figures, field, value)
    return ExporterPage(
        devices={uuid: _reading(figures) for uuid, figures in found.items()},
        bad_lines=bad_lines,
        is_dcgm=_ANY_LINE.search(text) is not None,
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _note(figures: _Figures, name: str, value: float) -> None:
    if value >= _BLANK:
        return
    if name == _XID:
        figures.xids.add(int(value))
    figures.counters[name] = max(value, figures.counters.get(name, 0.0))


def _reading(figures: _Figures) -> DeviceReading:
    return DeviceReading(
        xids=frozenset(figures.xids - {0}),
        last_xid=int(figures.counters.get(_XID, 0)),
        volatile_errors=figures.counters.get(_VOLATILE),
        aggregate_errors=figures.counters.get(_AGGREGATE),
        thermal_violation=figures.counters.get(_THERMAL),
    )
