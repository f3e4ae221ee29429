"""Who has which unit: kubelet's list, and what was given since."""

from agent.kubelet.pods import NodePod, NodePods, node_pod
from agent.plugin.held_units import HeldUnits, Holder
from api.foreign.core import Pod
from api.kubelet.podresources import ContainerUnits, PodUnits
from api.names import PodUid
from tests.support.bound_pods import RESOURCE, a_bound_pod

OTHER = "gpu.deckhouse.io/other"


def shown(pods: NodePods, pod: Pod) -> NodePod:
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
    holdings = HeldUnits(pods)
    pod = shown(pods, a_bound_pod("p"))
    holdings.refresh([listed("p", "main", "GPU-1"), listed("unseen", "main", "GPU-2")])
    assert holdings.holder("GPU-1", RESOURCE, None) == Holder("default/p", PodUid("uid-p"))
    assert holdings.holder("GPU-2", RESOURCE, None) == Holder("default/unseen", None)
    assert holdings.holder("GPU-1", RESOURCE, pod) is None
    assert holdings.holder("GPU-3", RESOURCE, None) is None
    assert holdings.is_served(pod.uid, "main", RESOURCE)
    holdings.refresh([])
    assert holdings.holder("GPU-1", RESOURCE, None) is None


def test_what_an_init_container_has_is_held_as_long_as_its_pod_is_listed():
    pods = NodePods()
    holdings = HeldUnits(pods)
    pod = shown(pods, a_bound_pod("p", init={"i": 2}))
    holdings.grant(pod, "i", resource=RESOURCE, units=["GPU-1", "GPU-2"])
    holdings.refresh([listed("p", "main", "GPU-1")])
    assert holdings.holder("GPU-2", RESOURCE, None) == Holder("default/p", pod.uid)
    holdings.refresh([listed("q")])
    assert holdings.holder("GPU-2", RESOURCE, None) is None


def test_what_kubelet_lists_for_a_container_replaces_what_it_was_given():
    """kubelet died before it wrote it down, and asked again."""
    pods = NodePods()
    holdings = HeldUnits(pods)
    pod = shown(pods, a_bound_pod("p"))
    holdings.grant(pod, "main", resource=RESOURCE, units=["GPU-1"])
    assert holdings.holder("GPU-1", RESOURCE, None) == Holder("default/p", pod.uid)
    holdings.refresh([listed("p", "main", "GPU-2")])
    assert holdings.holder("GPU-1", RESOURCE, None) is None
    holdings.grant(pod, "main", resource=RESOURCE, units=["GPU-3"])
    holdings.grant(pod, "main", resource=RESOURCE, units=["GPU-4"])
    assert holdings.holder("GPU-3", RESOURCE, None) is None
    assert holdings.holder("GPU-4", RESOURCE, None) is not None


def test_a_pod_of_the_same_name_inherits_nothing_and_loses_nothing():
    pods = NodePods()
    holdings = HeldUnits(pods)
    first = shown(pods, a_bound_pod("p", uid="first", init={"i": 1}))
    holdings.grant(first, "i", resource=RESOURCE, units=["GPU-1"])
    pods.discard(first)
    second = shown(pods, a_bound_pod("p", uid="second"))
    holdings.refresh([listed("p")])
    holdings.settle(second)
    assert holdings.holder("GPU-1", RESOURCE, None) is None
    assert not holdings.is_served(second.uid, "main", RESOURCE)


def test_while_kubelet_does_not_list_pods_that_ended_hold_nothing():
    pods = NodePods()
    holdings = HeldUnits(pods)
    ended, live = shown(pods, a_bound_pod("ended")), shown(pods, a_bound_pod("live"))
    holdings.refresh([listed("ended", "main", "GPU-1"), listed("live", "main", "GPU-2")])
    shown(pods, a_bound_pod("ended", phase="Succeeded"))
    assert holdings.holder("GPU-1", RESOURCE, None) is not None  # kubelet says so
    holdings.outdate()
    assert holdings.holder("GPU-1", RESOURCE, None) is None
    assert holdings.holder("GPU-2", RESOURCE, None) is not None
    pods.discard(live)
    assert holdings.holder("GPU-2", RESOURCE, None) is None
    assert ended.ref == "default/ended"


def test_a_device_is_one_thing_in_every_cut_and_pool_and_slices_are_not():
    holdings = HeldUnits(NodePods())
    holdings.refresh(
        [
            listed("a", "main", "GPU-1::0"),
            listed("b", "main", "GPU-2"),
            listed("c", "main", "GPU-3", resource=OTHER),
        ]
    )
    assert holdings.holder("GPU-1::1", RESOURCE, None) is None
    assert holdings.holder("GPU-1::0", RESOURCE, None) is not None
    assert holdings.holder("GPU-1", RESOURCE, None) is not None
    assert holdings.holder("GPU-1::1", OTHER, None) is not None
    assert holdings.holder("GPU-2::1", RESOURCE, None) is not None
    assert holdings.holder("GPU-3", RESOURCE, None) is not None
    assert holdings.holder("GPU-4", RESOURCE, None) is None


def test_pods_that_are_gone_leave_nothing_behind():
    pods = NodePods()
    holdings = HeldUnits(pods)
    for number in range(1000):
        pod = shown(pods, a_bound_pod(f"p{number}"))
        holdings.refresh([listed(f"p{number}")])
        holdings.grant(pod, "main", resource=RESOURCE, units=["GPU-1"])
        pods.discard(pod)
    holdings.refresh([])
    assert not holdings._granted
    assert not holdings._served
    assert not holdings._by_part
