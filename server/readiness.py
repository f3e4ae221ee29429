"""Whether this replica may answer: caches synced, ledger rebuilt, leading, not stopping."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
@dataclass(slots=True)
class Readiness:
    """Named checks; ready when all of them pass."""

    checks: "dict[str, Callable[[], bool]]" = field(default_factory=dict)
    is_stopping: bool = False

    def is_ready(self) -> bool:
        """Say whether requests may be answered now."""
        return not self.is_stopping and all(check() for check in self.checks.values())

    def report(self) -> str:
        """Return a line for each check, as kube-apiserver's /readyz?verbose does."""
        lines = [f"[{'+' if check() else '-'}] {name}" for name, check in self.checks.items()]
        if self.is_stopping:
            lines.append("[-] stopping")
        return "\n".join([*lines, "ready" if self.is_ready() else "not ready", ""])
