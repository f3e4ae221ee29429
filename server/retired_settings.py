"""Settings that are none any more: given, each is refused by its name, with what to do.

The chart refuses them in the same words (`chart.schema`, `checks.yaml`).
"""

from typing import Final

_FIXED: Final = "it has a fixed value now; leave it out"

RETIRED: Final = {
    **dict.fromkeys(
        (
            "leadership.lease",
            "mutating_configuration",
            "scheduler",
            "service",
            "tls.secret",
            "validating_configuration",
        ),
        _FIXED,
    ),
}
"""Name, of a setting or of a whole section -> what to do."""
