"""Whether this replica may answer: caches synced, ledger rebuilt, leading."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
@dataclass(slots=True)
class Readiness:
    """Named checks, and whether the process is on its way out.

    Two questions that differ while it drains: it wants no new connections, but what still comes in
    on those that are open is answered, since nobody else leads yet.
    """

    checks: "dict[str, Callable[[], bool]]" = field(default_factory=dict)
    is_stopping: bool = False

    def may_answer(self) -> bool:
        """Say whether decisions may be made now."""
        return all(check() for check in self.checks.values())

    def is_ready(self) -> bool:
        """Say whether requests should be sent here."""
        return not self.is_stopping and self.may_answer()

    def report(self) -> str:
        """Return a line for each check, as kube-apiserver's /readyz?verbose does."""
        lines = [f"[{'+' if check() else '-'}] {name}" for name, check in self.checks.items()]
        if self.is_stopping:
            lines.append("[-] stopping")
        return "\n".join([*lines, "ready" if self.is_ready() else "not ready", ""])
