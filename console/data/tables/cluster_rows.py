"""Rows of a cluster, made again for what has changed: the cost of a step grows with that, and not with the cluster."""

from collections import deque
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar, final

from console.data.explanations.joinable_devices import JoinableDevices
from console.data.explanations.waits import IDLE_S, WaitExplanations
from console.data.tables import health_rows
from console.data.tables.device_rows import device_row, node_row
from console.data.tables.pod_rows import reservation_row, units_of_pod, wait_entry
from console.data.tables.pool_rows import PoolRows
from console.data.tables.table import RowTable
from console.data.tables.waiting_pods import WaitingPods
from console.rows import PoolHistory, PoolRow, ShareRow

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from api.names import DeviceName, NodeName, PodUid, PoolName, ReservationId
    from console.data.state.cluster import ClusterState
    from console.data.tables.health_rows import HealthEntry
    from console.data.tables.pod_rows import SharePart
    from console.data.tables.table import TableRow

HISTORY_EVERY_S: Final = 10.0
HISTORY_SAMPLES: Final = 360
"""An hour."""


@final
class PoolHistories:
    """A ring of figures for each pool that there is."""

    def __init__(self) -> None:
        self._due = 0.0
        self._figures: dict[str, deque[tuple[int, ...]]] = {}
        # pool -> seconds since the epoch, used, reserved, free, withheld, waiting

    def sample(self, pools: "Mapping[str, TableRow]", monotonic: float, now: "dt.datetime") -> None:
        """Take the figures of all pools where it is time."""
        if monotonic < self._due:
            return
        self._due = monotonic + HISTORY_EVERY_S
        for gone in self._figures.keys() - pools.keys():
            del self._figures[gone]
        at = int(now.timestamp())
        for name, row in pools.items():
            if isinstance(row, PoolRow):
                figures = self._figures.setdefault(name, deque(maxlen=HISTORY_SAMPLES))
                figures.append((at, row.used, row.reserved, row.free, row.withheld, row.waiting))

    def rows(self) -> dict[str, PoolHistory]:
        return {name: _history(figures) for name, figures in self._figures.items()}


def _history(figures: "deque[tuple[int, ...]]") -> PoolHistory:
    at, used, reserved, free, withheld, waiting = zip(*figures, strict=True)
    return PoolHistory(
        at=at, used=used, reserved=reserved, free=free, withheld=withheld, waiting=waiting
    )


@final
class NamespaceShares:
    def __init__(self, cluster: "ClusterState") -> None:
        self._cluster = cluster
        self._by_pod: dict[PodUid, SharePart] = {}
        self._sums: dict[str, list[int]] = {}
        # key of the row -> pods, used, reserved, waiting; whole numbers, so that what is taken away is what was added

    def update(self, uid: "PodUid") -> set[str]:
        """Update a pod that has changed; return the keys of rows that change."""
        before, after = self._by_pod.get(uid), units_of_pod(self._cluster, uid)
        if before == after:
            return set()
        changed: set[str] = set()
        if before is not None:
            changed.add(self._count(before, -1))
            del self._by_pod[uid]
        if after is not None:
            changed.add(self._count(after, 1))
            self._by_pod[uid] = after
        return changed

    def row(self, key: str) -> ShareRow | None:
        """Return a row; None where no pod has or wants units any more."""
        sums = self._sums.get(key)
        if sums is None:
            return None
        namespace, _, pool = key.partition(" ")
        pods, used, reserved, waiting = sums
        return ShareRow(
            namespace=namespace,
            pool=pool,
            pods=pods,
            used=used,
            reserved=reserved,
            waiting=waiting,
        )

    def _count(self, share: "SharePart", by: int) -> str:
        key = f"{share.namespace} {share.pool}"
        sums = self._sums.setdefault(key, [0, 0, 0, 0])
        for place, units in enumerate((1, share.used, share.reserved, share.waiting)):
            sums[place] += by * units
        if not sums[0]:
            del self._sums[key]
        return key


Key = TypeVar("Key")

MOST_ROWS: Final = 500
"""Most rows in one step: some 10 ms, and an event of a hundred kilobytes."""


@final
class ClusterRows:
    """The rows of one cluster, and what is kept to make them."""

    def __init__(self, cluster: "ClusterState") -> None:
        self._cluster = cluster
        self.table = RowTable()
        self.histories = PoolHistories()
        self._pools = PoolRows(cluster)
        self._waiting = WaitingPods(cluster)
        self._shares = NamespaceShares(cluster)
        self.joinable = JoinableDevices(cluster)
        self.explanations = WaitExplanations(
            cluster, self.joinable, lambda: cluster.now().monotonic
        )
        self._served: dict[PoolName, frozenset[str]] = {}
        # pool -> the resource that it has
        self._wait_keys: dict[PodUid, str] = {}
        self._unaccounted: set[NodeName] = set()
        # nodes whose finding may end without a change of the node
        self._control_plane: set[str] = set()
        # subjects of the findings about it

    @property
    def is_behind(self) -> bool:
        """Whether something has changed of which rows are still to be made."""
        return bool(self._cluster.changed)

    @property
    def has_moved(self) -> bool:
        """Whether pods may wait at other positions than the published ones."""
        return self._waiting.has_moved

    def step(
        self,
        interrupted: "Sequence[str]" = (),
        unreadable: "Mapping[str, int]" = MappingProxyType({}),
    ) -> None:
        """Make the rows of `MOST_ROWS` changed keys, and those that the passing of time changes.

        Args:
            interrupted: resources that are not watched at the moment.
            unreadable: numbers of objects that cannot be decoded, by resource.
        """
        cluster = self._cluster
        cluster.flush()
        changed, left = cluster.changed, MOST_ROWS
        left = self._make_rows(changed.pods, left, self._make_pod)
        left = self._make_rows(changed.pools, left, self._make_pool)
        left = self._make_rows(changed.nodes, left, self._make_node)
        left = self._make_rows(changed.devices, left, self._make_device)
        self._make_rows(changed.reservations, left, self._make_reservation)
        for uid in {*self.explanations.take_updated(), *self._waiting.moved()}:
            self._make_wait(uid)
        self._make_ended()
        self._make_control_plane(interrupted, unreadable)
        now = cluster.now()
        self.histories.sample(self.table.section("pools"), now.monotonic, now.utc)

    def position(self, uid: "PodUid") -> int:
        """Return the place of a pod that waits, from 1; 0 while it is not known yet."""
        return self._waiting.position(uid)

    def explain(self, sees: "Callable[[str], bool]") -> float:
        """Explain some of the pods that wait in namespaces that a viewer has open; return how long to pause.

        Their rows are made in the next step.
        """
        return self.explanations.explain_due(sees) if self._cluster.is_exact else IDLE_S

    def _make_rows(self, keys: "set[Key]", most: int, make: "Callable[[Key], None]") -> int:
        """Make rows of so many keys; return how many more may be made."""
        if len(keys) <= most:
            taken = list(keys)
            keys.clear()
        else:
            taken = list(islice(keys, most))
            keys.difference_update(taken)
        for key in taken:
            make(key)
        return most - len(taken)

    def _make_pool(self, name: "PoolName") -> None:
        row = self._pools.row(name)
        self._note_resource(name, row)
        self.table.set("pools", name, row)
        self._set_health(
            health_rows.pool_subject(name), health_rows.pool_health(self._cluster, name)
        )
        self._cluster.changed.nodes |= self._unaccounted

    def _note_resource(self, name: "PoolName", row: "PoolRow | None") -> None:
        """Update pods that another pool serves now, and have pods of the pool explained again."""
        before = self._served.pop(name, frozenset())
        after = frozenset(row.resource.split(", ")) if row is not None else frozenset[str]()
        if after:
            self._served[name] = after
        for resource in after:
            self.explanations.note_change(resource)
        if before != after:
            self._cluster.changed.pods |= {
                pod.uid
                for pod in self._cluster.reader.pods.all()
                if pod.demand.resource in before | after
            }

    def _make_pod(self, uid: "PodUid") -> None:
        before = self._waiting.resource_of(uid)
        self._waiting.update(uid)
        after = self._waiting.resource_of(uid)
        if after is not None:
            self.explanations.add(uid)
            self._make_wait(uid)
        elif before is not None:
            self.explanations.discard(uid)
            self._drop_wait(uid)
        if before != after:  # of that the index knows nothing
            pools = map(self._cluster.index.pool_of, filter(None, (before, after)))
            self._cluster.changed.pools |= {pool.name for pool in pools if pool is not None}
        for key in self._shares.update(uid):
            self.table.set("shares", key, self._shares.row(key))

    def _make_wait(self, uid: "PodUid") -> None:
        seen = self._cluster.pods.get(uid)
        if seen is None or uid not in self._waiting:
            return
        position = self._waiting.show(uid)
        explained = self.explanations.get(uid)
        self._wait_keys[uid] = seen.facts.ref
        entry = wait_entry(self._cluster, seen, explained, position=position)
        self.table.set("waiting", seen.facts.ref, entry)

    def _drop_wait(self, uid: "PodUid") -> None:
        key = self._wait_keys.pop(uid)
        named = self._cluster.pods.named(key)
        if named is not None and named.facts.uid in self._waiting:  # another pod has its name
            self._make_wait(named.facts.uid)
        else:
            self.table.set("waiting", key, None)

    def _make_node(self, name: "NodeName") -> None:
        cluster = self._cluster
        self.table.set("nodes", name, node_row(cluster, name))
        self._set_health(health_rows.node_subject(name), health_rows.node_health(cluster, name))
        self._set_health(
            health_rows.inventory_subject(name), health_rows.inventory_health(cluster, name)
        )
        for device in cluster.index.devices.on_node(name):  # its pools are in the inventory
            self._make_device_health(device)
        if health_rows.unaccounted_pools(cluster, name):
            self._unaccounted.add(name)
        else:
            self._unaccounted.discard(name)

    def _make_device(self, name: "DeviceName") -> None:
        self.table.set("devices", name, device_row(self._cluster, name))
        self.joinable.update((name,))
        self._make_device_health(name)

    def _make_device_health(self, name: "DeviceName") -> None:
        self._set_health(
            health_rows.device_subject(name), health_rows.device_health(self._cluster, name)
        )

    def _make_reservation(self, id_: "ReservationId") -> None:
        self.table.set("reservations", id_, reservation_row(self._cluster, id_))

    def _make_ended(self) -> None:
        rows = self._cluster.ended.rows(self._cluster.now().utc)
        for gone in self.table.section("ended").keys() - rows.keys():
            self.table.set("ended", gone, None)
        for id_, row in rows.items():
            self.table.set("ended", id_, row)

    def _make_control_plane(
        self, interrupted: "Sequence[str]", unreadable: "Mapping[str, int]"
    ) -> None:
        entries = dict(health_rows.control_plane_health(self._cluster, interrupted, unreadable))
        for gone in self._control_plane - entries.keys():
            self._set_health(gone, None)
        for subject, entry in entries.items():
            self._set_health(subject, entry)
        self._control_plane = set(entries)

    def _set_health(self, subject: str, entry: "HealthEntry | None") -> None:
        self.table.set("health", subject, entry)
