"""Which templates are admitted for pools, and whose pods inherit access by them."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from api.workload_kinds import BUILT_IN_CONTROLLERS, BUILT_IN_KINDS, WorkloadKind


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRules:
    """Kinds, accounts and times."""

    kinds: Mapping[tuple[str, str], WorkloadKind]
    """By group and kind."""
    controllers: frozenset[str] = frozenset(BUILT_IN_CONTROLLERS)
    """Names of users that create objects of templates."""
    validity: dt.timedelta = dt.timedelta(days=90)
    """Time for which a signature counts."""


BUILT_IN_RULES: Final = WorkloadRules(kinds={kind.key: kind for kind in BUILT_IN_KINDS})
