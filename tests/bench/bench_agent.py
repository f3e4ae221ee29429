"""The agent of a node: what it takes, and how soon it answers, with 16 devices whole and in 1,024 slices.

Correct: each pod is preferred and given exactly what it was assigned, units of a live pod are refused, and
kubelet sees a fault's units and no others as unhealthy.
"""

import asyncio
import logging
import random
import statistics
import sys
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import structlog

from api.kubelet.deviceplugin import HEALTHY
from api.kubelet.proto.deviceplugin_pb2 import ListAndWatchResponse
from kube.resources import PODS
from tests.bench import agent_containers
from tests.bench.agent_footprint import cpu_s, footprint
from tests.bench.agent_kubelet import CONTAINER, NAMESPACE, Asking, Times
from tests.bench.agent_node import ALL_ROLES, PLUGIN, RESOURCE, a_node, running_agent
from tests.bench.report import Result, at_most, checked, in_ms
from tests.support.bound_pods import a_bound_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kube.client import KubeClient
    from tests.bench.agent_node import AgentProcess, Node
    from tests.bench.sizes import Sizes

SUBJECT = "agent"
SEED = 20261121
ALIVE = 64
"""Pods of the node that live at a time; kubelet's default is at most 110 of all kinds."""
UNITS = 4
"""A pod asks for at most so many."""
SEEN_WITHIN_S = 0.05
"""The watch has delivered a pod by then; kubelet's and ours bring it at the same time."""
STABLE_S = 5.0
"""After work, until what follows from it is done."""
PROBES = {"/readyz": 5.0, "/livez": 20.0, "/metrics": 15.0}
"""How often kubelet and Prometheus ask."""
XID = 79
ADDED_MS = 50
"""To the start of a pod, by its devices."""


@dataclass(frozen=True, slots=True)
class Form:
    """How the pool cuts its devices, and which agent serves it."""

    devices: int
    slices: int
    roles: str

    @property
    def text(self) -> str:
        cut = (
            f"{self.devices} GPUs in {self.slices} slices each"
            if self.slices > 1
            else f"{self.devices} GPUs"
        )
        return f"{'all roles' if self.roles == ALL_ROLES else self.roles}, {cut}"


@contextmanager
def errors_only() -> "Iterator[None]":
    """Write no lines but errors: what informers list is no figure."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**before)


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure one agent with all roles and a pool's plugin, with many units and with few."""
    results = await _containers(sizes)
    for roles in (ALL_ROLES, PLUGIN):
        for slices in (sizes.agent_slices, 1):
            with errors_only():
                results += await _of(Form(sizes.agent_devices, slices, roles), sizes)
    return results


async def _containers(sizes: "Sizes") -> list[Result]:
    """From a binding to a running container; nothing where there can be no real kubelet."""
    if not sizes.agent_container_pairs:
        return []
    why_not = agent_containers.why_not()
    if why_not:
        sys.stdout.write(f"  left out, from a binding to a container: {why_not}\n")
        return []
    ours, others = await agent_containers.seconds_to_start(sizes.agent_container_pairs)
    p50_ms, p99_ms = in_ms(ours)
    base_ms = statistics.median(others) * 1e3
    return [
        Result(
            subject=SUBJECT,
            case=(
                "a pod's binding until its container's first line, real kubelet and containerd, beside"
                f" pods without devices: {p50_ms - base_ms:+.0f} ms"
            ),
            samples=len(ours),
            p50_ms=p50_ms,
            p99_ms=p99_ms,
            base_p50_ms=base_ms,
            ratio=p50_ms / base_ms,
            aims=(at_most("p50_ms", round(base_ms + ADDED_MS)),),
        )
    ]


async def _of(form: Form, sizes: "Sizes") -> list[Result]:
    async with a_node(devices=form.devices, slices=form.slices) as (node, client):
        node.write_pool() if form.roles == PLUGIN else None
        starts = await _starts(node, form, sizes)
        with running_agent(node, form.roles) as agent:
            await agent.wait(node.is_served, "kubelet has all units")
            await agent.wait_ready()
            results = [starts, *await _admissions(node, client, form, sizes)]
            results.append(await _idle(agent, form, sizes))
            results.append(await _restarts(node, agent, form, sizes))
            if form.roles == ALL_ROLES:
                results.append(await _faults(node, agent, form))
            elif form.slices > 1:
                results.append(await _changes(node, agent, form, sizes))
            agent.stop()
    return results


async def _starts(node: "Node", form: Form, sizes: "Sizes") -> Result:
    """From the start of the process until kubelet has all units."""
    took = []
    for number in range(sizes.agent_starts + 1):
        began = time.perf_counter()
        with running_agent(node, form.roles) as agent:
            await agent.wait(node.is_served, "kubelet has all units")
            if number:  # The first one compiles the modules.
                took.append(time.perf_counter() - began)
            agent.stop()
            await agent_gone(node)
    p50_ms, p99_ms = in_ms(took)
    return Result(
        subject=SUBJECT,
        case=f"start until kubelet has all units; {form.text}",
        samples=len(took),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        aims=(at_most("p50_ms", 1_000),),
    )


async def agent_gone(node: "Node") -> None:
    """Wait until kubelet has noticed."""
    async with asyncio.timeout(30):
        while RESOURCE in node.kubelet.devices:  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0.01)


async def _admissions(
    node: "Node", client: "KubeClient", form: Form, sizes: "Sizes"
) -> list[Result]:
    """Admit pods one after the other, as kubelet does; then Allocate alone."""
    chance = random.Random(SEED)
    times: list[Times] = []
    alive: deque[str] = deque()
    units: list[str] = []
    socket = node.kubelet.directory / node.kubelet.registrations[-1].endpoint
    most_units = min(UNITS, node.units // UNITS)
    most_alive = min(ALIVE, node.units // most_units - 1)
    async with Asking(socket, node.allocation_state, chance) as kubelet:
        for number in range(sizes.agent_pods):
            if len(alive) == most_alive:
                gone = alive.popleft()
                del node.allocation_state.given[gone]
                await client.delete(PODS, gone, namespace=NAMESPACE)
            units = [
                device.ID for device in node.kubelet.devices[RESOURCE] if device.health == HEALTHY
            ]
            free = sorted(set(units) - node.allocation_state.in_use())
            assigned = tuple(sorted(chance.sample(free, chance.randint(1, most_units))))
            name = f"p{number}"
            await client.create(PODS, _a_pod(name, assigned))
            await asyncio.sleep(SEEN_WITHIN_S)
            times.append(await kubelet.admit(name, assigned, units))
            alive.append(name)
        # Not those of the pod that asked last: kubelet hands on what its init containers have.
        await kubelet.refuses(node.allocation_state.given[alive[0]])
        free = sorted(set(units) - node.allocation_state.in_use())
        allocations, others = [], []
        for _ in range(sizes.agent_calls):
            allocations.append(await kubelet.allocate([chance.choice(free)]))
            others.append(await kubelet.ask_options())
    for name in alive:
        del node.allocation_state.given[name]
        await client.delete(PODS, name, namespace=NAMESPACE)
    return _results_of(form, times, allocations, others)


def _results_of(
    form: Form, times: list[Times], allocations: list[float], others: list[float]
) -> list[Result]:
    p50_ms, p99_ms = in_ms(allocations)
    base_ms = statistics.median(others) * 1e3
    within_p50, within_p99 = in_ms([time_.allocate_s for time_ in times])
    whole_p50, whole_p99 = in_ms([sum(time_) for time_ in times])
    return [
        Result(
            subject=SUBJECT,
            case=f"Allocate, beside a call that says nothing; {form.text}",
            samples=len(allocations),
            p50_ms=p50_ms,
            p99_ms=p99_ms,
            base_p50_ms=base_ms,
            ratio=p50_ms / base_ms,
            aims=(at_most("p50_ms", 2),),
        ),
        Result(
            subject=SUBJECT,
            case=f"Allocate of a pod, after its preference; {form.text}",
            samples=len(times),
            p50_ms=within_p50,
            p99_ms=within_p99,
            aims=(at_most("p50_ms", 2),),
        ),
        Result(
            subject=SUBJECT,
            case=f"GetPreferredAllocation with its List, and Allocate; {form.text}",
            samples=len(times),
            p50_ms=whole_p50,
            p99_ms=whole_p99,
        ),
    ]


async def _idle(agent: "AgentProcess", form: Form, sizes: "Sizes") -> Result:
    """What it takes when nothing happens but probes."""
    await asyncio.sleep(min(STABLE_S, sizes.agent_idle_s))
    began, spent = time.perf_counter(), cpu_s(agent.pid)
    async with aiohttp.ClientSession() as session:
        due = dict.fromkeys(PROBES, began)
        while (now := time.perf_counter()) - began < sizes.agent_idle_s:
            for path in [path for path, at in due.items() if at <= now]:
                due[path] = now + PROBES[path]
                assert await agent.ask(session, path) == 200
            await asyncio.sleep(0.2)
    spent = cpu_s(agent.pid) - spent
    seconds = time.perf_counter() - began
    memory = footprint(agent.pid)
    return Result(
        subject=SUBJECT,
        case=(
            f"idle for {seconds:.0f} s, {spent / seconds:.2%} of a core;"
            f" {memory.anonymous:.0f} MiB anonymous; {form.text}"
        ),
        samples=1,
        cpu_s=spent,
        rss_mib=memory.rss,
        aims=(at_most("cpu_s", round(seconds * 0.01, 2)), at_most("rss_mib", 60)),
    )


async def _restarts(node: "Node", agent: "AgentProcess", form: Form, sizes: "Sizes") -> Result:
    """From the moment that kubelet's socket is there again until it has all units."""
    chance = random.Random(SEED)
    took = []
    for _ in range(sizes.agent_restarts):
        # At any moment between two looks.
        await asyncio.sleep(chance.uniform(0.2, 0.4))
        await node.kubelet.restart()
        took.append(await agent.wait(node.is_served, "registered again"))
    p50_ms, p99_ms = in_ms(took)
    return Result(
        subject=SUBJECT,
        case=f"kubelet restarts, until it has all units; {form.text}",
        samples=len(took),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        aims=(at_most("p99_ms", 500),),
    )


async def _faults(node: "Node", agent: "AgentProcess", form: Form) -> Result:
    """From the driver's event until kubelet knows; one device after the other."""
    took = []
    for number, device in enumerate(node.devices):
        expected = (number + 1) * form.slices
        node.driver.emit_xid(device.uuid, XID)
        took.append(await agent.wait(lambda: node.faulty() >= expected, "told of the fault"))  # noqa: B023
        unhealthy = [item.ID for item in node.kubelet.devices[RESOURCE] if item.health != HEALTHY]
        faulty = {item.uuid for item in node.devices[: number + 1]}
        assert len(unhealthy) == expected
        assert {item.partition("::")[0] for item in unhealthy} == faulty
        checked("fault")
    p50_ms, p99_ms = in_ms(took)
    return Result(
        subject=SUBJECT,
        case=f"an Xid until kubelet knows, {_size(node)}; {form.text}",
        samples=len(took),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        aims=(at_most("p99_ms", 1_000),),
    )


async def _changes(node: "Node", agent: "AgentProcess", form: Form, sizes: "Sizes") -> Result:
    """Devices fail and work again, one after the other, and every time kubelet gets the whole list."""
    took, memory = [], []
    for number in range(sizes.agent_changes):
        faulty = node.devices[number // 2 % len(node.devices)].uuid if number % 2 == 0 else ""
        expected = form.slices if faulty else 0
        node.publish_health(faulty)
        took.append(await agent.wait(lambda: node.faulty() == expected, "told of health"))  # noqa: B023
        memory.append(footprint(agent.pid).rss)
    tenth = max(1, len(memory) // 10)
    p50_ms, p99_ms = in_ms(took)
    return Result(
        subject=SUBJECT,
        case=f"health changes until kubelet knows, {_size(node)}; {form.text}",
        samples=len(took),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        rss_mib=memory[-1],
        growth_mib=statistics.median(memory[-tenth:]) - statistics.median(memory[:tenth]),
        aims=(at_most("p99_ms", 1_000), at_most("growth_mib", 1)),
    )


def _size(node: "Node") -> str:
    size = ListAndWatchResponse(devices=node.kubelet.devices[RESOURCE]).ByteSize()
    return f"a message of {size / 1024:.1f} KiB"


def _a_pod(name: str, assigned: tuple[str, ...]) -> dict[str, object]:
    pod = a_bound_pod(
        name, assigned={CONTAINER: assigned}, main={CONTAINER: len(assigned)}, resource=RESOURCE
    )
    body = {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(pod)}
    body["spec"]["containers"][0]["image"] = "any"
    return body
