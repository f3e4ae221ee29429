"""What kube-scheduler asks of an extender, what a right answer looks like, and its time beside another's."""

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tests.bench import world
from tests.bench.report import checked, in_ms
from tests.bench.wire import request_bytes, time_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench.wire import Connection


@dataclass(frozen=True)
class Call:
    """Requests that are sent in turn, and what asserts that the answer to the first is right."""

    title: str
    requests: tuple[bytes, ...]
    check: "Callable[[bytes], None]"
    together: int = 1
    """So many requests, one after the other, are one sample."""


NEW_LISTS = 24
"""More lists than any server would remember."""


def calls(nodes: list[str], candidates: int) -> list[Call]:
    """Return filter and prioritize that most nodes pass, and a filter that none does."""
    asked = random.Random(world.SEED).sample(nodes, candidates)
    fitting, too_large = arguments(asked, 1), arguments(asked, world.DEVICES + 1)
    size = f"{candidates:,} candidates"
    return [
        Call(f"filter, {size}", (_to("filter", fitting),), lambda got: _some_fit(got, asked)),
        Call(f"prioritize, {size}", (_to("prioritize", fitting),), lambda got: _scores(got, asked)),
        Call(
            f"filter, none fits, {size}",
            (_to("filter", too_large),),
            lambda got: _none_fits(got, asked),
        ),
    ]


WORKERS = 16
"""kube-scheduler's parallelism."""
CHANGED = 3
"""Nodes that one pod's list has and the next one's has not."""


def calls_of_successive_pods(nodes: list[str], candidates: int) -> Call:
    """Return what kube-scheduler asks about pod after pod: filter, then prioritize for what it answered.

    Its workers walk the nodes by chunks of neighbours, and each node that passes takes the next place in
    the list. So no two lists are in the same order, neighbours stay near each other, and from pod to pod
    some nodes come and go.
    """
    rng = random.Random(world.SEED)
    candidates_and_changed = nodes[: candidates + CHANGED]
    requests: list[bytes] = []
    for number in range(NEW_LISTS):
        left_out = set(rng.sample(candidates_and_changed, CHANGED))
        names = _as_workers_find(
            rng, [name for name in candidates_and_changed if name not in left_out]
        )
        body = arguments(names, 1, f"successive-{number}")
        requests += [_to("filter", body), _to("prioritize", body)]
        if number == 0:
            first = names
    return Call(
        f"filter and prioritize, pod after pod, {candidates:,} candidates",
        tuple(requests),
        lambda got: _some_fit(got, first),
        together=2,
    )


def _as_workers_find(rng: random.Random, names: list[str]) -> list[str]:
    """Return the names in the order in which kube-scheduler's workers come to them."""
    chunk = max(1, min(math.isqrt(len(names)), len(names) // WORKERS + 1))
    waiting = [names[start : start + chunk] for start in range(0, len(names), chunk)][::-1]
    at_work: list[list[str]] = []
    found: list[str] = []
    while waiting or at_work:
        while waiting and len(at_work) < WORKERS:
            at_work.append(waiting.pop()[::-1])
        worker = rng.choice(at_work)
        found.append(worker.pop())
        if not worker:
            at_work.remove(worker)
    return found


def calls_of_new_lists(nodes: list[str], candidates: int) -> list[Call]:
    """Return the same where each request is of another pod and names other nodes in random order.

    Nobody's real scheduler is as forgetful. This is the price of a list that has to be read, where
    nothing helps.
    """
    rng = random.Random(world.SEED)
    lists = [rng.sample(nodes, candidates) for _ in range(NEW_LISTS)]
    size = f"{candidates:,} candidates"
    fitting = [arguments(names, 1, f"new-{number}") for number, names in enumerate(lists)]
    too_large = [
        arguments(names, world.DEVICES + 1, f"new-large-{number}")
        for number, names in enumerate(lists)
    ]

    def sent(verb: str, bodies: list[bytes]) -> tuple[bytes, ...]:
        return tuple(_to(verb, body) for body in bodies)

    return [
        Call(
            f"filter, a new list each time, {size}",
            sent("filter", fitting),
            lambda got: _some_fit(got, lists[0]),
        ),
        Call(
            f"prioritize, a new list each time, {size}",
            sent("prioritize", fitting),
            lambda got: _scores(got, lists[0]),
        ),
        Call(
            f"filter, none fits, a new list each time, {size}",
            sent("filter", too_large),
            lambda got: _none_fits(got, lists[0]),
        ),
    ]


def arguments(names: list[str], units: int, uid: str = "asking") -> bytes:
    """Return ExtenderArgs as kube-scheduler sends them."""
    pod = world.a_pod(uid, world.WHOLE, units)
    pod["metadata"]["uid"] = uid
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


def _to(verb: str, body: bytes) -> bytes:
    return request_bytes(f"/scheduler/{verb}", body)


@dataclass(frozen=True)
class Times:
    """Of one call, beside what it is compared with."""

    p50_ms: float
    p99_ms: float
    base_p50_ms: float

    @property
    def ratio(self) -> float:
        return self.p50_ms / self.base_p50_ms


async def beside(
    ours: "tuple[Connection, Sequence[bytes]]",
    base: "tuple[Connection, Sequence[bytes]]",
    count: int,
    *,
    together: int = 1,
) -> Times:
    """Send both their requests in turn so many times, after some that do not count."""
    await time_pairs(ours, base, max(2, count // 10), together=together)
    times, base_times = await time_pairs(ours, base, count, together=together)
    p50, p99 = in_ms(times)
    return Times(p50, p99, in_ms(base_times)[0])


def _failed(said: dict[str, dict[str, str]]) -> dict[str, str]:
    assert not said.get("Error"), said["Error"]
    return {**(said.get("FailedNodes") or {}), **(said.get("FailedAndUnresolvableNodes") or {})}


def _some_fit(answer: bytes, asked: list[str]) -> None:
    said = msgspec.json.decode(answer)
    failed = _failed(said)
    assert sorted([*said["NodeNames"], *failed]) == sorted(asked)
    assert len(said["NodeNames"]) > len(asked) // 2, "most nodes have a free device"
    checked("filter")


def _none_fits(answer: bytes, asked: list[str]) -> None:
    said = msgspec.json.decode(answer)
    failed = _failed(said)
    assert said["NodeNames"] == []
    assert set(failed) == set(asked)
    assert all(failed.values()), "every node has its reason"
    checked("filter, none fits")


def _scores(answer: bytes, asked: list[str]) -> None:
    scores = msgspec.json.decode(answer)
    assert [score["Host"] for score in scores] == asked
    assert all(isinstance(score["Score"], int) and 0 <= score["Score"] <= 10 for score in scores)
    checked("prioritize")
