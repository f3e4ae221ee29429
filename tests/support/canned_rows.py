"""The rows of a made-up cluster, and its answers to single questions."""

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

import msgspec

from console.rows import (
    ConditionEntry,
    ConsoleChange,
    ConsoleSnapshot,
    DeviceDetail,
    DeviceRow,
    HealthRow,
    HolderEntry,
    LinkEntry,
    NodeFigures,
    NodeRow,
    NodeRowState,
    PlacedPods,
    PodDetail,
    PoolHistory,
    PoolRow,
    ReservationRow,
    RowHealth,
    ShareRow,
    ViewerRow,
    WaitingRow,
    WhatIfAnswer,
)
from tests.support.canned_cluster import (
    SIZES,
    SPARE,
    TTL,
    CannedCluster,
    CannedDevice,
    CannedPod,
    iso,
)


class CannedRows:
    """What the console says of the cluster."""

    def __init__(self, cluster: CannedCluster) -> None:
        self.cluster = cluster

    def pool_row(self, name: str) -> PoolRow:
        """Return the pool's figures."""
        kind, figures, free = (
            self.cluster.kinds[name],
            self.cluster.figures[name],
            self.cluster.free_of[name],
        )
        parts = {part: figures[part] for part in ("used", "reserved", "free", "withheld")}
        is_ready = kind.mode != "MIG"
        return PoolRow(
            mode=kind.mode,
            resource=f"gpu.deckhouse.io/{name}",
            strategy=kind.strategy,
            phase="Ready" if is_ready else "Maintenance",
            why="" if is_ready else "2 devices are partitioned again as soon as no unit is in use",
            access=kind.access,
            total=sum(parts.values()),
            largest_free=max(free.values(), default=0),
            waiting=figures["waiting"],
            nodes=sum(1 for devices in self.cluster.by_node.values() if devices[0].kind is kind),
            fits={size: sum(count // size for count in free.values()) for size in SIZES},
            **parts,
        )

    def waiting_row(self, pod: CannedPod, position: int = 1) -> WaitingRow:
        """Return why a pod waits."""
        figures, free = self.cluster.figures[pod.pool], self.cluster.free_of[pod.pool]
        largest = max(free.values(), default=0)
        namespace, _, name = pod.name.partition("/")
        total = sum(figures[part] for part in ("used", "reserved", "free", "withheld"))
        said = (
            f"{pod.units} units of pool {pod.pool} requested, {figures['free']} of {total} are free"
        )
        if largest >= pod.units:
            reason, message = "UnitsAvailable", f"{said}; a node has units for it"
            remedies: tuple[str, ...] = ()
        elif figures["free"] >= pod.units:
            reason, message = "UnitsFragmented", f"{said}, at most {largest} on one node"
            remedies = tuple(self._remedies(pod, largest))
        else:
            reason, message = "UnitsExhausted", said
            remedies = tuple(self._remedies(pod, largest))
        return WaitingRow(
            namespace=namespace,
            name=name,
            pool=pod.pool,
            units=pod.units,
            created=iso(pod.created),
            position=position,
            reason=reason,
            message=message,
            remedies=remedies,
            scheduler=(
                f"0/{len(self.cluster.by_node)} nodes are available: {len(self.cluster.by_node)} Insufficient"
                f" gpu.deckhouse.io/{pod.pool}. preemption: 0/{len(self.cluster.by_node)} nodes are available:"
                " No preemption victims found for incoming pod."
            ),
        )

    def _remedies(self, pod: CannedPod, largest: int) -> Iterator[str]:
        node = next(
            item
            for item, devices in self.cluster.by_node.items()
            if devices[0].kind.name == pod.pool
        )
        if largest:
            units = "1 unit" if largest == 1 else f"{largest} units"
            yield f"ask for {units}: node {node} would take the pod now"
        holders = list(
            dict.fromkeys(name for item in self.cluster.by_node[node] for name in item.used)
        )
        if holders:
            yield f"when {holders[0]} ends, the pod fits on {node}"
        yield (
            "4 devices of gpu-spare-10 are in no pool and would make room: annotate each with"
            f" gpu.deckhouse.io/assignment={pod.pool}"
        )

    def _waiting_rows(self, names: Iterable[str]) -> dict[str, WaitingRow]:
        positions: Counter[str] = Counter()
        place: dict[str, int] = {}
        for pod in sorted(
            self.cluster.waiting.values(), key=lambda item: (item.created, item.name)
        ):
            positions[pod.pool] += 1
            place[pod.name] = positions[pod.pool]
        return {name: self.waiting_row(self.cluster.waiting[name], place[name]) for name in names}

    def _reservation_row(self, id_: str) -> ReservationRow:
        pod, node, created = self.cluster.reservations[id_]
        return ReservationRow(
            namespace=pod.namespace,
            pod=pod.name.partition("/")[2],
            pool=pod.pool,
            node=node,
            units=pod.units,
            created=iso(created),
            expires=iso(created + TTL),
        )

    def _share_row(self, key: str) -> ShareRow:
        namespace, _, pool = key.partition(" ")
        counts = self.cluster.shares[namespace, pool]
        return ShareRow(namespace=namespace, pool=pool, **counts)

    def _health_rows(self) -> dict[str, HealthRow]:
        rows = {
            "leader": HealthRow(state=RowHealth.GOOD, text="gpu-control-plane-5d leads"),
            "GPUNodeInventory gpu-training-1": HealthRow(
                state=RowHealth.WARNING,
                text="the agent has not reported for 3 minutes",
                cure="kubectl -n gpu-control-plane logs daemonset/gpu-node-agent",
            ),
        }
        for name, state in self.cluster.node_states.items():
            if state is NodeRowState.NOT_READY:
                rows[f"Node {name}"] = HealthRow(
                    state=RowHealth.WARNING,
                    text="kubelet has not reported for 6 minutes",
                    cure=f"kubectl describe node {name}",
                )
        for device in self.cluster.devices.values():
            if device.trouble == "faulted":
                rows[f"GPUDevice {device.name}"] = self._fault(device)
        return rows

    def _fault(self, device: CannedDevice) -> HealthRow:
        return HealthRow(
            state=RowHealth.BAD,
            text="XidCriticalError: Xid 79, the GPU has fallen off the bus",
            cure=f"drain {device.node} and restart it; replace the device when it comes back faulted",
        )

    def snapshot(
        self, now: dt.datetime, viewer: ViewerRow, partial: tuple[str, ...] = ()
    ) -> ConsoleSnapshot:
        """Return everything, and forget what was touched before."""
        self.cluster.dirty.clear()
        return ConsoleSnapshot(
            version="0.1.0",
            origin="API server of context made-up",
            at=iso(now),
            since=iso(self.cluster.started),
            viewer=viewer,
            partial=partial,
            pools={name: self.pool_row(name) for name in self.cluster.kinds},
            nodes={name: self._node_row(name) for name in self.cluster.by_node},
            devices={name: device_row(device) for name, device in self.cluster.devices.items()},
            waiting=self._waiting_rows(self.cluster.waiting),
            reservations={id_: self._reservation_row(id_) for id_ in self.cluster.reservations},
            ended=dict(self.cluster.ended),
            shares={
                f"{namespace} {pool}": self._share_row(f"{namespace} {pool}")
                for (namespace, pool), counts in self.cluster.shares.items()
                if any(counts.values())
            },
            health=self._health_rows(),
            history={name: self._history(name, now) for name in self.cluster.kinds},
        )

    def change(self, now: dt.datetime) -> ConsoleChange:
        """Return what was touched since the last call."""
        dirty, self.cluster.dirty = self.cluster.dirty, defaultdict(set)
        rows_of: dict[str, Callable[[str], object]] = {
            "pools": self.pool_row,
            "nodes": self._node_row,
            "devices": lambda name: device_row(self.cluster.devices[name]),
            "reservations": lambda id_: (
                self._reservation_row(id_) if id_ in self.cluster.reservations else None
            ),
            "ended": self.cluster.ended.get,
            "shares": self._share_row,
            "health": self._finding,
        }
        sections = {
            section: {name: rows_of[section](name) for name in sorted(names) if name}
            for section, names in dirty.items()
            if section != "waiting"
        }
        if "waiting" in dirty:
            there = [name for name in sorted(dirty["waiting"]) if name in self.cluster.waiting]
            gone = dict.fromkeys(sorted(dirty["waiting"] - self.cluster.waiting.keys()))
            sections["waiting"] = {**self._waiting_rows(there), **gone}
        return msgspec.structs.replace(ConsoleChange(at=iso(now)), **sections)

    def _finding(self, subject: str) -> HealthRow | None:
        device = self.cluster.devices[subject.removeprefix("GPUDevice ")]
        return self._fault(device) if device.trouble == "faulted" else None

    def _node_row(self, name: str) -> NodeRow:
        kind = self.cluster.by_node[name][0].kind
        pools = (kind.name,) if kind.name else ()
        return NodeRow(state=self.cluster.node_states[name], products=(kind.product,), pools=pools)

    def _history(self, pool: str, now: dt.datetime) -> PoolHistory:
        row, lot = self.pool_row(pool), random.Random(pool)
        at = range(int(now.timestamp()) - 3600, int(now.timestamp()), 30)
        used, reserved, used_then = [], [], row.used
        room = row.total - row.withheld
        for _ in at:
            used_then = max(0, min(room, used_then + lot.randint(-1, 1) * max(1, row.total // 60)))
            used.append(used_then)
            reserved.append(min(room - used_then, lot.randint(0, max(1, row.total // 40))))
        used.reverse()
        return PoolHistory(
            at=tuple(at),
            used=tuple(used),
            reserved=tuple(reserved),
            free=tuple(room - item - other for item, other in zip(used, reserved, strict=True)),
            withheld=(row.withheld,) * len(used),
            waiting=tuple(max(0, row.waiting - place // 20) for place in range(len(at), 0, -1)),
        )

    def detail(self, name: str) -> DeviceDetail | None:
        """Answer for a device."""
        device = self.cluster.devices.get(name)
        if device is None:
            return None
        since = iso(self.cluster.started - dt.timedelta(minutes=42))
        healthy = ConditionEntry(
            type="Healthy",
            status="False" if device.trouble == "faulted" else "True",
            reason="XidCriticalError" if device.trouble == "faulted" else "NoFault",
            message="Xid 79, the GPU has fallen off the bus" if device.trouble == "faulted" else "",
            since=since,
        )
        holders = [
            HolderEntry(pod=pod, units=units, created=iso(self.cluster.running[pod].created))
            for pod, units in device.used.items()
        ]
        for pod, units in device.reserved.items():
            _, _, created = self.cluster.reservations[f"r-{pod}"]
            holders.append(
                HolderEntry(pod=pod, units=units, is_reserved=True, expires=iso(created + TTL))
            )
        peers = [item for item in self.cluster.by_node[device.node] if item is not device]
        kind = (
            "NVLink, 18 links" if device.kind.product in {"NVIDIA-H200", SPARE.product} else "PIX"
        )
        return DeviceDetail(
            name=name,
            row=device_row(device),
            uuid=f"GPU-{random.Random(name).getrandbits(128):032x}",
            memory_mib=143_771,
            compute_capability="9.0",
            numa_node=0 if device.address < "0000:7" else 1,
            mig="enabled: 7 of 1g.10gb" if device.kind.mode == "MIG" else "",
            links=tuple(LinkEntry(peer=item.name, kind=kind) for item in peers),
            conditions=(healthy,),
            holders=tuple(holders),
        )

    def pod(self, name: str) -> PodDetail | None:
        """Answer for a pod that waits."""
        pod = self.cluster.waiting.get(name)
        if pod is None:
            return None
        free = self.cluster.free_of[pod.pool]
        ours = [
            item
            for item in self.cluster.by_node
            if self.cluster.by_node[item][0].kind.name == pod.pool
        ]
        ours.sort(key=lambda node: (-free[node], node))
        return PodDetail(
            name=name,
            row=self._waiting_rows([name])[name],
            nodes=tuple(self._node_figures(node, pod) for node in ours[:16]),
            nodes_total=len(ours),
        )

    def _node_figures(self, node: str, pod: CannedPod) -> NodeFigures:
        devices, free = self.cluster.by_node[node], self.cluster.free_of[pod.pool][node]
        used = sum((device.used for device in devices), Counter[str]())
        reserved = sum((device.reserved for device in devices), Counter[str]())
        total = sum(device.kind.units for device in devices)
        taken = f"{used.total()} used of {total}"
        return NodeFigures(
            node=node,
            total=total,
            free=free,
            used=used.total(),
            reserved=reserved.total(),
            withheld=total - free - used.total() - reserved.total(),
            because="" if free >= pod.units else f"{pod.units} requested, {free} free ({taken})",
            holders=tuple(
                HolderEntry(pod=name, units=units) for name, units in used.most_common(4)
            ),
        )

    def try_pods(self, pool: str, units: int, times: int, cordoned: frozenset[str]) -> WhatIfAnswer:
        """Place equal pods on what is free."""
        free = {
            node: count
            for node, count in self.cluster.free_of[pool].items()
            if node not in cordoned
        }
        placed: Counter[str] = Counter()
        for node, count in sorted(free.items(), key=lambda item: (item[1], item[0])):
            placed[node] = min(count // units, times - placed.total())
        fits = placed.total() == times
        said = f"{placed.total()} of {times} pods would be placed now, each with {units} units"
        largest = max((count - placed[node] * units for node, count in free.items()), default=0)
        return WhatIfAnswer(
            pods=times,
            placed=tuple(
                PlacedPods(node=node, pods=count, units=count * units)
                for node, count in placed.items()
                if count
            ),
            fits=fits,
            message=said,
            remedies=() if fits else (f"ask for {largest} units",) if largest else (),
        )


def device_row(device: CannedDevice) -> DeviceRow:
    """Return what the grid shows of a device."""
    return DeviceRow(
        node=device.node,
        address=device.address,
        look=device.display,
        pool=device.kind.name,
        product=device.kind.product,
        units=device.kind.units,
        used=device.used.total(),
        reserved=device.reserved.total(),
        holders=tuple(dict.fromkeys([*device.used, *device.reserved])),
    )
