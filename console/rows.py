"""Wire values of the console, as JSON with camelCase names: the rows of a stream, and answers to single questions.

A stream of server-sent events begins with `snapshot` (a `ConsoleSnapshot`); each further event is `change` (a
`ConsoleChange`): sections in which rows by key replace those of the same key, and null removes one. A change without a
section is sent every 15 s, so that a page knows that what it shows still holds. `end` says why the stream ends
(a `StreamEnd`). Fields with their default are left out.

The page's TypeScript types (`web/src/rows.ts`) are generated from this module.
"""

from enum import Enum
from typing import Final, final

import msgspec

SCHEMA: Final = "console.gpu.deckhouse.io/v1alpha1"
"""Schema of all documents here: fields are added, and none is renamed or taken away within a version."""


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What all of them are."""


@final
class PoolRow(Row, frozen=True, kw_only=True):
    """A GPUPool by its name; total = used + reserved + free + withheld, in units."""

    mode: str
    resource: str
    strategy: str
    phase: str
    why: str = ""
    """Message of the condition Ready, where it is not true."""
    access: str = ""
    """Who may use it, in words; empty where it is open to all."""
    total: int = 0
    used: int = 0
    reserved: int = 0
    free: int = 0
    withheld: int = 0
    largest_free: int = 0
    """Most units that are free on one node."""
    waiting: int = 0
    """Pods that wait for its units."""
    nodes: int = 0
    fits: dict[int, int] | None = None
    """Units of a pod (1, 2, 4, 8) -> how many such pods would be placed now, one size at a time; absent where the
    pods of all namespaces may not be listed."""


class NodeRowState(Enum):
    READY = "Ready"
    NOT_READY = "NotReady"
    CORDONED = "Cordoned"
    MISSING = "Missing"
    """There is no Node of the name that the devices have."""
    UNKNOWN = "Unknown"
    """The viewer may not list nodes."""


@final
class NodeRow(Row, frozen=True, kw_only=True):
    """A node with a device, by its name."""

    state: NodeRowState
    products: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()


@final
class DeviceRow(Row, frozen=True, kw_only=True):
    """A GPUDevice by its name."""

    node: str
    address: str
    """PCI address: the order within a node."""
    look: str
    """A word of `DisplayState`: free, reserved, partly used, used, draining, faulted, in no pool."""
    pool: str = ""
    product: str = ""
    units: int = 0
    used: int = 0
    reserved: int = 0
    holders: tuple[str, ...] = ()
    """Pods that have or reserve its units, as namespace/name; those alone that the viewer may see."""


@final
class WaitingRow(Row, frozen=True, kw_only=True):
    """A pod that waits for units, by namespace/name."""

    namespace: str
    name: str
    pool: str
    units: int
    created: str
    position: int = 0
    """Its place among the pool's waiting pods, by priority and age, from 1."""
    priority: int = 0
    reason: str = ""
    """A value of `UnitWaitReason`; empty while it is not known yet."""
    message: str = ""
    remedies: tuple[str, ...] = ()
    """What would help, the least change first; each was tried on a copy. Empty where pods of all namespaces may not
    be listed."""
    scheduler: str = ""
    """kube-scheduler's last refusal."""


@final
class ReservationRow(Row, frozen=True, kw_only=True):
    """A live reservation, by its id."""

    namespace: str = ""
    pod: str = ""
    """Namespace and pod are empty where the viewer may not see the pod, the pod while it has no name yet."""
    pool: str
    node: str = ""
    units: int
    created: str = ""
    expires: str = ""
    """Empty where it does not expire: its Binding is under way."""


@final
class EndedRow(Row, frozen=True, kw_only=True):
    """A reservation that ended, by its id; the last 200 of the last hour."""

    namespace: str = ""
    pod: str = ""
    pool: str
    node: str = ""
    units: int
    end: str
    """bound, expired, released, not_observed or taken_over."""
    at: str


@final
class ShareRow(Row, frozen=True, kw_only=True):
    """What the pods of a namespace have of a pool, in units, by namespace and pool joined by a space."""

    namespace: str
    pool: str
    pods: int = 0
    used: int = 0
    reserved: int = 0
    waiting: int = 0


class RowHealth(Enum):
    GOOD = "good"
    WARNING = "warning"
    """Worth a look."""
    BAD = "bad"
    """Keeps pods from units that are there."""


@final
class HealthRow(Row, frozen=True, kw_only=True):
    """A finding about the control plane, a pool, a node or a device, by its subject."""

    state: RowHealth
    text: str
    cure: str = ""
    pools: tuple[str, ...] = ()
    """Pools that the device may join by a decision, where it waits for one."""


@final
class ViewerRow(Row, frozen=True, kw_only=True):
    """Whose page it is."""

    name: str = ""
    """Empty in `kubectl gpu console`: the user of the kubectl context."""
    namespace: str = ""
    """The one namespace whose pods are seen; empty where `all_namespaces`, or where no pod is seen."""
    all_namespaces: bool = False
    nodes: bool = False
    can_choose_namespace: bool = False
    """Whether the query parameter `namespace` of the stream chooses another one."""
    can_decide: bool = False
    """Whether this console takes decisions on devices; the API server says whether the viewer may make them."""


@final
class PoolHistory(Row, frozen=True, kw_only=True):
    """Figures of a pool over the last hour: one value of each list for each time."""

    at: tuple[int, ...] = ()
    """Seconds since the epoch."""
    used: tuple[int, ...] = ()
    reserved: tuple[int, ...] = ()
    free: tuple[int, ...] = ()
    withheld: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()


@final
class ConsoleSnapshot(Row, frozen=True, kw_only=True):
    """Everything that the viewer may see."""

    schema: str = msgspec.field(default_factory=lambda: SCHEMA)
    version: str
    """Version of the program."""
    origin: str
    """What it is read from, in words."""
    at: str
    since: str
    """Reservations that ended, and history, are known from here on."""
    viewer: ViewerRow
    partial: tuple[str, ...] = ()
    """What the picture is without, and why; a sentence each."""
    pools: dict[str, PoolRow]
    nodes: dict[str, NodeRow]
    devices: dict[str, DeviceRow]
    waiting: dict[str, WaitingRow]
    reservations: dict[str, ReservationRow]
    ended: dict[str, EndedRow]
    shares: dict[str, ShareRow]
    health: dict[str, HealthRow]
    history: dict[str, PoolHistory]


@final
class ConsoleChange(Row, frozen=True, kw_only=True):
    """What changed since the event before."""

    at: str
    partial: tuple[str, ...] | None = None
    pools: dict[str, PoolRow | None] | None = None
    nodes: dict[str, NodeRow | None] | None = None
    devices: dict[str, DeviceRow | None] | None = None
    waiting: dict[str, WaitingRow | None] | None = None
    reservations: dict[str, ReservationRow | None] | None = None
    ended: dict[str, EndedRow | None] | None = None
    shares: dict[str, ShareRow | None] | None = None
    health: dict[str, HealthRow | None] | None = None


@final
class StreamEnd(Row, frozen=True, kw_only=True):
    message: str
    is_login_needed: bool = False
    """Whether the viewer's token is no longer accepted; otherwise the page connects again."""


@final
class HolderEntry(Row, frozen=True, kw_only=True):
    """A pod that has units of a device or of a node."""

    pod: str = ""
    """namespace/name; empty where the viewer may not see it."""
    units: int
    is_reserved: bool = False
    expires: str = ""
    """Time of the end of a reservation that expires."""
    created: str = ""
    """Time of creation of the pod."""


@final
class ConditionEntry(Row, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""


@final
class LinkEntry(Row, frozen=True, kw_only=True):
    """A link to another device of the node."""

    peer: str
    """Name of the GPUDevice, or its UUID where it is none of ours."""
    kind: str


@final
class DeviceDetail(Row, frozen=True, kw_only=True):
    """Answer of /api/v1/devices/NAME."""

    schema: str = msgspec.field(default_factory=lambda: SCHEMA)
    name: str
    row: DeviceRow
    uuid: str = ""
    memory_mib: int = 0
    compute_capability: str = ""
    numa_node: int | None = None
    mig: str = ""
    """Mode and instances, in words; empty for a device without MIG."""
    assignment: str = ""
    """The pool for which it is approved; empty without an approval."""
    links: tuple[LinkEntry, ...] = ()
    last_xid: int = 0
    """0 where none was reported."""
    last_xid_at: str = ""
    conditions: tuple[ConditionEntry, ...] = ()
    holders: tuple[HolderEntry, ...] = ()


@final
class NodeFigures(Row, frozen=True, kw_only=True):
    """Units of the pod's pool on one node."""

    node: str
    total: int = 0
    free: int = 0
    used: int = 0
    reserved: int = 0
    withheld: int = 0
    because: str = ""
    """Why the node does not take the pod; empty where it does."""
    holders: tuple[HolderEntry, ...] = ()


@final
class PodDetail(Row, frozen=True, kw_only=True):
    """Answer of /api/v1/pods/NAMESPACE/NAME, for a pod that waits."""

    schema: str = msgspec.field(default_factory=lambda: SCHEMA)
    name: str
    """namespace/name."""
    row: WaitingRow
    nodes: tuple[NodeFigures, ...] = ()
    """Most free units first; of large pools the first 16."""
    nodes_total: int = 0


@final
class PlacedPods(Row, frozen=True, kw_only=True):
    node: str
    pods: int
    units: int


@final
class WhatIfAnswer(Row, frozen=True, kw_only=True):
    """Answer of /api/v1/what-if?pool=POOL&units=N&times=K&cordon=NODE (the last one repeatable)."""

    schema: str = msgspec.field(default_factory=lambda: SCHEMA)
    pods: int
    """How many were asked about."""
    placed: tuple[PlacedPods, ...] = ()
    fits: bool = False
    """Whether all of them would be placed."""
    message: str
    remedies: tuple[str, ...] = ()
    """What would help the first one that would not be placed."""


@final
class DecisionAnswer(Row, frozen=True, kw_only=True):
    """Answer of POST /api/v1/decisions: what was written, or would be."""

    schema: str = msgspec.field(default_factory=lambda: SCHEMA)
    device: str
    node: str
    version: str
    """Changes with the device's identity, its pool and its approval; a decision with another one is refused."""
    patch: str
    """The merge patch, as JSON."""
    text: str
    """What it brings about."""
    is_dry: bool = False


@final
class ErrorAnswer(Row, frozen=True, kw_only=True):
    """Body of every answer that is not 2xx."""

    error: str
