"""Whether this replica may answer: caches synced, ledger rebuilt, leading."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
@dataclass(slots=True)
class Readiness:
    """Named checks, whether we lead, and whether the process is on its way out.

    Three questions that differ. Admission may be answered by every replica that knows the cluster.
    The scheduler is answered by the leader. And requests should be sent to the leader; to one that
    has handed over also, until its successor is sent requests, or nobody would get them.
    """

    checks: "dict[str, Callable[[], bool]]" = field(default_factory=dict)
    is_leading: "Callable[[], bool] | None" = None
    """None where nobody is elected."""
    is_handing_over: bool = False
    is_stopping: bool = False
    """Nothing new should come in."""

    @property
    def is_draining(self) -> bool:
        """Say whether clients should look for another replica."""
        return self.is_handing_over or self.is_stopping

    def is_synced(self) -> bool:
        """Say whether the cluster is known."""
        return all(check() for check in self.checks.values())

    def leads(self) -> bool:
        """Say whether units may be held and bound by this replica."""
        return self.is_leading is None or self.is_leading()

    def may_answer(self) -> bool:
        """Say whether decisions may be made for the cluster now."""
        return self.leads() and self.is_synced()

    def is_ready(self) -> bool:
        """Say whether requests should be sent here."""
        return not self.is_stopping and (self.is_handing_over or self.leads()) and self.is_synced()

    def report(self) -> str:
        """Return a line for each check, as kube-apiserver's /readyz?verbose does."""
        checks = dict(self.checks)
        if self.is_leading is not None:
            checks["leading"] = self.is_leading
        lines = [f"[{'+' if check() else '-'}] {name}" for name, check in checks.items()]
        if self.is_handing_over:
            lines.append("[+] handing over")
        if self.is_stopping:
            lines.append("[-] stopping")
        return "\n".join([*lines, "ready" if self.is_ready() else "not ready", ""])
