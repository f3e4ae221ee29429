"""What a check finds: a subject, a state, a sentence, and a cure where there is something to do."""

from enum import Enum
from typing import TYPE_CHECKING, Final, final

from kubectl_gpu.answer_forms import Document, Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from telemetry.object_faults import ObjectFault


class Level(Enum):
    """State of a subject."""

    GOOD = "Good"
    WARNING = "Warning"
    """Worth a look; pods get their units all the same, or it could not be checked."""
    FAULT = "Fault"
    """Pods do not get their units, or not all of them."""


@final
class CheckFinding(Entry, frozen=True, kw_only=True):
    """One row."""

    section: str
    subject: str
    level: Level
    text: str
    cure: str = ""
    """A command, or what to do; empty where all is well."""


Place = tuple[str, str]
"""Section and subject."""


def good(place: Place, text: str) -> CheckFinding:
    return finding(Level.GOOD, place, text)


def warning(place: Place, text: str, *, cure: str) -> CheckFinding:
    return finding(Level.WARNING, place, text, cure=cure)


def fault(place: Place, text: str, *, cure: str) -> CheckFinding:
    return finding(Level.FAULT, place, text, cure=cure)


def finding(level: Level, place: Place, text: str, *, cure: str = "") -> CheckFinding:
    section, subject = place
    return CheckFinding(section=section, subject=subject, level=level, text=text, cure=cure)


def of_object(place: Place, found: "ObjectFault") -> CheckFinding:
    """Return the row of an object that is at fault."""
    level = Level.FAULT if found.is_severe else Level.WARNING
    return finding(level, place, found.text, cure=found.cure)


@final
class CheckReport(Document, frozen=True, kw_only=True):
    """Document of the verb `check`."""

    is_good: bool
    """Whether there is no fault; warnings may be."""
    items: tuple[CheckFinding, ...]


_ORDER: Final = (Level.FAULT, Level.WARNING, Level.GOOD)


def report_of(findings: "Iterable[CheckFinding]") -> CheckReport:
    """Return the findings, section by section as they come, with faults first in each."""
    found = list(findings)
    sections = list(dict.fromkeys(item.section for item in found))
    found.sort(key=lambda item: (sections.index(item.section), _ORDER.index(item.level)))
    return CheckReport(
        is_good=all(item.level is not Level.FAULT for item in found), items=tuple(found)
    )
