"""What happens in a run: a list of steps, made of the seed alone, before anything is started.

Pods, nodes and devices are numbers, so that a list means the same in every arena and after some of its
steps were taken out: a step that finds nothing to act upon does nothing.
"""

import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

NODES: Final = 4
DEVICES_PER_NODE: Final = 4
"""Of a node; the last one is sliced."""
SLICES: Final = 4

WHOLE, SLICED, GROWING = 0, 1, 2
"""The pools by number; the last one has no node until its pods need one."""

FIRST_UPGRADE, LAST_UPGRADE = 2, 10
"""Versions of the driver; steps ask for those between them."""

WORKLOAD_SHARE: Final = 0.5
"""Of the steps; where few kinds of faults share the rest, one may undo the other before it is seen."""
_MOST_AT_ONCE: Final = 4


class Kind(StrEnum):
    """What a step does. Those from STATUS_409 on are injections: each is dealt before one repeats."""

    CREATE = "create pods"
    DELETE = "delete a pod"
    FINISH = "finish a pod"
    UNGATE = "ungate a pod"
    WAIT = "wait until somebody serves"

    STATUS_409 = "409"
    STATUS_422 = "422"
    STATUS_429 = "429 with Retry-After"
    STATUS_500 = "500"
    STATUS_503 = "503"
    RESET_BEFORE = "reset before the request"
    RESET_AFTER = "reset after the request"
    ERROR_AFTER = "500 after the request"
    LATE = "request held beyond its time-out, then carried out"
    SWALLOWED = "request held beyond its time-out, then dropped"
    WATCH_CUT = "watch cut"
    WATCH_SLOW = "watch slow"
    WATCH_GONE = "410 to a watch"
    WATCH_GONE_EVENT = "410 inside a watch"
    WATCH_TWICE = "watch event duplicated"
    WATCH_REPLAY = "watch events replayed"
    WATCH_SWAP = "watch events swapped"
    NOT_SERVED = "404 of a kind"
    NEXT_VERSION = "object of the next version"
    KILL = "kill -9"
    KILL_AFTER_RESERVATION = "kill -9 after a reservation"
    KILL_BEFORE_BIND = "kill -9 before the Binding is sent"
    KILL_AFTER_BIND = "kill -9 after the Binding is written"
    KILL_LATE_BIND = "kill -9, and the Binding arrives seconds later"
    KILL_BEFORE_STATUS = "kill -9 before a status is written"
    KILL_BEFORE_NODE = "kill -9 before a node is written"
    KILL_AFTER_NODE = "kill -9 after a node is written"
    STOP = "SIGTERM"
    STOP_AMID_BIND = "SIGTERM amid a bind"
    PAUSE_AMID_BIND = "SIGSTOP amid a bind"
    CLOCK = "wall clock set"
    SCHEDULER_KILLED = "kube-scheduler killed"
    SCHEDULER_RESTARTED = "kube-scheduler restarted"
    API_SERVER_RESTARTED = "API server restarted"
    BACKED_UP = "etcd backed up"
    RESTORED = "etcd restored"
    DELETED_BEFORE_BIND = "pod deleted before its bind"
    DELETED_AMID_BIND = "pod deleted before its Binding"
    DELETED_AFTER_BIND = "pod deleted before its Binding is answered"
    REPLACED_AMID_BIND = "pod replaced by another of its name amid its bind"
    DEVICES_SWAPPED_AMID_BIND = "devices of a node swapped amid a bind to it"
    NODE_GONE = "node gone"
    NODE_BACK = "node back with other devices"
    CORDON = "node cordoned"
    UNCORDON = "node uncordoned"
    DEVICE_FAULTY = "device faulty"
    DEVICE_HEALTHY = "device healthy again"
    DEVICE_MOVED = "device moved to the other pool"
    STRATEGY = "strategy changed"
    TTL = "TTL changed"
    POOL_REPLACED = "pool deleted and created again"
    KARPENTER_KILLED = "Karpenter killed"
    NODE_CLAIM_DELETED = "NodeClaim deleted"
    DRIVER_VERSION = "version of the driver changed"
    UPGRADE_LIMITS = "limits of upgrades changed"
    DRIVER_CRASHES = "driver crashes"


INJECTIONS: Final = tuple(Kind)[tuple(Kind).index(Kind.STATUS_409) :]


def named_like(texts: "Sequence[str]") -> list[Kind]:
    """Return the injections with one of these texts in their name; all of them where there is none."""
    return [kind for kind in INJECTIONS if any(text in kind.value for text in texts or [""])]


KINDS: Final = (
    *("gpupools", "gpudevices", "clusterpolicies", "nvidiadrivers"),
    *("pods", "nodes", "daemonsets", "nodeclaims", "nodepools", "nodefeatures"),
)
"""What the server lists, by resource."""
NEXT_VERSIONED: Final = KINDS[:4]
"""Of which an object may be of the next version; where servers end too, none of them has read an earlier state of it."""

Value = int | float | str | bool
Arguments = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens."""

    kind: Kind
    arguments: Arguments = ()

    def __str__(self) -> str:
        return (
            f"{self.kind.value} {' '.join(str(argument) for argument in self.arguments)}".rstrip()
        )


def make_steps(
    seed: int,
    count: int,
    injections: "Sequence[Kind]" = INJECTIONS,
    *,
    workload_share: float = WORKLOAD_SHARE,
) -> list[Step]:
    """Return `count` steps; the same for the same arguments, and a longer list begins alike."""
    maker = _Maker(random.Random(seed), injections, workload_share)
    return [maker.next() for _ in range(count)]


_TARGETS: Final = (
    *("binding",) * 5,
    *(
        "pod read",
        "pod write",
        "status",
        "status",
        "lease",
        "event",
        "node write",
        "list",
        "secret",
        "eviction",
        "pod deletion",
    ),
)
_BUSY_TARGETS: Final = ("binding", "binding", "status", "lease")
"""There is such a request in every run: what is dealt for the first time is to happen."""
_REQUEST_FAULTS: Final = frozenset(INJECTIONS[: INJECTIONS.index(Kind.WATCH_CUT)])
_WATCHED: Final = ("pods", "pods", "pods", "gpudevices", "gpupools", "nodes")
_KINDS_IN_TURN: "Final[Mapping[Kind, Sequence[str]]]" = {
    Kind.NOT_SERVED: KINDS,
    Kind.NEXT_VERSION: NEXT_VERSIONED,
}
_STRATEGIES: Final = ("BinPack", "Spread", "LeastFragmentation")
_SHAPES: Final = ("1", "1", "1", "1", "2", "2", "3", "1+1", "1+2", "i2+1", "7")
"""Units by container; `i` marks an init container. Seven are more than any node has of either pool."""
_GROWING_SHAPES: Final = ("1", "1", "2", "1+1", "i2+1")
"""What a node of the pool that scales can have."""
_CLOCKS: Final = (3600, -3600, 3600, -3600, 0)
_ENDS_A_SERVER: Final = frozenset(
    {
        Kind.KILL,
        Kind.KILL_AFTER_RESERVATION,
        Kind.KILL_BEFORE_BIND,
        Kind.KILL_AFTER_BIND,
        Kind.KILL_LATE_BIND,
        Kind.KILL_BEFORE_STATUS,
        Kind.KILL_BEFORE_NODE,
        Kind.KILL_AFTER_NODE,
        Kind.STOP,
        Kind.STOP_AMID_BIND,
        Kind.PAUSE_AMID_BIND,
        Kind.API_SERVER_RESTARTED,
        Kind.BACKED_UP,
        Kind.RESTORED,
        Kind.NEXT_VERSION,
    }
)


class _Maker:
    """Deals workload and injections."""

    def __init__(
        self, rng: random.Random, injections: "Sequence[Kind]", workload_share: float
    ) -> None:
        self._rng = rng
        self._injections = injections
        self._workload_share = workload_share
        self._deck: list[Kind] = []
        self._dealt = Counter[Kind]()
        self._pods = 0
        self._owed: list[Step] = []

    def next(self) -> Step:
        if self._owed:
            return self._owed.pop(0)
        if self._pods == 0 or self._rng.random() < self._workload_share:
            return self._workload()
        return self._injection()

    def _workload(self) -> Step:
        rng, draw = self._rng, self._rng.random()
        if self._pods == 0 or draw < 0.45:
            first, count = self._pods, rng.randint(1, _MOST_AT_ONCE)
            self._pods += count
            pool = rng.choices((WHOLE, SLICED, GROWING), (5, 3, 2))[0]
            shapes = _GROWING_SHAPES if pool == GROWING else _SHAPES
            is_important, is_gated = rng.random() < 0.15, rng.random() < 0.1
            return Step(
                Kind.CREATE, (first, count, pool, rng.choice(shapes), is_important, is_gated)
            )
        if draw < 0.8:
            count = rng.randint(1, _MOST_AT_ONCE)
            return Step(Kind.DELETE, (self._some_pod(), count, rng.choice((0, 0, 30))))
        if draw < 0.95:
            return Step(Kind.FINISH, (self._some_pod(), rng.choice(("Succeeded", "Failed"))))
        return Step(Kind.UNGATE, (self._some_pod(),))

    def _some_pod(self) -> int:
        """Return a pod that may be there still: mostly one of the latest."""
        age = min(int(self._rng.expovariate(1 / 12)), self._pods - 1)
        return self._pods - 1 - age

    def _injection(self) -> Step:
        if not self._deck:
            self._deck = list(self._injections)
            self._rng.shuffle(self._deck)
            _order(self._deck)
        kind = self._deck.pop()
        if kind in _ENDS_A_SERVER and self._rng.random() < 0.85:
            # Without it most of a run would go by with nobody there to be tested.
            work = [self._workload() for _ in range(self._rng.randint(3, 8))]
            self._owed = [work[0], Step(Kind.WAIT), *work[1:]]
        return Step(kind, self._arguments(kind))

    def _arguments(self, kind: Kind) -> Arguments:
        rng = self._rng
        self._dealt[kind] += 1
        is_first = self._dealt[kind] == 1
        if kind in _REQUEST_FAULTS:
            targets = _BUSY_TARGETS if is_first else _TARGETS
            return (rng.choice(targets), rng.choice((1, 1, 1, 2, 5)))
        if kind.value.startswith(("watch", "410")):
            return ("pods" if is_first else rng.choice(_WATCHED), rng.choice((1, 2, 5)))
        if kind in _KINDS_IN_TURN:
            kinds = _KINDS_IN_TURN[kind]
            resource = kinds[self._dealt[kind] % len(kinds)]
            return (resource, rng.randrange(12), rng.choice((3, 8, 20)), rng.random() < 0.5)
        maker = _ARGUMENTS.get(kind)
        return () if maker is None else maker(rng)


def _order(deck: list[Kind]) -> None:
    """Have etcd backed up before it is restored; the last card is dealt first."""
    places = sorted(deck.index(kind) for kind in (Kind.RESTORED, Kind.BACKED_UP) if kind in deck)
    for place, kind in zip(places, (Kind.RESTORED, Kind.BACKED_UP), strict=False):
        if len(places) > 1:
            deck[place] = kind


def _a_node(rng: random.Random) -> Arguments:
    return (rng.randrange(NODES),)


def _a_device(rng: random.Random) -> Arguments:
    return (rng.randrange(NODES), rng.randrange(DEVICES_PER_NODE))


def _a_pool(rng: random.Random) -> Arguments:
    return (rng.randrange(2),)


_ARGUMENTS: "Final[Mapping[Kind, Callable[[random.Random], Arguments]]]" = {
    Kind.KILL_LATE_BIND: lambda rng: (rng.choice((1.0, 3.0, 4.0, 6.0)),),
    Kind.PAUSE_AMID_BIND: lambda rng: (rng.choice((1.0, 4.0, 6.0)),),
    Kind.CLOCK: lambda rng: (rng.choice(_CLOCKS),),
    Kind.NODE_GONE: _a_node,
    Kind.NODE_BACK: _a_node,
    Kind.CORDON: _a_node,
    Kind.UNCORDON: _a_node,
    Kind.DEVICE_FAULTY: _a_device,
    Kind.DEVICE_HEALTHY: _a_device,
    Kind.DEVICE_MOVED: _a_device,
    Kind.STRATEGY: lambda rng: (rng.randrange(2), rng.choice(_STRATEGIES)),
    Kind.TTL: lambda rng: (rng.randrange(2), rng.choice(("5s", "15s", "2m"))),
    Kind.POOL_REPLACED: _a_pool,
    Kind.DRIVER_VERSION: lambda rng: (rng.randint(FIRST_UPGRADE + 1, LAST_UPGRADE - 1),),
    Kind.UPGRADE_LIMITS: lambda rng: (rng.choice((0, 1, 2)), rng.choice(("25%", "50%", 1, 3))),
    Kind.DRIVER_CRASHES: lambda rng: (rng.randrange(NODES), rng.choice((2, 10, 20))),
}
