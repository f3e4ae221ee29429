"""Whose each device was, version by version: in no two pools, ever, and never taken from under a pod.

Pods and devices are watched apart, so that a device may be seen to leave before the pod that left it is seen to end.
The versions of the API server order them all the same: what is judged are spans of versions, once both sides are
known. What a list showed after a gap happened some time within the gap; then the shorter span counts.
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from tests.fault.observations import Device, Observation, Pod, Pool
from tests.fault.upgrades.upgrade_oracle import LATENESS_S

if TYPE_CHECKING:
    from collections.abc import Iterator

CHANGE_LATENESS_S: Final = LATENESS_S + 30.0
"""For so long a leader may act on a pool that is there again as on a deleted one: its watch may have failed while the API
server was away, and it lists again after a delay of up to half a minute."""


@dataclass(slots=True)
class _Spell:
    """A device of one UUID in one pool, or in none."""

    device: str
    pool: str
    first: int
    last: int
    """The last version at which it was certainly so."""


@dataclass(slots=True)
class _Tenancy:
    """A pod on units."""

    pod: Pod
    first: int
    last: int
    is_over: bool = False


@final
@dataclass(slots=True)
class PoolMembership:
    """Feed it every sight; it remembers whose what was."""

    _spells: dict[str, list[_Spell]] = field(default_factory=dict)
    # UUID -> spells, the present one last
    _present: dict[str, _Spell] = field(default_factory=dict)
    # device -> its present spell
    _uuids: dict[str, str] = field(default_factory=dict)
    _tenancies: dict[str, _Tenancy] = field(default_factory=dict)
    # uid -> the pod's time on its units
    _pool_changes: dict[str, list[float]] = field(default_factory=dict)
    # pool -> when it was seen to come, which in a restored etcd it may do after its devices, or to go
    _pools: set[str] = field(default_factory=set)
    _reassigned: dict[str, float] = field(default_factory=dict)
    # device -> when another pool than its own was last asked for
    _releases: list[tuple[Device, str, float]] = field(default_factory=list)
    # device as it left, the pool that it left, and when; nothing else was asked for

    def observe(self, observation: Observation) -> str | None:
        """Take in a sight; say so where a device went from one pool into another at once."""
        match observation.subject:
            case Device() as device:
                return self._see_device(device, observation)
            case Pod() as pod:
                self._see_pod(pod, observation)
            case Pool() as pool:
                if observation.is_gone or pool.name not in self._pools:
                    self._pool_changes.setdefault(pool.name, []).append(observation.at)
                self._pools.add(pool.name)
                if observation.is_gone:
                    self._pools.discard(pool.name)
            case _:
                pass
        return None

    def faults(self) -> "Iterator[tuple[str, frozenset[str]]]":
        """Yield every pod whose device was another pool's, or nobody's, while the pod had units of it."""
        for tenancy in self._tenancies.values():
            pod = tenancy.pod
            last = tenancy.last if tenancy.is_over else None
            for uuid in sorted({unit.partition("::")[0] for unit in pod.units}):
                for spell in self._spells.get(uuid, ()):
                    is_present = self._present.get(spell.device) is spell
                    begins_within = last is None or spell.first < last
                    ends_within = is_present or spell.last > tenancy.first
                    if spell.pool != pod.pool and begins_within and ends_within:
                        text = (
                            f"device {spell.device} ({uuid}) was in {spell.pool or 'no pool'} from v{spell.first}"
                            f" on, while pod {pod.name} of pool {pod.pool} had it since v{tenancy.first}"
                        )
                        yield text, frozenset({pod.name, spell.device, uuid})

    def releases(self) -> "Iterator[tuple[str, frozenset[str]]]":
        """Yield every device that left a pool which was there, though it was meant for no other."""
        for device, pool, at in self._releases:
            changes = self._pool_changes.get(pool, ())
            was_absent = any(abs(change - at) <= CHANGE_LATENESS_S for change in changes)
            if pool in self._pools and not was_absent:
                text = f"device {device.name} ({device.uuid}) left pool {pool} at {at:.1f} s"
                yield text, frozenset({device.name, device.uuid, pool})

    def _see_device(self, device: Device, observation: Observation) -> str | None:
        before = self._present.get(device.name)
        if observation.is_gone or self._uuids.get(device.name) != device.uuid:
            # Another device in the slot: it comes from nowhere.
            self._leave(device.name, observation)
            before = None
        if observation.is_gone:
            return None
        self._uuids[device.name] = device.uuid
        if device.assigned not in {"", before.pool if before is not None else device.pool}:
            self._reassigned[device.name] = observation.at
        if before is not None and before.pool == device.pool:
            return None
        was = before.pool if before is not None else ""
        if was and self._reassigned.get(device.name, -math.inf) < observation.at - LATENESS_S:
            self._releases.append((device, was, observation.at))
        self._leave(device.name, observation)
        spell = _Spell(device.name, device.pool, observation.version, observation.version)
        self._present[device.name] = spell
        self._spells.setdefault(device.uuid, []).append(spell)
        if observation.is_exact and was and device.pool:
            return f"device {device.name} ({device.uuid}) went from pool {was} to pool {device.pool} at once"
        return None

    def _leave(self, device: str, observation: Observation) -> None:
        spell = self._present.pop(device, None)
        if spell is not None and observation.is_exact:
            spell.last = observation.version

    def _see_pod(self, pod: Pod, observation: Observation) -> None:
        tenancy = self._tenancies.get(pod.uid)
        if tenancy is None:
            if pod.is_live and not observation.is_gone:
                self._tenancies[pod.uid] = _Tenancy(pod, observation.version, observation.version)
            return
        if tenancy.is_over:
            return
        tenancy.is_over = observation.is_gone or not pod.is_live
        if observation.is_exact or not tenancy.is_over:
            tenancy.last = observation.version
