"""Workloads made from the openb trace: more shares, more pods of several devices, models demanded, more CPU pods.

They are named as the published variants, which are made in another way and other draws: strategies are tuned on these,
and tried on those.
"""

import functools
import operator
import random
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from pool.placement.simulation.openb import TracePod

Made = Callable[[Sequence[TracePod], random.Random], list[TracePod]]


def _drawn(
    groups: Sequence[tuple[Sequence[TracePod], float]], count: int, rng: random.Random
) -> list[TracePod]:
    """Draw pods from groups by their shares; names give the order of the draws."""
    chosen = rng.choices([item for item, _ in groups], [share for _, share in groups], k=count)
    return [
        msgspec.structs.replace(rng.choice(group), name=f"derived-{number:05}")
        for number, group in enumerate(chosen)
    ]


def _split(
    pods: Sequence[TracePod],
) -> tuple[list[TracePod], list[TracePod], list[TracePod], list[TracePod]]:
    """Return pods without devices, of a share, of one device, of several."""
    return (
        [pod for pod in pods if not pod.devices],
        [pod for pod in pods if pod.devices == 1 and pod.milli < 1000],
        [pod for pod in pods if pod.devices == 1 and pod.milli == 1000],
        [pod for pod in pods if pod.devices > 1],
    )


def _shares(share: float) -> Made:
    def made(pods: Sequence[TracePod], rng: random.Random) -> list[TracePod]:
        cpu, shares, ones, many = _split(pods)
        if share >= 1:
            return _drawn([(shares, 1)], len(pods), rng)
        remaining = 1 - share
        groups = [
            (cpu, 0.13),
            (shares, 0.87 * share),
            (ones, 0.86 * remaining),
            (many, 0.01 * remaining),
        ]
        return _drawn(groups, len(pods), rng)

    return made


def _several(share: float) -> Made:
    """Of so large a share of the pods with devices."""

    def made(pods: Sequence[TracePod], rng: random.Random) -> list[TracePod]:
        cpu, shares, ones, many = _split(pods)
        remaining = 1 - share
        groups = [
            (cpu, 0.13),
            (shares, 0.38 * remaining),
            (ones, 0.49 * remaining),
            (many, 0.87 * share),
        ]
        return _drawn(groups, len(pods), rng)

    return made


def _several_of_demand(share: float) -> Made:
    """Of so large a share of the demand for devices."""

    def made(pods: Sequence[TracePod], rng: random.Random) -> list[TracePod]:
        cpu, shares, ones, many = _split(pods)
        per_pod = [
            sum(pod.devices * pod.milli for pod in group) / len(group) / 1000
            for group in (shares + ones, many)
        ]
        count = share / per_pod[1] / (share / per_pod[1] + (1 - share) / per_pod[0])
        groups = [(cpu, 0.13), (shares + ones, 0.87 * (1 - count)), (many, 0.87 * count)]
        return _drawn(groups, len(pods), rng)

    return made


_MODELS: Final = (
    (("G2",), 30),
    (("T4",), 20),
    (("G2", "G3"), 8),
    (("V100M16", "V100M32"), 12),
    (("V100M32",), 8),
    (("P100",), 8),
    (("G3",), 4),
    (("P100", "T4"), 5),
    (("G2", "P100", "T4", "V100M16", "V100M32"), 5),
)


def _models(share: float) -> Made:
    def made(pods: Sequence[TracePod], rng: random.Random) -> list[TracePod]:
        derived = []
        for pod in _drawn([(pods, 1)], len(pods), rng):
            models = rng.choices([item for item, _ in _MODELS], [many for _, many in _MODELS])[0]
            is_picky = pod.devices > 0 and rng.random() < share
            # Only G2, G3 and V100 nodes have 8 devices, only G3's have CPU for the largest pods.
            if pod.devices > 2 and not {"G2", "G3"} & set(models):
                is_picky = False
            derived.append(msgspec.structs.replace(pod, models=models) if is_picky else pod)
        return derived

    return made


def _cpu(share: float) -> Made:
    def made(pods: Sequence[TracePod], rng: random.Random) -> list[TracePod]:
        cpu, *others = _split(pods)
        return _drawn(
            [(cpu, share), (functools.reduce(operator.iadd, others, []), 1 - share)], len(pods), rng
        )

    return made


def _heavy(factor: float) -> Made:
    """With more CPU for each device."""

    def made(pods: Sequence[TracePod], rng: random.Random) -> list[TracePod]:
        return [
            msgspec.structs.replace(pod, cpu_milli=min(96_000, int(pod.cpu_milli * factor)))
            if pod.devices
            else pod
            for pod in _drawn([(pods, 1)], len(pods), rng)
        ]

    return made


def _resampled(pods: Sequence[TracePod], rng: random.Random) -> list[TracePod]:
    return _drawn([(pods, 1)], len(pods), rng)


DERIVED: Final[dict[str, Made]] = {
    "default": _resampled,
    **{f"gpushare{n}": _shares(n / 100) for n in (40, 60, 80, 100)},
    **{f"multigpu{n}": _several(n / 100) for n in (20, 30, 40, 50)},
    **{f"multigpu{n} of demand": _several_of_demand(n / 100) for n in (20, 50)},
    **{f"gpuspec{n}": _models(n / 100) for n in (10, 20, 25, 33)},
    **{f"cpu{n:03}": _cpu(n / 1000) for n in (50, 100, 200, 250)},
    "more CPU": _heavy(1.15),
}


def derive(name: str, pods: Sequence[TracePod], seed: int) -> list[TracePod]:
    """Make a workload by its name in `DERIVED`."""
    return DERIVED[name](pods, random.Random(f"{name} {seed}"))
