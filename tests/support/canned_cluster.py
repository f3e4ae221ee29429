"""A made-up cluster of any size, as the rows of the console: equal for equal seeds, and it changes when it is told to.

Figures agree with each other: those of pools are the sums of their devices', and a pod that is placed stops waiting.
Nothing is scheduled; places are drawn by lot.
"""

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from console.rows import EndedRow, NodeRowState

SIZES: Final = (1, 2, 4, 8)
TTL: Final = dt.timedelta(minutes=2)
_BUSES: Final = ("17", "2a", "3d", "5e", "9a", "ab", "ba", "db")
_NAMESPACES: Final = ("ml-team", "vision", "search", "speech", "research", "ads", "platform", "qa")
_WORDS: Final = ("train", "tune", "eval", "serve", "embed", "notebook", "index", "distill")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKind:
    """A pool, and the devices that it takes."""

    name: str
    mode: str
    product: str
    units: int = 1
    """Of a device."""
    weight: int = 1
    """Its part of the nodes."""
    strategy: str = "BinPack"
    access: str = ""


KINDS: Final = (
    PoolKind(name="training", mode="Exclusive", product="NVIDIA-H200", weight=6),
    PoolKind(
        name="inference",
        mode="TimeSlice",
        product="NVIDIA-L40S",
        units=4,
        weight=3,
        strategy="Spread",
        access="namespaces search, ads; service account serving/router",
    ),
    PoolKind(
        name="notebooks", mode="MIG", product="NVIDIA-A100-SXM4-80GB", units=7, access="group data"
    ),
)
SPARE: Final = PoolKind(name="", mode="", product="NVIDIA-H100-80GB-HBM3", units=0)


@dataclass(slots=True, kw_only=True)
class CannedDevice:
    name: str
    node: str
    address: str
    kind: PoolKind
    trouble: str = ""
    """Its look where it serves no pod: faulted or draining."""
    used: Counter[str] = field(default_factory=Counter)
    reserved: Counter[str] = field(default_factory=Counter)

    @property
    def free(self) -> int:
        return self.kind.units - self.used.total() - self.reserved.total()

    @property
    def display(self) -> str:
        if self.trouble:
            return self.trouble
        if not self.kind.name:
            return "in no pool"
        if self.used.total() == self.kind.units:
            return "used"
        if self.used:
            return "partly used"
        return "reserved" if self.reserved else "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class CannedPod:
    name: str
    pool: str
    units: int
    created: dt.datetime

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]


class CannedCluster:
    """The world. Every method that changes it leaves what it touched for `change`."""

    def __init__(
        self,
        *,
        now: dt.datetime,
        nodes: int = 12,
        pods: int = 40,
        waiting: int = 6,
        kinds: tuple[PoolKind, ...] = KINDS,
        seed: int = 1,
    ) -> None:
        self.lot = random.Random(seed)
        self.started = now
        self.kinds = {kind.name: kind for kind in kinds}
        self.devices: dict[str, CannedDevice] = {}
        self.node_states: dict[str, NodeRowState] = {}
        self.by_node: dict[str, list[CannedDevice]] = {}
        self.running: dict[str, CannedPod] = {}
        self.waiting: dict[str, CannedPod] = {}
        self.reservations: dict[str, tuple[CannedPod, str, dt.datetime]] = {}
        self.ended: dict[str, EndedRow] = {}
        self.devices_of: dict[str, list[CannedDevice]] = defaultdict(list)
        self.shares: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.figures: dict[str, Counter[str]] = {name: Counter() for name in self.kinds}
        self.free_of: dict[str, Counter[str]] = {name: Counter() for name in self.kinds}
        self.dirty: dict[str, set[str]] = defaultdict(set)
        self._pods_made = 0
        self._make_nodes(nodes, kinds)
        self.node_names = list(self.by_node)
        if self.kinds:
            self._make_pods(pods, waiting, now)
        self.dirty.clear()

    def _make_nodes(self, count: int, kinds: tuple[PoolKind, ...]) -> None:
        deck = [kind for kind in kinds for _ in range(kind.weight)] + [SPARE]
        for number in range(count):
            kind = deck[number % len(deck)]
            node = f"gpu-{kind.name or 'spare'}-{number}"
            self.node_states[node] = NodeRowState.READY
            self.by_node[node] = []
            for place in range(8):
                address = f"0000:{_BUSES[place]}:00.0"
                name = f"{node}-{address.replace(':', '-')}"
                device = CannedDevice(name=name, node=node, address=address, kind=kind)
                self.devices[name] = device
                self.by_node[node].append(device)
                self._add(device, 1)
        for index, node in enumerate(self.node_states):
            if index % 37 == 5:
                self.set_node(node, NodeRowState.CORDONED)
            if index % 53 == 17:
                self.set_node(node, NodeRowState.NOT_READY)
        for index, device in enumerate(self.devices.values()):
            if index % 61 == 13:
                self.set_trouble(device.name, "faulted")
            if index % 83 == 29 and device.kind.name:
                self.set_trouble(device.name, "draining")

    def _make_pods(self, running: int, waiting: int, now: dt.datetime) -> None:
        for _ in range(running):
            pod = self._draw_pod(now)
            if self._place(pod, reserve=self.lot.random() < 0.03):
                continue
            if len(self.waiting) < waiting:
                self._wait(pod)
        while len(self.waiting) < waiting:
            self._wait(self._draw_pod(now))

    def _draw_pod(self, now: dt.datetime) -> CannedPod:
        kind = self.lot.choice(list(self.kinds.values()))
        self._pods_made += 1
        namespace = self.lot.choice(_NAMESPACES)
        name = f"{self.lot.choice(_WORDS)}-{self._pods_made}"
        units = self.lot.choice(SIZES if kind.units == 1 else (1, 1, 2))
        age = dt.timedelta(seconds=int(self.lot.expovariate(1 / 2400)))
        return CannedPod(name=f"{namespace}/{name}", pool=kind.name, units=units, created=now - age)

    def _add(self, device: CannedDevice, sign: int) -> None:
        """Add or take away what a device counts for in the figures of its pool."""
        pool = device.kind.name
        if not pool:
            return
        is_open = not device.trouble and self.node_states[device.node] is NodeRowState.READY
        figures = self.figures[pool]
        figures["used"] += sign * device.used.total()
        figures["reserved"] += sign * device.reserved.total()
        figures["free" if is_open else "withheld"] += sign * device.free
        if is_open:
            self.free_of[pool][device.node] += sign * device.free

    def _touch(self, device: CannedDevice, do: Callable[[CannedDevice], None]) -> None:
        self._add(device, -1)
        do(device)
        self._add(device, 1)
        self.dirty["devices"].add(device.name)
        self.dirty["pools"].add(device.kind.name)

    def set_trouble(self, name: str, trouble: str) -> None:
        """Make a device faulted or draining, or neither ("")."""

        def change(device: CannedDevice) -> None:
            device.trouble = trouble

        self._touch(self.devices[name], change)
        self.dirty["health"].add(f"GPUDevice {name}")

    def set_node(self, name: str, state: NodeRowState) -> None:
        """Change what a node is."""
        for device in self.by_node[name]:
            self._add(device, -1)
        self.node_states[name] = state
        for device in self.by_node[name]:
            self._add(device, 1)
            self.dirty["pools"].add(device.kind.name)
        self.dirty["nodes"].add(name)

    def _place(self, pod: CannedPod, *, reserve: bool) -> bool:
        for _ in range(24):
            # Nodes are many: a place that is not found in some draws is not there.
            candidates = self.free_of[pod.pool]
            node = self.lot.choice(self.node_names)
            if candidates.get(node, 0) < pod.units:
                continue
            self._take(pod, node, reserve=reserve)
            return True
        return False

    def _take(self, pod: CannedPod, node: str, *, reserve: bool) -> None:
        left = pod.units
        for device in self.by_node[node]:
            taken = min(left, 0 if device.trouble else device.free)
            if taken:
                self._touch(device, self._taking(pod, taken, reserve=reserve))
            left -= taken
        share = self._share(pod)
        if reserve:
            id_ = f"r-{pod.name}"
            self.reservations[id_] = (pod, node, self.started)
            self.dirty["reservations"].add(id_)
            share["reserved"] += pod.units
        else:
            self._run(pod, node)

    @staticmethod
    def _taking(pod: CannedPod, units: int, *, reserve: bool) -> Callable[[CannedDevice], None]:
        def change(device: CannedDevice) -> None:
            (device.reserved if reserve else device.used)[pod.name] += units

        return change

    def _run(self, pod: CannedPod, node: str) -> None:
        self.running[pod.name] = pod
        self.devices_of[pod.name] = [
            device for device in self.by_node[node] if pod.name in device.used
        ]
        share = self._share(pod)
        share["pods"] += 1
        share["used"] += pod.units

    def _share(self, pod: CannedPod) -> Counter[str]:
        key = (pod.namespace, pod.pool)
        self.dirty["shares"].add(" ".join(key))
        return self.shares[key]

    def _wait(self, pod: CannedPod) -> None:
        self.waiting[pod.name] = pod
        self._share(pod)["waiting"] += pod.units
        self.figures[pod.pool]["waiting"] += 1
        self.dirty["waiting"].add(pod.name)
        self.dirty["pools"].add(pod.pool)

    def _stop_waiting(self, pod: CannedPod) -> None:
        del self.waiting[pod.name]
        self._share(pod)["waiting"] -= pod.units
        self.figures[pod.pool]["waiting"] -= 1
        self.dirty["waiting"].add(pod.name)
        self.dirty["pools"].add(pod.pool)

    def act(self, now: dt.datetime) -> None:
        """Do one thing by lot: a pod ends, comes, gets a reservation, is bound; a device fails or recovers."""
        draw = self.lot.random()
        if draw < 0.3 and self.running:
            self.end_pod(self.lot.choice(list(self.running)))
        elif draw < 0.5:
            pod = self._draw_pod(now)
            self._wait(CannedPod(name=pod.name, pool=pod.pool, units=pod.units, created=now))
        elif draw < 0.75 and self.waiting:
            pod = self.waiting[self.lot.choice(list(self.waiting))]
            if self._place(pod, reserve=True):
                self._stop_waiting(pod)
                _, node, _ = self.reservations[f"r-{pod.name}"]
                self.reservations[f"r-{pod.name}"] = (pod, node, now)
        elif draw < 0.96 and self.reservations:
            end = "bound" if self.lot.random() < 0.9 else "expired"
            self.end_reservation(self.lot.choice(list(self.reservations)), end, now)
        else:
            name = self.lot.choice(list(self.devices))
            self.set_trouble(name, "" if self.devices[name].trouble else "faulted")

    def end_pod(self, name: str) -> None:
        """End a running pod."""
        pod = self.running.pop(name)

        def change(device: CannedDevice) -> None:
            del device.used[name]

        for device in self.devices_of.pop(name):
            self._touch(device, change)
        share = self._share(pod)
        share["pods"] -= 1
        share["used"] -= pod.units

    def end_reservation(self, id_: str, end: str, now: dt.datetime) -> None:
        """End a reservation; where it is bound, its pod runs."""
        pod, node, _ = self.reservations.pop(id_)

        def change(device: CannedDevice) -> None:
            units = device.reserved.pop(pod.name)
            if end == "bound":
                device.used[pod.name] += units

        for device in self.by_node[node]:
            if pod.name in device.reserved:
                self._touch(device, change)
        self._share(pod)["reserved"] -= pod.units
        if end == "bound":
            self._run(pod, node)
        self.ended[id_] = EndedRow(
            namespace=pod.namespace,
            pod=pod.name.partition("/")[2],
            pool=pod.pool,
            node=node,
            units=pod.units,
            end=end,
            at=iso(now),
        )
        self.dirty["reservations"].add(id_)
        self.dirty["ended"].add(id_)
        while len(self.ended) > 200:
            oldest = next(iter(self.ended))
            del self.ended[oldest]
            self.dirty["ended"].add(oldest)


def iso(moment: dt.datetime) -> str:
    """Return the time as Kubernetes writes it."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
