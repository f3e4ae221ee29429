"""The life of a demo's cluster as a script: which pods come and go, which device fails, which reservation expires.

It is endless, and the same for the same seed: it knows what it has asked for, and nothing of what became of it. So a
step that is slow, or a pod that waits, changes no later one.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

FAULT_EVERY: Final = 26
FAULT_LASTS: Final = 12
"""Steps."""
UNSCHEDULED_EVERY: Final = 17
UNSCHEDULED_LASTS: Final = 40
"""Steps. The reservation of such a pod expires before."""
_CREATE_BELOW: Final = ((0.9, 0.9), (1.1, 0.6), (1.3, 0.4))
"""Requested units by those that there are -> chance that a pod is created rather than ended; none above."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedPool:
    """A pool, and the pods that ask for it."""

    name: str
    units: int
    sizes: tuple[int, ...]
    """Units of pods; a size that comes twice is twice as likely."""
    pods: tuple[str, ...]
    """First parts of their names."""
    namespaces: tuple[str, ...]


class CreatePod(NamedTuple):
    name: str
    namespace: str
    pool: str
    units: int
    is_scheduled: bool
    """Otherwise no scheduler takes it, and its reservation expires."""


class EndPod(NamedTuple):
    name: str
    namespace: str


class FailDevice(NamedTuple):
    node: str
    number: int


class RecoverDevice(NamedTuple):
    node: str
    number: int


Action = CreatePod | EndPod | FailDevice | RecoverDevice


@final
@dataclass(slots=True)
class _Ends:
    """What ends at a later step."""

    step: int
    action: Action


@final
@dataclass(slots=True)
class LifeScript:
    """Yields one action after the other."""

    seed: int
    pools: tuple[ScriptedPool, ...]
    devices: tuple[tuple[str, int], ...]
    """Node and number of those that may fail."""
    _chance: random.Random = field(init=False)
    _step: int = 0
    _numbers: Counter[str] = field(default_factory=Counter)
    _pods: list[CreatePod] = field(default_factory=list)
    _ends: list[_Ends] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311  # a story, no secret

    def next(self) -> Action:
        self._step += 1
        due = next((end for end in self._ends if end.step <= self._step), None)
        if due is not None:
            self._ends.remove(due)
            return due.action
        if self._step % FAULT_EVERY == 0:
            return self._fault()
        if self._step % UNSCHEDULED_EVERY == 0:
            return self._unscheduled()
        pool = self.pools[self._step % len(self.pools)]
        pods = [pod for pod in self._pods if pod.pool == pool.name]
        load = sum(pod.units for pod in pods) / pool.units
        chance = next((chance for below, chance in _CREATE_BELOW if load < below), 0.0)
        if not pods or self._chance.random() < chance:
            return self._created(pool)
        ended = self._chance.choice(pods[: len(pods) // 2 + 1])
        self._pods.remove(ended)
        return EndPod(ended.name, ended.namespace)

    def _fault(self) -> FailDevice:
        failed = FailDevice(*self._chance.choice(self.devices))
        self._ends.append(_Ends(self._step + FAULT_LASTS, RecoverDevice(*failed)))
        return failed

    def _unscheduled(self) -> CreatePod:
        pod = self._pod(self.pools[-1], "draft", is_scheduled=False)
        self._ends.append(_Ends(self._step + UNSCHEDULED_LASTS, EndPod(pod.name, pod.namespace)))
        return pod

    def _created(self, pool: ScriptedPool) -> CreatePod:
        pod = self._pod(pool, self._chance.choice(pool.pods), is_scheduled=True)
        self._pods.append(pod)
        return pod

    def _pod(self, pool: ScriptedPool, prefix: str, *, is_scheduled: bool) -> CreatePod:
        self._numbers[prefix] += 1
        return CreatePod(
            name=f"{prefix}-{self._numbers[prefix]:03}",
            namespace=self._chance.choice(pool.namespaces),
            pool=pool.name,
            units=self._chance.choice(pool.sizes),
            is_scheduled=is_scheduled,
        )
