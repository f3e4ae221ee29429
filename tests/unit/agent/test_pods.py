"""The node's pods: what is kept of them, and in which order."""

import msgspec
import pytest

from agent.kubelet.node_pods import NodePod, NodePods, any_node_pod, node_pod
from api.foreign.core import Pod
from api.names import MIRROR_ANNOTATION, PodUid
from kube.decoding import Listing
from kube.unread_objects import UnreadObject
from pool.model import ContainerRole
from tests.support.bound_pods import RESOURCE, a_bound_pod
from tests.support.listings import replace_listed


def kept(pod: Pod) -> NodePod:
    found = node_pod(pod)
    assert found is not None
    return found


def test_containers_that_ask_are_kept_in_kubelets_order():
    pod = kept(
        a_bound_pod(
            "p",
            init={"i": 1, "none": 0},
            sidecars={"s": 2},
            main={"a": 0, "b": 3},
            assigned={"b": ("GPU-1",)},
        )
    )
    asking = [(ask.name, ask.kind, ask.counts[RESOURCE]) for ask in pod.asks_for(RESOURCE)]
    assert asking == [
        ("i", ContainerRole.INIT, 1),
        ("s", ContainerRole.SIDECAR, 2),
        ("b", ContainerRole.MAIN, 3),
    ]
    assert pod.assigned == {"b": ("GPU-1",)}
    assert pod.asks_for("r/other") == ()


def test_a_pod_that_asks_for_nothing_is_not_kept():
    assert node_pod(a_bound_pod("p", main={"a": 0})) is None


def test_pods_stay_in_the_order_of_their_bindings_whatever_changes():
    pods = NodePods()
    first, second = kept(a_bound_pod("z")), kept(a_bound_pod("a"))
    before = pods.changed
    for pod in (first, second, kept(a_bound_pod("z", phase="Running"))):
        pods.upsert(pod)
    assert before.is_set()
    assert [pod.name for pod in pods.all()] == ["z", "a"]
    pods.replace_all([second])
    assert [pod.name for pod in pods.all()] == ["a"]
    assert pods.find("default", "z") is None


def test_of_one_name_the_one_that_has_not_ended_is_found():
    pods = NodePods()
    pods.upsert(kept(a_bound_pod("p", uid="1", phase="Failed")))
    assert pods.find("default", "p") is None
    pods.upsert(kept(a_bound_pod("p", uid="2")))
    found = pods.find("default", "p")
    assert found is not None
    assert found.uid == "2"
    unmoved = pods.changed
    pods.discard(kept(a_bound_pod("q")))
    assert not unmoved.is_set()


def test_pods_without_resources_are_known_by_their_ids_alone():
    pods = NodePods()
    asking, plain = a_bound_pod("a"), a_bound_pod("b", main={"main": 0})
    pods.replace_all([any_node_pod(asking), any_node_pod(plain)])
    before = pods.changed
    pods.upsert(any_node_pod(plain))
    assert not before.is_set()
    assert [pod.name for pod in pods.all()] == ["a"]
    assert pods.get(PodUid("uid-b")) is pods.find("default", "b") is None
    found = pods.get_any(PodUid("uid-b"))
    assert found is not None
    assert (found.namespace, found.name, found.containers) == ("default", "b", ())
    assert pods.get_any(PodUid("uid-a")) is pods.get(PodUid("uid-a")) is not None
    pods.discard(any_node_pod(plain))
    assert pods.get_any(PodUid("uid-b")) is None
    pods.upsert(any_node_pod(plain))
    pods.replace_all([any_node_pod(asking)])
    assert pods.get_any(PodUid("uid-b")) is None


def test_static_pod_has_the_id_that_kubelet_gave_it():
    current = a_bound_pod("a", main={"main": 0})
    metadata = msgspec.structs.replace(current.metadata, annotations={MIRROR_ANNOTATION: "digest"})
    found = any_node_pod(msgspec.structs.replace(current, metadata=metadata))
    assert found.uid == "digest"


@pytest.mark.parametrize(
    ("selector", "has_label"),
    [(None, False), ("kubernetes.io/os", False), ("nvidia.com/gpu.deploy.dcgm", True)],
)
def test_pod_of_an_operand_is_known_by_its_node_selector(selector: str | None, *, has_label: bool):
    spec = {"nodeSelector": {selector: "true"}} if selector else {}
    pod = msgspec.convert({"metadata": {"name": "p", "uid": "1"}, "spec": spec}, Pod)
    assert any_node_pod(pod).has_deploy_label is has_label


@pytest.mark.parametrize("units", [0, 1])
def test_a_pod_is_kept_over_a_list_that_cannot_read_it(units: int):
    pods = NodePods()
    pod = any_node_pod(a_bound_pod("a", main={"main": units}))
    pods.upsert(pod)
    unread = UnreadObject("default", "a", pod.uid)
    listing: Listing[NodePod] = Listing(items=[], resource_version="1", unread=[unread])
    replace_listed(pods, listing)
    assert pods.get_any(pod.uid) == pod
