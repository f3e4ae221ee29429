"""`kubectl gpu why` and copies of a cluster explain by what the server decides by: caches, CPU, pods of all kinds, the pool that serves."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec import structs

from api.clock import Instant
from api.foreign.core import Pod
from api.kinds.gpupool import GPUPool
from api.names import NodeName, PoolName, pool_node_label
from cli.simulation.object_files import read_cluster
from cli.simulation.pod_answer import answer_for
from cli.simulation.pod_file import pod_of_object
from cli.simulation.pod_scheduling import PodCreator
from cli.simulation.snapshot import Snapshot, take_snapshot
from kube.resources import GKM_CACHES, Resource
from kubectl_gpu.cluster_lists import ClusterLists
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.errors import ForbiddenError
from kubectl_gpu.verbs.pools import fits_of
from kubectl_gpu.waiting import pool_reading
from kubectl_gpu.waiting.pod_wait import wait_of
from kubectl_gpu.what_if.verb import copy_of
from pool.facts import pod_facts
from pool.fitting_pods import fitting_pods
from pool.model import PodFacts
from pool.placement.planner import Placed
from pool.what_if.explain import explain
from pool.what_if.explanation import Explanation, UnitWaitReason
from pool.what_if.question import WaitQuestion
from telemetry.explanation_texts import wait_summary
from telemetry.remedy_texts import node_reason
from tests.support.cluster_objects import (
    Object,
    a_bound_pod_object,
    a_device_object,
    a_list_file,
    a_pool_object,
)
from tests.support.console_feed import ConsoleFeed
from tests.support.kernel_caches import D1
from tests.support.listed_clusters import asked_pods, clusters
from tests.support.listed_objects import NOW, ListedObjects
from tests.support.plugin_cluster import a_pool_node, a_waiting_pod, labelled

CACHE: Object = {
    "apiVersion": "gkm.io/v1alpha1",
    "kind": "GKMCache",
    "metadata": {"name": "llama", "namespace": "ml-team", "uid": "u"},
    "spec": {"image": "r/x:1"},
    "status": {
        "resolvedDigest": D1,
        "image": {
            "type": "triton",
            "targets": [{"backend": "cuda", "arch": "90", "warpSize": 32}],
            "layerBytes": 1,
        },
    },
}
MOUNTED = {
    "name": "c",
    "csi": {
        "driver": "csi.gkm.io",
        "volumeAttributes": {
            "csi.gkm.io/GKMCache": "llama",
            "csi.gkm.io/namespace": "ml-team",
        },
    },
}


class SelectedObjects(ListedObjects):
    """Honours label selectors, and fields of metadata and spec, as an API server does."""

    forbidden: Resource | None = None

    def pages(self, query: ListQuery) -> Iterator[bytes]:
        if query.resource is self.forbidden:
            raise ForbiddenError(f"{query.resource.plural} may not be listed")
        key, equals, value = query.labels.partition("=")
        for page in super().pages(query):
            (item,) = json.loads(page)["items"]
            labels = item["metadata"].get("labels") or {}
            is_labelled = not key or (key in labels and (not equals or labels[key] == value))
            field, _, expected = query.fields.partition("=")
            part, _, name = field.partition(".")
            is_of_field = not name or part == "status" or item[part].get(name) == expected
            if is_labelled and is_of_field:
                yield page


def why(objects: list[Object], pod: Object) -> tuple[Explanation, list[str]]:
    lists = ClusterLists(SelectedObjects(objects))
    found = wait_of(lists, msgspec.convert(pod, Pod, strict=False)).explanation
    assert found is not None
    return found, lists.gaps


def copy_of_server(directory: Path, objects: list[Object]) -> Snapshot:
    return take_snapshot(
        read_cluster([a_list_file(directory / "c.json", *objects)]), Instant(0.0, NOW)
    )


def facts_of(pod: Object) -> PodFacts:
    facts = pod_facts(msgspec.convert(pod, Pod, strict=False))
    assert facts is not None
    return facts


def explained(snapshot: Snapshot, pod: Object) -> Explanation:
    question = WaitQuestion(pod=facts_of(pod), now=0.0)
    return explain(snapshot.state.reader, snapshot.index, question)


def a_small_pool(pod: Object, *more: Object, **device: Any) -> list[Object]:
    nodes = [a_pool_node("whole", "n1"), a_device_object("n1", 0, **device)]
    return [a_pool_object("whole"), *nodes, *more, pod]


def a_pod_without_units(cpu: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "pod-web"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": "Running"},
    }


def test_kernel_caches_of_the_pod_decide(tmp_path: Path):
    pod = a_waiting_pod("mine", 1, pool="whole", volumes=[MOUNTED])
    objects = a_small_pool(pod, CACHE, computeCapability="8.0")
    assert why(objects, pod)[0].reason is UnitWaitReason.CACHES_FIT_NO_DEVICE
    snapshot = copy_of_server(tmp_path, objects)
    pool = snapshot.index.pool(PoolName("whole"))
    assert pool is not None
    plan = snapshot.state.reader.plan_bind(
        NodeName("n1"), pool, facts_of(pod).demand, uid=facts_of(pod).uid
    )
    assert not isinstance(plan, Placed)


def test_no_remedy_is_named_to_a_pod_whose_kernel_caches_may_not_be_read():
    """The holder's device may not be one that the cache fits."""
    pod = a_waiting_pod("mine", 1, pool="whole", volumes=[MOUNTED])
    holder = labelled(a_bound_pod_object("holder", "n1", [0], pool="whole"), pool="whole")
    source = SelectedObjects(a_small_pool(pod, CACHE, holder, computeCapability="9.0"))

    def remedies() -> tuple[int, int]:
        lists = ClusterLists(source)
        found = wait_of(lists, msgspec.convert(pod, Pod, strict=False)).explanation
        assert found is not None
        return len(found.remedies), len(lists.gaps)

    assert remedies() == (1, 0)
    source.forbidden = GKM_CACHES
    assert remedies() == (0, 1)


def test_the_older_pool_explains_where_two_name_one_resource():
    resource = {"name": "gpu.deckhouse.io/shared"}
    older, younger = (
        a_pool_object("zeta", resource=resource),
        a_pool_object("alpha", resource=resource),
    )
    older["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    younger["metadata"]["creationTimestamp"] = "2026-06-01T00:00:00Z"
    limits = {"limits": {resource["name"]: "1"}}
    pod = a_waiting_pod("mine", 1, pool="zeta")
    taken = labelled(a_bound_pod_object("other", "n1", [0], pool="zeta"), pool="zeta")
    for item in (pod, taken):
        item["spec"]["containers"][0]["resources"] = limits
    objects = [
        younger,
        older,
        a_pool_node("zeta", "n1"),
        a_pool_node("alpha", "n2"),
        a_device_object("n1", 0, pool="zeta"),
        a_device_object("n2", 0, pool="alpha"),
        taken,
        pod,
    ]
    explanation, _ = why(objects, pod)
    assert (explanation.pool, explanation.reason) == ("zeta", UnitWaitReason.UNITS_EXHAUSTED)


def test_a_pod_without_the_label_of_its_pool_closes_its_node(tmp_path: Path):
    """A static pod, or one from before the webhooks."""
    stranger = a_bound_pod_object("static", "n1", [0], pool="whole")
    stranger["metadata"] = {"name": "static", "namespace": "kube-system", "uid": "pod-static"}
    pod = a_waiting_pod("mine", 1, pool="whole")
    objects = a_small_pool(pod, a_device_object("n1", 1), stranger)
    expected = explained(copy_of_server(tmp_path, objects), pod)
    assert expected.reason is UnitWaitReason.NODES_CLOSED
    assert why(objects, pod)[0].reason is expected.reason


@pytest.mark.parametrize("lists", [0, 64], ids=["one list of all nodes", "a list of each node"])
def test_a_node_without_the_label_of_its_pool_is_excluded_and_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lists: int
):
    """The label is written after devices are assigned, and a person may take it away."""
    monkeypatch.setattr(pool_reading, "MOST_NODES", lists)
    pod = a_waiting_pod("mine", 1, pool="whole")
    objects = a_small_pool(pod)
    del objects[1]["metadata"]["labels"][pool_node_label(PoolName("whole"))]
    expected = explained(copy_of_server(tmp_path, objects), pod)
    found, gaps = why(objects, pod)
    assert (found.nodes, gaps) == (expected.nodes, [])
    assert "does not exist" not in found.nodes[0].exclusion


@pytest.mark.parametrize("is_labelled", [True, False], ids=["labels", "no labels"])
def test_pools_counts_what_fits_as_the_server_does(tmp_path: Path, *, is_labelled: bool):
    """A static pod closes its node; a node fits pods before it has the label."""
    stranger = a_bound_pod_object("static", "n1", [0], pool="whole")
    stranger["metadata"] = {"name": "static", "namespace": "kube-system", "uid": "pod-static"}
    objects = [
        *a_small_pool(stranger, a_device_object("n1", 1)),
        a_pool_node("whole", "n2"),
        *(a_device_object("n2", number) for number in range(2)),
    ]
    if not is_labelled:
        for node in (objects[1], objects[5]):
            del node["metadata"]["labels"][pool_node_label(PoolName("whole"))]
    server = copy_of_server(tmp_path, objects)
    lists = ClusterLists(SelectedObjects(objects))
    pools = [msgspec.convert(objects[0], GPUPool, strict=False)]
    assert fits_of(lists, pools) == {"whole": fitting_pods(server.index, PoolName("whole"))}
    assert fits_of(lists, pools)["whole"][1] == 2


def test_remedies_know_the_cpu_that_pods_without_units_take(tmp_path: Path):
    holder = labelled(a_bound_pod_object("holder", "n1", [0], pool="whole"), pool="whole")
    pod = a_waiting_pod("mine", 1, pool="whole", cpu="8")
    full = a_small_pool(pod, holder, a_pod_without_units("62"))
    assert explained(copy_of_server(tmp_path, full), pod).remedies == ()
    assert why(full, pod)[0].remedies == ()
    explanation, gaps = why(a_small_pool(pod, holder, a_pod_without_units("2")), pod)
    assert (len(explanation.remedies), gaps) == (1, [])


@pytest.mark.parametrize(("places", "reason"), [("1", "NodesExcluded"), ("2", "UnitsAvailable")])
def test_a_node_without_a_place_among_kubelets_pods_takes_none(
    tmp_path: Path, places: str, reason: str
):
    pod = a_waiting_pod("mine", 1, pool="whole")
    objects = a_small_pool(pod, a_pod_without_units("0"))
    objects[1]["status"]["allocatable"]["pods"] = places
    expected = explained(copy_of_server(tmp_path, objects), pod)
    found, _ = why(objects, pod)
    assert found.reason.value == expected.reason.value == reason
    assert [node.shortage for node in found.nodes] == ["too many pods" if places == "1" else ""]


@pytest.mark.parametrize("lists", [0, 64], ids=["one list of all nodes", "a list of each node"])
@pytest.mark.parametrize("is_of_the_pod", [True, False], ids=["its rule", "of the other pod"])
def test_a_pod_of_a_node_outside_the_pool_keeps_others_out_of_its_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lists: int, *, is_of_the_pod: bool
):
    monkeypatch.setattr(pool_reading, "MOST_NODES", lists)
    rule = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}
    apart = {"affinity": {"podAntiAffinity": required}}
    pod = a_waiting_pod("mine", 1, pool="whole", **(apart if is_of_the_pod else {}))
    other = a_pod_without_units("1")
    other["spec"] |= {"nodeName": "n9", **({} if is_of_the_pod else apart)}
    for item in (pod, other):
        item["metadata"]["labels"] = {**item["metadata"].get("labels", {}), "app": "web"}
        item["metadata"]["namespace"] = "ml-team"
    outside = a_pool_node("none", "n9")
    objects = a_small_pool(pod, outside, other)
    for node in (objects[1], outside):
        node["metadata"]["labels"]["zone"] = "a"
    found, gaps = why(objects, pod)
    cause = "podAntiAffinity by zone" if is_of_the_pod else "podAntiAffinity of other pods"
    assert [node.exclusion for node in found.nodes] == [f"{cause} excludes the node"]
    assert (found.reason, found.unweighed, gaps) == (UnitWaitReason.NODES_EXCLUDED, (), [])
    server = explained(copy_of_server(tmp_path, objects), pod)
    assert (server.nodes, server.reason) == (found.nodes, found.reason)


@given(objects=clusters(), manifest=asked_pods())
def test_all_tools_say_the_same_of_a_pod_that_waits(objects: list[Object], manifest: Object):
    """The server, the plugin, the console, and a trial of the same pod before it exists."""
    pod = labelled(manifest, pool="whole")
    snapshot = copy_of(ListedObjects([*objects, pod]))
    server = structs.replace(explained(snapshot, pod), remedies=())
    plugin = structs.replace(why([*objects, pod], pod)[0], remedies=())
    feed = ConsoleFeed([item for item in objects if item["kind"] != "Pod"])
    feed.list_pods([*(item for item in objects if item["kind"] == "Pod"), pod])
    seen = feed.state.pods.named(f"{pod['metadata']['namespace']}/asked")
    assert seen is not None
    console = feed.rows.explanations.explain(seen, most_nodes=16, is_quick=True)
    assert server == structs.replace(console, remedies=())
    assert plugin == server
    assert wait_summary(plugin) == wait_summary(server)
    asked = pod_of_object(manifest, where="the test")
    assert asked is not None
    trial = answer_for(asked, snapshot, PodCreator())
    of_api_server = {"ResourceQuota default/units"}  # which has admitted a pod that is there
    assert {*trial.not_checked} - of_api_server == {*server.unweighed}
    refused = {
        item.reason.removeprefix("GPU pool whole: "): item.count for item in trial.decision.refused
    }
    assert refused == Counter(
        node_reason(node, "whole") for node in server.nodes if not node.takes_pod
    )
