"""Holders of units: kubelet's List, and the allocations since."""

from agent.kubelet.node_pods import NodePod, NodePods, node_pod
from agent.plugin.held_units import HeldUnits, HoldingPod
from api.foreign.core import Pod
from api.kubelet.podresources import ContainerUnits, PodUnits
from api.names import PodUid
from tests.support.bound_pods import RESOURCE, a_bound_pod

OTHER = "gpu.deckhouse.io/other"


def current(pods: NodePods, pod: Pod) -> NodePod:
    found = node_pod(pod)
    assert found is not None
    pods.upsert(found)
    return found


def listed(name: str, container: str = "main", *units: str, resource: str = RESOURCE) -> PodUnits:
    return PodUnits(
        "default", name, (ContainerUnits(container, {resource: units} if units else {}),)
    )


def test_who_is_listed_holds_what_is_listed():
    pods = NodePods()
    held_units = HeldUnits(pods)
    pod = current(pods, a_bound_pod("p"))
    held_units.refresh([listed("p", "main", "GPU-1"), listed("unseen", "main", "GPU-2")])
    assert held_units.holder("GPU-1", RESOURCE, None) == HoldingPod("default/p", PodUid("uid-p"))
    assert held_units.holder("GPU-2", RESOURCE, None) == HoldingPod("default/unseen", None)
    assert held_units.holder("GPU-1", RESOURCE, pod) is None
    assert held_units.holder("GPU-3", RESOURCE, None) is None
    assert held_units.has_units(pod.uid, "main", RESOURCE)
    held_units.refresh([])
    assert held_units.holder("GPU-1", RESOURCE, None) is None


def test_what_an_init_container_has_is_held_as_long_as_its_pod_is_listed():
    pods = NodePods()
    held_units = HeldUnits(pods)
    pod = current(pods, a_bound_pod("p", init={"i": 2}))
    held_units.record_allocation(pod, "i", resource=RESOURCE, units=["GPU-1", "GPU-2"])
    held_units.refresh([listed("p", "main", "GPU-1")])
    assert held_units.holder("GPU-2", RESOURCE, None) == HoldingPod("default/p", pod.uid)
    held_units.refresh([listed("q")])
    assert held_units.holder("GPU-2", RESOURCE, None) is None


def test_what_kubelet_lists_for_a_container_replaces_what_it_was_given():
    """kubelet died before it wrote it down, and asked again."""
    pods = NodePods()
    held_units = HeldUnits(pods)
    pod = current(pods, a_bound_pod("p"))
    held_units.record_allocation(pod, "main", resource=RESOURCE, units=["GPU-1"])
    assert held_units.holder("GPU-1", RESOURCE, None) == HoldingPod("default/p", pod.uid)
    held_units.refresh([listed("p", "main", "GPU-2")])
    assert held_units.holder("GPU-1", RESOURCE, None) is None
    held_units.record_allocation(pod, "main", resource=RESOURCE, units=["GPU-3"])
    held_units.record_allocation(pod, "main", resource=RESOURCE, units=["GPU-4"])
    assert held_units.holder("GPU-3", RESOURCE, None) is None
    assert held_units.holder("GPU-4", RESOURCE, None) is not None


def test_a_pod_of_the_same_name_inherits_nothing_and_loses_nothing():
    pods = NodePods()
    held_units = HeldUnits(pods)
    first = current(pods, a_bound_pod("p", uid="first", init={"i": 1}))
    held_units.record_allocation(first, "i", resource=RESOURCE, units=["GPU-1"])
    pods.discard(first)
    second = current(pods, a_bound_pod("p", uid="second"))
    held_units.refresh([listed("p")])
    held_units.forget_namesakes(second)
    assert held_units.holder("GPU-1", RESOURCE, None) is None
    assert not held_units.has_units(second.uid, "main", RESOURCE)


def test_while_kubelet_does_not_list_pods_that_ended_hold_nothing():
    pods = NodePods()
    held_units = HeldUnits(pods)
    ended, live = current(pods, a_bound_pod("ended")), current(pods, a_bound_pod("live"))
    held_units.refresh([listed("ended", "main", "GPU-1"), listed("live", "main", "GPU-2")])
    current(pods, a_bound_pod("ended", phase="Succeeded"))
    assert held_units.holder("GPU-1", RESOURCE, None) is not None  # kubelet says so
    held_units.mark_stale()
    assert held_units.holder("GPU-1", RESOURCE, None) is None
    assert held_units.holder("GPU-2", RESOURCE, None) is not None
    pods.discard(live)
    assert held_units.holder("GPU-2", RESOURCE, None) is None
    assert ended.ref == "default/ended"


def test_a_device_is_one_thing_in_every_cut_and_pool_and_slices_are_not():
    held_units = HeldUnits(NodePods())
    held_units.refresh(
        [
            listed("a", "main", "GPU-1::0"),
            listed("b", "main", "GPU-2"),
            listed("c", "main", "GPU-3", resource=OTHER),
        ]
    )
    assert held_units.holder("GPU-1::1", RESOURCE, None) is None
    assert held_units.holder("GPU-1::0", RESOURCE, None) is not None
    assert held_units.holder("GPU-1", RESOURCE, None) is not None
    assert held_units.holder("GPU-1::1", OTHER, None) is not None
    assert held_units.holder("GPU-2::1", RESOURCE, None) is not None
    assert held_units.holder("GPU-3", RESOURCE, None) is not None
    assert held_units.holder("GPU-4", RESOURCE, None) is None


def test_pods_that_are_gone_leave_nothing_behind():
    pods = NodePods()
    held_units = HeldUnits(pods)
    for number in range(1000):
        pod = current(pods, a_bound_pod(f"p{number}"))
        held_units.refresh([listed(f"p{number}")])
        held_units.record_allocation(pod, "main", resource=RESOURCE, units=["GPU-1"])
        pods.discard(pod)
    held_units.refresh([])
    assert not held_units._allocated
    assert not held_units._with_units
    assert not held_units._by_part
