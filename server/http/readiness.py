"""Readiness of this replica: caches synced, reservations rebuilt, leading."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
@dataclass(slots=True)
class Readiness:
    """Named checks, leadership, and the state of a shutdown.

    Three questions differ. Every synced replica may answer admission. Only the leader answers the scheduler.
    Requests should go to the leader, and to a replica that has handed over until they reach its successor:
    otherwise they would reach none.
    """

    checks: "dict[str, Callable[[], bool]]" = field(default_factory=dict)
    is_leading: "Callable[[], bool] | None" = None
    """None without leader election."""
    is_handing_over: bool = False
    is_stopping: bool = False
    """No new requests should arrive."""

    @property
    def is_draining(self) -> bool:
        """Return whether clients should connect to another replica."""
        return self.is_handing_over or self.is_stopping

    def is_synced(self) -> bool:
        return all(check() for check in self.checks.values())

    def leads(self) -> bool:
        """Return whether this replica may reserve and bind units."""
        return self.is_leading is None or self.is_leading()

    def may_answer(self) -> bool:
        """Return whether this replica may decide for the cluster now."""
        return self.leads() and self.is_synced()

    def is_ready(self) -> bool:
        """Return whether requests should be sent here."""
        return not self.is_stopping and (self.is_handing_over or self.leads()) and self.is_synced()

    def may_take_over(self) -> bool:
        """Return whether this replica leads or stands by with all caches synced."""
        return not self.is_stopping and self.is_synced()

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
