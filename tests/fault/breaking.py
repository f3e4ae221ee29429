"""What is to go wrong next with requests that pass a proxy: armed by the run, used up one by one.

Both proxies share one `Armed`; a fault waits until a request of its target comes by. It is counted
when it is used, not when it is armed.
"""

import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Breakage(Enum):
    """What becomes of a request."""

    STATUS = "answered with a failure, not carried out"
    RESET_BEFORE = "connection reset, not carried out"
    SWALLOWED = "held, then the connection is reset, not carried out"
    LATE = "held, then carried out"
    PASS = "carried out, after the fault's action"
    PASS_THEN_ACT = "carried out, and answered after the fault's action"
    RESET_AFTER = "carried out, then the connection is reset"
    ERROR_AFTER = "carried out, and answered with 500"

    @property
    def acts_after(self) -> bool:
        """Say whether the action comes when the API server has answered."""
        return self in {Breakage.PASS_THEN_ACT, Breakage.RESET_AFTER, Breakage.ERROR_AFTER}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request as it passes a proxy."""

    method: str
    path: str
    query: str = ""
    replica: int = 0
    """Whose request it is, or to whom it goes."""
    namespace: str = ""
    pod: str = ""
    """The pod that a Binding or a bind is about."""
    node: str = ""
    """The node that a Binding names."""

    @property
    def is_watch(self) -> bool:
        return bool(re.search(r"(?:^|&)watch=(?:true|1)(?:&|$)", self.query))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One request of the target fails in one way."""

    name: str
    target: str
    breakage: Breakage
    status: int = 500
    retry_after_s: int | None = None
    held_s: float = 0
    action: "Callable[[Call], Awaitable[None]] | None" = None
    """Done before the request is carried out, or after it (`Breakage.acts_after`)."""
    ends_a_server: bool = False
    """It waits until a server has had time to do something (`Armed.may_end`)."""


NOT_SERVED: Final = Fault(
    name="404 of a kind", target="list or watch", breakage=Breakage.STATUS, status=404
)


@final
class Armed:
    """Faults that wait for their request, oldest first."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        """fault name -> how often it happened"""
        self.may_end: Callable[[], bool] = lambda: True
        """Asked before a server is ended: traps that wait together would otherwise end one after the
        other at its first request."""
        self.on_use: Callable[[Fault, Call], None] = lambda fault, call: None
        """Told of every fault and the request that it befalls."""
        self.not_served: set[str] = set()
        """Resources of which every list and watch is answered with 404."""
        self._waiting: list[Fault] = []

    def arm(self, fault: Fault, times: int = 1) -> None:
        self._waiting.extend([fault] * times)

    def take(self, call: Call) -> Fault | None:
        """Return the fault that befalls this request, and count it."""
        if call.method == "GET" and resource_of(call) in self.not_served:
            return self._use(NOT_SERVED, call)
        target = target_of(call)
        for fault in self._waiting:
            if fault.target == target and (not fault.ends_a_server or self.may_end()):
                self._waiting.remove(fault)
                return self._use(fault, call)
        return None

    def _use(self, fault: Fault, call: Call) -> Fault:
        self.used[fault.name] += 1
        self.on_use(fault, call)
        return fault

    def waiting(self) -> list[Fault]:
        return list(self._waiting)

    def disarm(self) -> None:
        """Forget what has not happened."""
        self._waiting.clear()
        self.not_served.clear()


_TARGETS: Final = tuple(
    (target, method, re.compile(pattern))
    for target, method, pattern in (
        ("binding", "POST", r"/pods/[^/]+/binding$"),
        ("eviction", "POST", r"/pods/[^/]+/eviction$"),
        ("pod deletion", "DELETE", r"/pods/[^/]+$"),
        ("pod read", "GET", r"/namespaces/[^/]+/pods/[^/]+$"),
        ("pod write", "PATCH", r"/pods/[^/]+$"),
        ("status", "PATCH", r"/(?:gpudevices|gpupools)/[^/]+/status$"),
        ("lease", "PUT", r"/leases/"),
        ("lease", "POST", r"/leases$"),
        ("event", "POST", r"/events$"),
        ("event", "PATCH", r"/events/"),
        ("node write", "PATCH", r"/nodes/[^/]+$"),
        ("secret", "GET", r"/secrets/"),
        ("list", "GET", r"/(?:pods|nodes|gpudevices|gpupools|namespaces)$"),
        ("mutate", "POST", r"^/mutate"),
        ("validate", "POST", r"^/validate"),
        ("bind", "POST", r"/bind$"),
        ("filter", "POST", r"/filter$"),
    )
)


def target_of(call: Call) -> str:
    """Return what kind of request this is, as faults name it; `watch RESOURCE` for a watch."""
    if call.is_watch:
        return f"watch {resource_of(call)}"
    for target, method, pattern in _TARGETS:
        if call.method == method and pattern.search(call.path):
            return target
    return "other"


def resource_of(call: Call) -> str:
    """Return the resource that a list or watch is of."""
    return call.path.rpartition("/")[2]
