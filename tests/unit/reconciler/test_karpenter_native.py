"""Which nodes the control plane asks for where Karpenter sees the pods itself."""

from collections.abc import Sequence

from api.kinds.gpupool import DeviceTopology
from api.names import PodUid
from autoscaling.scaling_model import NodeRequest, Purpose, ScalingPlan
from pool.allocation_state import AllocationState
from reconciler.scaling.backends.karpenter_native import KarpenterNative
from tests.support.builders import a_device, a_node, a_pod_facts, a_pool, at
from tests.support.node_requests import a_node_request


def taken(
    *requests: NodeRequest, free: Sequence[int] = (), pods: Sequence[int] = (2,)
) -> list[NodeRequest]:
    """Return what is asked for with nodes of so many free devices, and waiting pods p0, p1, ... of so many units."""
    state = AllocationState()
    state.index.replace_pool(a_pool("training", device_topology=DeviceTopology.REQUIRED))
    for place, devices in enumerate(free):
        state.index.replace_node(a_node(f"n{place}"))
        for number in range(devices):
            state.index.replace_device(a_device(f"n{place}", number, "training"))
    for number, units in enumerate(pods):
        state.observe_pod(a_pod_facts(f"p{number}", units=units, pool="training"), at(number))
    backend = KarpenterNative(None, state.index, state.reader)  # type: ignore[arg-type]  # not asked
    plan = ScalingPlan(requests=requests, assigned={one.id: one.pods for one in requests})
    return list(backend.taken(plan))


def request_for(*pods: int) -> NodeRequest:
    return a_node_request(
        f"training-{pods[0]:010x}", pods=tuple(PodUid(f"uid-p{one}") for one in pods)
    )


def test_pods_that_fit_no_node_by_number_are_karpenters():
    for free in ([], [1], [1, 1]):
        assert taken(request_for(0), free=free) == []


def test_a_pod_that_fits_by_number_and_not_by_device_needs_a_signal():
    """Weak point 16: Karpenter takes it for placed, and keeps the node for it."""
    request = request_for(0)
    assert taken(request, free=[2]) == [request]


def test_units_that_other_pods_are_about_to_take_are_not_seen_as_free():
    """A node has come for four of six pods, and Karpenter adds another one for the others."""
    assert taken(request_for(4, 5), free=[4], pods=[1] * 6) == []


def test_of_pods_that_fit_by_number_only_as_many_need_signals_as_karpenter_takes_for_placed():
    first, second = request_for(0), request_for(1)
    assert taken(first, second, free=[1, 3], pods=[2, 2]) == [first]


def test_units_that_no_pod_waits_for_need_a_signal():
    warm = a_node_request(purpose=Purpose.WARM, pods=())
    assert taken(warm) == [warm]
