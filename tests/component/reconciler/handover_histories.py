"""Random histories of nodes that come, are handed over and leave, with faults at every turn and processes that end.

Everything goes through the API server in memory; `Drawn` chooses. What must hold at every moment is checked after each
step, and what must be true in the end once all has come to rest.
"""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from api import names
from api.annotations import decode_devices, encode_devices
from api.foreign.core import Pod
from autoscaling.scaling_model import RequestId
from kube.errors import KubeError
from kube.resources import GPU_DEVICES, NODES, PODS
from pool.facts import pod_facts
from pool.placement.planner import Placed
from pool.reservations.reservation import PlacementRequest
from tests.component.reconciler.cluster import Cluster
from tests.component.reconciler.handover_run import POOL, TAINT, Process, ScalingRun
from tests.support.cancellation import runs_through

if TYPE_CHECKING:
    from pool.model import PodFacts

Option = TypeVar("Option")
Json = dict[str, Any]

DEVICES = 2
"""Of a node."""
NODES_MADE = 4
LEAVES = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
DESPITE_FAULTS = 30


class Drawn(Protocol):
    def __call__(self, options: Sequence[Option]) -> Option: ...


def request_of(node: str) -> RequestId:
    return RequestId(f"{POOL}-00000000{node[1:]:0>2}")


class History:
    """A world with pods and nodes, and the process that leads."""

    def __init__(self, run: ScalingRun, pick: Drawn) -> None:
        self.run = run
        self.pick = pick
        self.world = Cluster(run.api, run.admin)
        self.made = 0
        self.pods_made = 0

    @property
    def process(self) -> Process:
        return self.run.process

    # --- what users, Karpenter, kubelets and kube-scheduler do ------------------------------------

    async def pod_comes(self) -> None:
        """Mostly as admission gates it; a stranger has no gate."""
        self.pods_made += 1
        units = self.pick((1, 1, 2))
        if self.pick((True, True, True, False)):
            await self.run.add_gated_pod(f"p{self.pods_made}", units=units)
        else:
            await self.run.add_gated_pod(f"s{self.pods_made}", units=units, schedulingGates=[])

    async def pod_goes(self) -> None:
        pods = await self.run.pods()
        if pods:
            await self.run.admin.delete(PODS, self.pick(sorted(pods)), namespace="default")

    async def node_comes(self) -> None:
        if self.made == NODES_MADE:
            return
        self.made += 1
        name = f"n{self.made}"
        await self.run.add_signal(request_of(name))
        await self.world.add_node(name, **{names.SCALE_REQUEST_LABEL: request_of(name)})
        await self.run.admin.merge_patch(NODES, {"spec": {"taints": [TAINT]}}, name=name)

    async def agent_reports(self) -> None:
        for node in await self.nodes():
            name = node["metadata"]["name"]
            if self.pick((True, False)):
                with contextlib.suppress(KubeError):
                    for number in range(DEVICES):
                        await self.world.add_device(f"{name}-{number}")
            if self.pick((True, False)):
                status = {"allocatable": {f"{names.RESOURCE_PREFIX}{POOL}": str(DEVICES)}}
                await self.run.admin.merge_patch(
                    NODES, {"status": status}, name=name, subresource="status"
                )

    async def node_leaves(self) -> None:
        nodes = await self.nodes()
        if not nodes:
            return
        node = self.pick(nodes)
        taints = [item for item in node["spec"].get("taints", []) if item["key"] != LEAVES["key"]]
        name = node["metadata"]["name"]
        patch = {"spec": {"taints": [*taints, LEAVES]}}
        await self.run.admin.merge_patch(NODES, patch, name=name)

    async def node_goes(self) -> None:
        for node in await self.nodes():
            name = node["metadata"]["name"]
            keys = [item["key"] for item in node["spec"].get("taints", [])]
            if LEAVES["key"] in keys and self.pick((True, False)):
                for pod in (await self.run.pods()).values():
                    if pod.spec.node_name == name:
                        await self.run.admin.delete(PODS, pod.metadata.name, namespace="default")
                await self.run.admin.delete(NODES, name)
                for number in range(DEVICES):
                    with contextlib.suppress(KubeError):
                        await self.run.admin.delete(GPU_DEVICES, f"{name}-{number}")

    async def pod_is_bound(self) -> None:
        """kube-scheduler asks for any pod without a gate and any node; a stranger tolerates everything."""
        nodes = [node["metadata"]["name"] for node in await self.nodes()]
        free = [
            pod
            for pod in (await self.run.pods()).values()
            if not pod.spec.scheduling_gates and not pod.spec.node_name
        ]
        if nodes and free:
            await self.bind(self.pick(free), names.NodeName(self.pick(nodes)))

    async def bind(self, pod: Pod, node: names.NodeName) -> None:
        state, now = self.process.cluster.allocation_state, self.process.clock.instant()
        pool, facts = state.index.pool(POOL), pod_facts(pod)
        assert pool is not None
        assert facts is not None
        if state.reader.pods.get(facts.uid) is None:
            return
        placed = state.reader.plan_bind(node, pool, facts.demand, uid=facts.uid)
        if not isinstance(placed, Placed):
            return
        held = state.ledger.of_pod(facts.uid)
        current = state.index.nodes.get(node)
        is_own = held is not None and held.node == node
        assert is_own or current is None or not current.is_starting, "a stranger got a unit first"
        request = PlacementRequest(
            id=self.process.context.scheduling.new_id(),
            pool=pool,
            demand=facts.demand,
            namespace="default",
            name=facts.name,
        )
        state.commit(request, placed, uid=facts.uid, now=now)
        binding = {
            "metadata": {
                "name": facts.name,
                "annotations": {names.DEVICES_ANNOTATION: encode_devices(placed.devices)},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.run.admin.create(
            PODS, binding, namespace="default", name=facts.name, subresource="binding"
        )
        state.written(facts.uid)

    # --- the process ------------------------------------------------------------------------------

    async def observe(self) -> None:
        await self.process.observe()
        self.plan()

    def plan(self) -> None:
        """Assign waiting gated pods to the nodes that are starting, first come, first served."""
        scaling = self.process.view.pools.get(POOL)
        if scaling is None:
            return
        waiting = [pod for pod in self.process.waiting() if pod.awaits_capacity]
        index = self.process.cluster.allocation_state.index
        assigned: dict[RequestId, tuple[names.PodUid, ...]] = {}
        for node in sorted(index.nodes.values(), key=lambda item: item.name):
            if not node.is_starting or node.is_leaving:
                continue
            figures = index.state(POOL).node(node.name)
            left = figures.free if figures is not None else DEVICES
            pods: list[PodFacts] = []
            for pod in list(waiting):
                if pod.demand.units <= left:
                    left -= pod.demand.units
                    pods.append(pod)
                    waiting.remove(pod)
            assigned[request_of(node.name)] = tuple(pod.uid for pod in pods)
        object.__setattr__(scaling.plan, "assigned", assigned)

    async def reconcile(self) -> None:
        """One controller runs; it may be cut off, or requests of it may fail."""
        work = self.pick(tuple(self.controllers()))
        faults = self.run.api.faults
        match self.pick(("whole", "whole", "cancelled", "refused", "unanswered", "unsent")):
            case "cancelled":
                await runs_through(_ignoring_errors(work()), cancel_at=self.pick(range(1, 7)))
                return
            case "refused":
                faults.fail("", "", self.pick((409, 422, 500)), nth=self.pick(range(1, 7)))
            case "unanswered":
                faults.reset_after("", "", nth=self.pick(range(1, 7)))
            case "unsent":
                faults.reset_before("", "", nth=self.pick(range(1, 7)))
            case _:
                pass
        await _ignoring_errors(work())
        faults.clear()

    def controllers(self) -> Any:
        for number in range(1, self.made + 1):
            name = names.NodeName(f"n{number}")
            yield lambda name=name: self.process.handover.reconcile(name)
            yield lambda name=name: self.process.leaving.reconcile(name)
            yield lambda name=name: self.process.cluster.node_marks.reconcile(name)
        yield self.process.give

    async def restart(self) -> None:
        await self.run.restart()
        self.plan()

    async def time_passes(self) -> None:
        self.process.clock.offset_s += self.pick((1, 31, 70, 130))
        self.process.cluster.allocation_state.expire(self.process.clock.instant())

    # --- what is true -----------------------------------------------------------------------------

    async def nodes(self) -> list[Json]:
        return (await self.run.admin.list_(NODES, Json)).items

    async def no_unit_is_given_twice(self) -> None:
        """Bound pods and reservations have each unit once."""
        state = self.process.cluster.allocation_state
        taken = [unit for item in state.ledger.all() for unit in item.units]
        bound = {}
        for pod in (await self.run.pods()).values():
            if pod.spec.node_name:
                devices = decode_devices(pod.metadata.annotation(names.DEVICES_ANNOTATION)) or {}
                bound[pod.metadata.uid] = [unit for units in devices.values() for unit in units]
        for item in state.ledger.all():
            if item.uid in bound:
                taken = [unit for unit in taken if unit not in item.units]
        given = [*taken, *(unit for units in bound.values() for unit in units)]
        assert len(given) == len(set(given)), given

    async def becomes_idle(self) -> None:
        """All controllers run until nothing changes; kubelets and agents have told everything."""
        self.run.api.faults.clear()
        for _ in range(DESPITE_FAULTS):
            self.process.clock.offset_s += 31
            await self.observe()
            self.process.cluster.allocation_state.expire(self.process.clock.instant())
            self.run.api.requests.clear()
            for work in list(self.controllers()):
                await work()
            if not self.process.cluster.writes():
                break
        else:
            raise AssertionError("it does not come to rest")
        await self.observe()
        await self.no_unit_is_given_twice()
        await self.nothing_is_left_behind()

    async def nothing_is_left_behind(self) -> None:
        state = self.process.cluster.allocation_state
        index = state.index
        signals = await self.run.signals()
        for node in await self.nodes():
            name = names.NodeName(node["metadata"]["name"])
            keys = [item["key"] for item in node["spec"].get("taints", [])]
            facts = index.nodes[name]
            figures = index.state(POOL).node(name)
            units = figures.total if figures is not None else 0
            is_reported = (
                0 < units <= dict(facts.pool_units).get(f"{names.RESOURCE_PREFIX}{POOL}", 0)
            )
            if LEAVES["key"] in keys:
                assert [item for item in state.ledger.all() if item.node == name] == []
                continue
            assert (names.AGENT_NOT_READY_TAINT in keys) is not is_reported
            assert (f"scale-{request_of(name)}" in signals) is not is_reported
        pool = index.pool(POOL)
        assert pool is not None
        for pod in (await self.run.pods()).values():
            if any(gate.name == names.CAPACITY_GATE for gate in pod.spec.scheduling_gates or ()):
                facts_of_pod = pod_facts(pod)
                assert facts_of_pod is not None
                fits = index.view(POOL, facts_of_pod.demand).scores
                assert not fits, f"pod {pod.metadata.name} is gated, and fits {fits}"


async def _ignoring_errors(work: Any) -> None:
    with contextlib.suppress(KubeError):
        await work


ACTIONS = {
    "pod_comes": 8,
    "pod_goes": 2,
    "node_comes": 3,
    "agent_reports": 4,
    "node_leaves": 1,
    "node_goes": 1,
    "pod_is_bound": 6,
    "observe": 10,
    "reconcile": 16,
    "restart": 1,
    "time_passes": 2,
}
