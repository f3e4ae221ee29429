"""Plans, one after the other, while pods and nodes come and go: a state machine.

Each plan is compared with what must hold of any plan, whatever has happened before.
"""

from hypothesis import settings, stateful
from hypothesis import strategies as st

from autoscaling.scaling_model import RequestId, RequestPhase, ScalingPlan, WaitReason
from pool.index.node_view import PoolNode
from pool.model import PodFacts, PodSelection
from tests.support.naive_scaling_planner import all_fit, fewest_new_nodes
from tests.support.scaling_plans import a_shape, a_waiting_pod, some_parameters
from tests.support.scaling_world import ScalingWorld

ZONE = "topology.kubernetes.io/zone"
LIMITS = {WaitReason.MAX_UNITS, WaitReason.MAX_IN_FLIGHT}


class PlansInTime(stateful.RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    @stateful.initialize(
        sizes=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3, unique=True),
        max_units=st.sampled_from([None, 16, 40]),
        max_in_flight=st.sampled_from([2, 100]),
        warm_units=st.sampled_from([0, 0, 3]),
    )
    def start(
        self, sizes: list[int], max_units: int | None, max_in_flight: int, warm_units: int
    ) -> None:
        shapes = [a_shape(f"s{size}", size) for size in sizes]
        parameters = some_parameters(
            *shapes, max_units=max_units, max_in_flight=max_in_flight, warm_units=warm_units
        )
        self.world = ScalingWorld(parameters)

    @stateful.rule(
        units=st.integers(1, 8),
        priority=st.integers(0, 1),
        zone=st.sampled_from(["", "", "a", "b"]),
    )
    def a_pod_comes(self, units: int, priority: int, zone: str) -> None:
        if len(self.world.waiting) >= 7:
            return
        self.made += 1
        selection = PodSelection(((ZONE, zone),)) if zone else None
        pod = a_waiting_pod(
            f"p{self.made:03}",
            units=units,
            priority=priority,
            created=f"2026-01-01T00:{self.made // 60:02}:{self.made % 60:02}Z",
            selection=selection,
        )
        self.world.waiting[pod.uid] = pod

    @stateful.rule(data=st.data())
    def a_pod_goes(self, data: st.DataObject) -> None:
        uids = sorted([*self.world.waiting, *self.world.running])
        if uids:
            self.world.end(data.draw(st.sampled_from(uids)))

    @stateful.rule()
    def the_plan_is_carried_out(self) -> None:
        """A plan without cancels is carried out once; each cancel of a node that nothing needs may free capacity."""
        for _ in range(4):
            plan = self.world.plan()
            self.check(plan)
            if not plan.requests and not plan.cancels:
                return
            self.world.carry_out(plan)
            again = self.world.plan()
            assert not again.requests or plan.cancels
        raise AssertionError("plans do not come to rest")

    @stateful.rule(data=st.data())
    def a_node_is_launched(self, data: st.DataObject) -> None:
        self.change(data, {RequestPhase.SIGNALLED}, "launch")

    @stateful.rule(data=st.data())
    def a_launch_fails(self, data: st.DataObject) -> None:
        self.change(data, {RequestPhase.SIGNALLED, RequestPhase.LAUNCHED}, "fail")

    @stateful.rule(data=st.data())
    def a_node_arrives(self, data: st.DataObject) -> None:
        self.change(data, {RequestPhase.LAUNCHED}, "arrive")

    @stateful.rule(data=st.data())
    def a_node_is_handed_over(self, data: st.DataObject) -> None:
        ids = self.ids({RequestPhase.AGENT_READY})
        if ids:
            id_ = data.draw(st.sampled_from(ids))
            self.world.hand_over(id_, self.world.plan().assigned.get(id_, ()))

    @stateful.rule(data=st.data())
    def an_empty_node_goes(self, data: st.DataObject) -> None:
        names = sorted(self.world.empty_nodes())
        if names:
            self.world.remove(data.draw(st.sampled_from(names)))

    @stateful.precondition(lambda self: hasattr(self, "world"))
    @stateful.invariant()
    def units_are_within_the_limit(self) -> None:
        most = self.world.parameters.max_units
        coming = [
            item.shape.units
            for item in self.world.in_flight
            if item.node is None and item.is_in_flight and item.shape is not None
        ]
        assert most is None or sum(self.world.units.values()) + sum(coming) <= most

    def ids(self, phases: set[RequestPhase]) -> list[RequestId]:
        return sorted(id_ for id_, item in self.world.requests.items() if item.phase in phases)

    def change(self, data: st.DataObject, phases: set[RequestPhase], how: str) -> None:
        ids = self.ids(phases)
        if ids:
            getattr(self.world, how)(data.draw(st.sampled_from(ids)))

    def check(self, plan: ScalingPlan) -> None:
        world = self.world
        for cancel in plan.cancels:
            assert world.requests[cancel.id].claim is None
        in_flight = [item for item in world.in_flight if item.is_in_flight]
        if plan.requests:
            assert len(in_flight) + len(plan.requests) <= world.parameters.max_in_flight
        self.check_pods(plan)
        if plan.warm_wait is None and not plan.waits and not world.parameters.warm_units:
            pod_counts = [(item.free, 0) for item in self.existing()]
            pod_counts += [(self.capacity_of(item.id), 0) for item in in_flight]
            needs = [(pod.demand.units, 0) for pod in world.waiting.values()]
            shapes = [(shape.units, 0) for shape in world.parameters.shapes]
            least = fewest_new_nodes(needs, pod_counts, shapes)
            assert least is not None
            assert len(plan.requests) >= least

    def check_pods(self, plan: ScalingPlan) -> None:
        """Every pod has exactly one of: units that are free, a node of its own zone, or a reason."""
        world = self.world
        assigned = [uid for uids in plan.assigned.values() for uid in uids]
        assert len(assigned) == len(set(assigned))
        assert not set(assigned) & plan.waits.keys()
        shapes = {request.id: request.shape.units for request in plan.requests}
        for id_, uids in plan.assigned.items():
            pods = [world.waiting[uid] for uid in uids]
            units = sum(pod.demand.units for pod in pods)
            assert units <= (shapes[id_] if id_ in shapes else self.capacity_of(id_))
            assert len({_zone(pod) for pod in pods} - {""}) <= 1
        here = [pod for uid, pod in world.waiting.items() if uid not in {*assigned, *plan.waits}]
        pod_counts = [(item.free, 0) for item in self.existing()]
        assert all_fit([(pod.demand.units, 0) for pod in here], pod_counts)
        assert not [pod for pod in here if _zone(pod)], "no node that exists has a zone"
        largest = max(item.units for item in world.parameters.shapes)
        for uid, wait in plan.waits.items():
            is_too_large = world.waiting[uid].demand.units > largest
            assert (wait.reason is WaitReason.TOO_LARGE) is is_too_large or wait.reason in LIMITS

    def existing(self) -> list[PoolNode]:
        coming = {item.node.name for item in self.world.in_flight if item.node is not None}
        nodes = self.world.state.index.state(self.world.parameters.pool.name).nodes()
        return [item for name, item in nodes.items() if name not in coming]

    def capacity_of(self, id_: str) -> int:
        one = next(item for item in self.world.in_flight if item.id == id_)
        assert one.shape is not None
        return one.shape.units


def _zone(pod: PodFacts) -> str:
    return pod.selection.node_selector[0][1] if pod.selection is not None else ""


TestPlansInTime = PlansInTime.TestCase
PROFILE = settings()
TestPlansInTime.settings = settings(
    max_examples=max(100, PROFILE.max_examples), stateful_step_count=30
)
