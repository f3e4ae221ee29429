"""When pods, NodeClaims, nodes and their devices took each step, by watches: for the figures of scaling up."""

import asyncio
import contextlib
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from api.annotations import decode_reservation
from api.names import (
    AGENT_NOT_READY_TAINT,
    CAPACITY_GATE,
    DEVICE_NODE_ANNOTATION,
    RESERVATION_ANNOTATION,
    RESOURCE_PREFIX,
)
from simulator.node.nfd import NAMESPACE as NFD_NAMESPACE
from tests.bench.other_programs import OtherPrograms
from tests.bench.report import Aim, Result, at_most, in_ms
from tests.cluster.environment import karpenter, pods
from tests.cluster.system.objects import API, DEVICES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from tests.cluster.environment.client import ApiClient, JsonObject

_FEATURES: Final = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NFD_NAMESPACE}/nodefeatures"
_NODES: Final = "/api/v1/nodes"
_INVENTORIES: Final = f"{API}/gpunodeinventories"

DEVICE_STEPS: Final = ("GPUDevices made", "GPUDevices told", "GPUDevices in the pool")
NODE_STEPS: Final = ("node ready for pooling", "units allocatable", "startup taint gone")
POD_STEPS: Final = ("units reserved", "gate gone", "pod bound")
STEPS: Final = (
    *DEVICE_STEPS[:2],
    NODE_STEPS[0],
    DEVICE_STEPS[2],
    NODE_STEPS[1],
    POD_STEPS[0],
    NODE_STEPS[2],
    *POD_STEPS[1:],
)
"""In the order in which a node takes them."""
CLAIM_AIM: Final = at_most("p50_ms", 3_000)
"""Of the first NodeClaim."""


@dataclass
class Timeline:
    """Seconds of the loop's clock at which each was first seen."""

    pods: dict[str, float] = field(default_factory=dict)
    node_of: dict[str, str] = field(default_factory=dict)
    """Pod -> its node."""
    claims: dict[str, float] = field(default_factory=dict)
    recorded: dict[str, float] = field(default_factory=dict)
    """Node -> its agent's report."""
    steps: dict[str, dict[str, float]] = field(default_factory=dict)
    """Step -> node, device or pod that took it."""
    devices: dict[str, str] = field(default_factory=dict)
    """Device -> its node."""
    others_cores: float | None = None
    """Cores that other programs of the machine used meanwhile."""

    def claim_after_s(self) -> float:
        """Return the time from the first pod until the first NodeClaim."""
        return min(self.claims.values()) - min(self.pods.values())

    def bound_after_s(self) -> list[float]:
        """Return the times from the report of a pod's node until the pod was bound, sorted."""
        bound = self.steps["pod bound"]
        return sorted(at - self.recorded[self.node_of[name]] for name, at in bound.items())

    def results(self, subject: str, *aims: Aim) -> list[Result]:
        """Return the figures for docs/performance.md; the aims are of the pods and of all NodeClaims."""
        claim_ms = self.claim_after_s() * 1e3
        p50, p99 = in_ms(self.bound_after_s())
        return [
            Result(
                subject=subject,
                case="from the first pod to the first NodeClaim",
                samples=1,
                p50_ms=claim_ms,
                others_cores=self.others_cores,
                aims=(CLAIM_AIM,),
            ),
            Result(
                subject=subject,
                case="from the report of a node's agent to each of its pods bound",
                samples=len(self.steps["pod bound"]),
                p50_ms=p50,
                p99_ms=p99,
                others_cores=self.others_cores,
                node_claims=len(self.claims),
                aims=aims,
            ),
        ]

    def table(self) -> list[str]:
        """Return a line a step: when the last of a node's devices or pods took it, and how long after the step before."""
        lines = [
            "s after the agent's report, last of a node | median | longest | after the step before, median"
        ]
        before = self.recorded
        for step in STEPS:
            taken = self._by_node(step)
            after = [
                at - self.recorded[node] for node, at in taken.items() if node in self.recorded
            ]
            since = [at - before[node] for node, at in taken.items() if node in before]
            if not after or not since:
                lines.append(f"{step}: not seen")
                continue
            lines.append(
                f"{step:24} | {statistics.median(after):5.2f} | {max(after):5.2f} | {statistics.median(since):+5.2f}"
            )
            before = taken
        return lines

    def pod(self, now: float, one: "JsonObject") -> None:
        name = one["metadata"]["name"]
        self.pods.setdefault(name, now)
        note = decode_reservation(
            one["metadata"].get("annotations", {}).get(RESERVATION_ANNOTATION)
        )
        if note is not None and note.node:
            self._take("units reserved", name, now)
        gates = {item["name"] for item in one["spec"].get("schedulingGates", ())}
        if CAPACITY_GATE not in gates:
            self._take("gate gone", name, now)
        if pods.is_bound(one):
            self._take("pod bound", name, now)
            self.node_of[name] = one["spec"]["nodeName"]

    def claim(self, now: float, one: "JsonObject") -> None:
        self.claims.setdefault(one["metadata"]["name"], now)

    def feature(self, now: float, one: "JsonObject") -> None:
        self.recorded.setdefault(
            one["metadata"]["name"].removeprefix("gpu-control-plane-agent-"), now
        )

    def device(self, now: float, one: "JsonObject") -> None:
        name, status = one["metadata"]["name"], one.get("status", {})
        self.devices[name] = one["metadata"].get("annotations", {}).get(DEVICE_NODE_ANNOTATION, "")
        self._take("GPUDevices made", name, now)
        if status.get("uuid"):
            self._take("GPUDevices told", name, now)
        if status.get("poolRef"):
            self._take("GPUDevices in the pool", name, now)

    def inventory(self, now: float, one: "JsonObject") -> None:
        for item in one.get("status", {}).get("conditions", ()):
            if (item["type"], item["status"]) == ("ReadyForPooling", "True"):
                self._take("node ready for pooling", one["metadata"]["name"], now)

    def node(self, now: float, one: "JsonObject") -> None:
        name = one["metadata"]["name"]
        allocatable = one.get("status", {}).get("allocatable", {})
        if any(
            key.startswith(RESOURCE_PREFIX) and count != "0" for key, count in allocatable.items()
        ):
            self._take("units allocatable", name, now)
            # The taint is there from the beginning.
            taints = {item["key"] for item in one["spec"].get("taints", ())}
            if AGENT_NOT_READY_TAINT not in taints:
                self._take("startup taint gone", name, now)

    def _take(self, step: str, name: str, now: float) -> None:
        self.steps.setdefault(step, {}).setdefault(name, now)

    def _by_node(self, step: str) -> dict[str, float]:
        """Return when the last device or pod of each node took a step."""
        taken = self.steps.get(step, {})
        places: dict[str, str] = {}
        if step in DEVICE_STEPS:
            places = self.devices
        elif step in POD_STEPS:
            places = self.node_of
        return _last((places.get(name, name), at) for name, at in taken.items())


def _last(times: "Iterable[tuple[str, float]]") -> dict[str, float]:
    found: dict[str, float] = {}
    for name, at in times:
        found[name] = max(at, found.get(name, at))
    return found


@contextlib.asynccontextmanager
async def measured(api: "ApiClient", namespace: str) -> "AsyncIterator[Timeline]":
    """Watch for as long as the context lasts."""
    line = Timeline()
    others = OtherPrograms()
    clock = asyncio.get_running_loop().time

    async def follow(path: str, see: "Callable[[float, JsonObject], None]", since: str) -> None:
        while True:  # the API server ends a watch that it could not serve for a while
            async with contextlib.aclosing(api.watch(path, resourceVersion=since)) as events:
                async for event in events:
                    since = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] in ("ADDED", "MODIFIED"):
                        see(clock(), event["object"])

    async with asyncio.TaskGroup() as group:
        tasks = []
        watched = (
            (pods.collection(namespace), line.pod),
            (karpenter.CLAIMS, line.claim),
            (_FEATURES, line.feature),
            (DEVICES, line.device),
            (_INVENTORIES, line.inventory),
            (_NODES, line.node),
        )
        for path, see in watched:
            since = (await api.get(path))["metadata"]["resourceVersion"]
            tasks.append(group.create_task(follow(path, see, since)))
        yield line
        line.others_cores = others.cores()
        for task in tasks:
            task.cancel()
