"""Names of MIG profiles, as NVML gives them, and their form in labels.

    1g.10gb    1g.10gb+me    1g.24gb+me.all    1g.24gb+gfx    1g.24gb-me    1c.2g.20gb

Compute slices and memory of the instance, then attributes: with `+` engines that it has, with `-` those that it lacks.
A compute instance that is smaller than its GPU instance has its own compute slices in front; pools have none. A label
has no plus sign: gpu-feature-discovery, and NVIDIA's layouts, write a dot in its place.
"""

import re
from typing import Final

_INSTANCE: Final = "[0-9]{1,2}g\\.[0-9]{1,4}gb"
_WORD: Final = "[a-z][a-z0-9]*"
_ATTRIBUTES: Final = f"([+-]{_WORD}(\\.{_WORD})*)*"

MIG_PROFILE_PATTERN: Final = f"^{_INSTANCE}{_ATTRIBUTES}$"
"""The profile of a pool: of GPU instances."""
_REPORTED: Final = re.compile(f"([0-9]{{1,2}}c\\.)?{_INSTANCE}{_ATTRIBUTES}", re.ASCII)
_IN_LABEL: Final = re.compile(f"({_INSTANCE})((?:\\.{_WORD})*)((?:-{_WORD})*)", re.ASCII)
_COMPUTE_SLICES: Final = re.compile("([0-9]{1,2})g\\.", re.ASCII)


def reported_profile(text: str) -> str | None:
    """Return a profile that a driver reports, in lower case; None for any other text."""
    profile = text.lower()
    return profile if _REPORTED.fullmatch(profile) else None


def profile_in_label(text: str) -> str | None:
    """Return the profile of its form in a label, such as `1g.24gb.me.all`; None for any other text."""
    found = _IN_LABEL.fullmatch(text)
    if found is None:
        return None
    instance, engines, absent = found.groups()
    return f"{instance}{engines.replace('.', '+', 1)}{absent}"


def label_form(profile: str) -> str:
    """Return a profile as a label has it."""
    return profile.replace("+", ".")


def compute_slices(profile: str) -> int | None:
    """Return the compute slices of a GPU instance of the profile, at least one; None for no profile."""
    found = _COMPUTE_SLICES.search(profile)
    return max(1, int(found[1])) if found else None
