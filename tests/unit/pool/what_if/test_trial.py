"""A trial comes to the node that the extender's own verbs come to, on random clusters; and says what it does not weigh."""

from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.decision import Denied
from api.foreign.core import PodSpec
from api.names import CAPACITY_GATE, NodeName, PodUid
from cli.simulation.answers import Answer, DecisionKind
from cli.simulation.pod_answer import answer_for
from cli.simulation.pod_file import pod_of_object
from cli.simulation.pod_scheduling import PodCreator, admit, question_of, trial_of
from kubectl_gpu.what_if.verb import copy_of
from pool.allocation_reader import AllocationReader
from pool.index.node_requests import NodeRequests
from pool.pods.selection import unweighed
from scheduler.extender import filter_nodes, prioritize
from tests.support.cluster_objects import (
    Object,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
)
from tests.support.listed_clusters import asked_pods, clusters
from tests.support.listed_objects import ListedObjects
from tests.support.naive_scheduler import (
    passes_limits,
    passes_peers,
    refusing_fields,
    refusing_quotas,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OF_TEAM = {"matchLabels": {"team": "a"}}


def answer_of(manifest: Object, objects: list[Object]) -> Answer:
    asked = pod_of_object(manifest, where="the test")
    assert asked is not None
    return answer_for(asked, copy_of(ListedObjects(objects)), PodCreator())


def best_by_extender(manifest: bytes, names: list[NodeName], context: Any) -> NodeName | None:
    """Return the node that kube-scheduler takes: of those that filter passes the first by score and name."""

    def body(nodes: list[NodeName]) -> bytes:
        return msgspec.json.encode({"Pod": msgspec.Raw(manifest), "NodeNames": nodes})

    passed = msgspec.json.decode(filter_nodes(body(names), context).body)["NodeNames"] or []
    if not passed:
        return None
    scores = msgspec.json.decode(prioritize(body(passed), context).body)
    best = min(scores, key=lambda score: (-score["Score"], score["Host"]))
    return NodeName(best["Host"])


def node_of(pod: Object, reader: AllocationReader) -> str | None:
    """Return the node on which a pod is bound or has units reserved; None for one that is over."""
    reservation = reader.ledger.of_pod(PodUid(pod["metadata"]["uid"]))
    is_over = pod.get("status", {}).get("phase") == "Succeeded"
    return reservation.node if reservation else None if is_over else pod["spec"].get("nodeName")


@given(
    objects=clusters(),
    manifest=asked_pods(),
    strategy=st.sampled_from(["BinPack", "Spread", "LeastFragmentation"]),
    topology=st.sampled_from(["Preferred", "Required"]),
)
def test_the_node_is_that_of_filter_and_prioritize_and_what_may_refuse_it_is_named(
    objects: list[Object], manifest: Object, strategy: str, topology: str
):
    for item in objects:
        if item["kind"] == "GPUPool":
            item["spec"]["scheduling"] = {"strategy": strategy, "deviceTopology": topology}
    snapshot = copy_of(ListedObjects(objects))
    asked = pod_of_object(manifest, where="the test")
    assert asked is not None
    not_checked = answer_for(asked, snapshot, PodCreator()).not_checked
    assert set(refusing_quotas(objects, manifest)) <= set(not_checked)
    if isinstance(admit(asked, snapshot, PodCreator()), Denied):
        return
    question = question_of(asked, snapshot)
    assert question is not None
    trial = trial_of(question, snapshot)
    chosen = trial.choose()
    with_devices = snapshot.index.state(question.pool.name).devices_by_node
    nodes = {NodeName(node["metadata"]["name"]): node for node in objects if node["kind"] == "Node"}
    pods: defaultdict[str, list[Object]] = defaultdict(list)
    for pod in (item for item in objects if item["kind"] == "Pod"):
        if (host := node_of(pod, trial.reader)) is not None:
            pods[host].append(pod)
    of_pool = [nodes[name] for name in with_devices]
    allowed = [
        name
        for name in sorted(with_devices)
        if passes_limits(nodes[name], pods[name], manifest)
        and passes_peers(nodes[name], nodes.values(), of_pool, pods, manifest)
    ]
    expected = best_by_extender(asked.encoded(), allowed, snapshot.scheduling)
    assert (None if chosen is None else chosen.placed.node) == expected
    refused = {name for name, _ in trial.faults()}
    assert expected is None or expected not in refused
    is_reserved = chosen is not None and chosen.is_reserved
    for name in [chosen.placed.node] if chosen is not None and is_reserved else with_devices:
        fields = set(refusing_fields(nodes[name], pods[name], manifest))
        assert fields <= set(not_checked), name


@pytest.mark.parametrize(
    ("cpu", "fault"), [("0", ""), ("1", "insufficient cpu: 1000m requested, 0m free")]
)
def test_pods_that_request_more_cpu_than_a_node_has_keep_only_those_away_that_request_some(
    cpu: str, fault: str
):
    web = a_pod_object("web", 0, cpu="5", nodeName="n0")
    node = a_node_object("n0", cpu="4")
    snapshot = copy_of(ListedObjects([a_pool_object(), node, a_device_object("n0", 0), web]))
    asked = pod_of_object(a_pod_object("asked", cpu=cpu), where="the test")
    assert asked is not None
    question = question_of(asked, snapshot)
    assert question is not None
    trial = trial_of(question, snapshot)
    assert trial.limit(NodeName("n0")) == fault
    assert (trial.choose() is None) == bool(fault)
    assert snapshot.index.has_capacity(question.pod.facts, NodeName("n0")) == (not fault)


def test_a_pod_that_requests_cpu_goes_nowhere_while_it_is_unknown_what_other_pods_request():
    objects = ListedObjects([a_pool_object(), a_node_object("n0"), a_device_object("n0", 0)])
    snapshot = copy_of(objects)
    snapshot.index.requests = NodeRequests(is_whole=False)
    asked = pod_of_object(a_pod_object("asked", cpu="1"), where="the test")
    assert asked is not None
    question = question_of(asked, snapshot)
    assert question is not None
    assert "unknown: not all pods are read" in trial_of(question, snapshot).limit(NodeName("n0"))
    assert trial_of(question, snapshot).choose() is None


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]},
            "spec.hostNetwork",
        ),
        ({"hostNetwork": True}, None),
        ({"volumes": [{"persistentVolumeClaim": {}}]}, "spec.volumes[].persistentVolumeClaim"),
        ({"containers": [{"ports": [{"hostPort": 80}]}]}, "spec.containers[].ports[].hostPort"),
        ({"schedulingGates": [{"name": "example.com/quota"}]}, "spec.schedulingGates"),
        ({"schedulingGates": [{"name": CAPACITY_GATE}]}, None),
        ({"resourceClaims": [{"name": "x"}]}, "spec.resourceClaims"),
        (
            {"topologySpreadConstraints": [{"nodeAffinityPolicy": "Ignore"}]},
            "spec.topologySpreadConstraints[].nodeAffinityPolicy",
        ),
        ({"topologySpreadConstraints": [{"nodeAffinityPolicy": "Honor"}]}, None),
        (
            {"containers": [{"resources": {"requests": {"ephemeral-storage": "1Gi"}}}]},
            "spec.containers[].resources.requests[ephemeral-storage]",
        ),
        (
            {"initContainers": [{"resources": {"limits": {"hugepages-2Mi": "1Gi"}}}]},
            "spec.containers[].resources.requests[hugepages-2Mi]",
        ),
        ({"volumes": [{"ephemeral": {}}]}, "spec.volumes[].ephemeral"),
        ({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}, None),
        ({"containers": [{"resources": {"limits": {"gpu.deckhouse.io/whole": "1"}}}]}, None),
    ],
)
def test_what_is_not_weighed_is_named(spec: Object, field: str | None):
    assert unweighed(msgspec.convert(spec, PodSpec)) == ((field,) if field else ())


OTHERS = "podAntiAffinity of other pods"


@pytest.mark.parametrize(
    ("node", "term", "is_excluded", "is_named"),
    [
        ("n0", {"topologyKey": "kubernetes.io/hostname"}, True, False),
        ("n1", {"topologyKey": "kubernetes.io/hostname"}, False, False),
        ("n1", {"topologyKey": "zone"}, True, False),
        ("n1", {"topologyKey": "zone", "namespaces": ["shop"]}, False, False),
        ("n1", {"topologyKey": "zone", "namespaceSelector": {}}, True, False),
        ("n1", {"topologyKey": "zone", "namespaceSelector": OF_TEAM}, False, True),
        (
            "n1",
            {"topologyKey": "zone", "namespaceSelector": OF_TEAM, "namespaces": ["default"]},
            True,
            False,
        ),
    ],
)
def test_rules_of_other_pods_exclude_nodes_and_are_named_where_labels_of_namespaces_decide(
    node: str, term: Object, *, is_excluded: bool, is_named: bool
):
    """They may select the pod, which its own spec does not say."""
    affinity = {"podAntiAffinity": {REQUIRED: [{**term, "labelSelector": {}}]}}
    web = a_pod_object("web", 0, nodeName=node, affinity=affinity)
    nodes = [a_node_object("n0"), a_node_object("n1")]
    for item in nodes:
        item["metadata"]["labels"]["zone"] = "a"
    objects = [a_pool_object(), *nodes, a_device_object("n0", 0), web]
    answer = answer_of(a_pod_object("asked"), objects)
    assert [item.reason for item in answer.decision.refused] == (
        [f"{OTHERS} excludes the node"] if is_excluded else []
    )
    assert answer.decision.verdict is (DecisionKind.WAITS if is_excluded else DecisionKind.PLACED)
    assert answer.not_checked == ([OTHERS] if is_named else [])


@pytest.mark.parametrize(
    ("kind", "term", "fields"),
    [
        ("podAntiAffinity", {}, None),
        ("podAntiAffinity", {"namespaceSelector": OF_TEAM}, ["namespaceSelector"]),
        ("podAffinity", {"labelSelector": {"matchLabels": {"app": "none"}}}, None),
        (
            "podAffinity",
            {"labelSelector": {"matchLabels": {"app": "none"}}, "namespaceSelector": OF_TEAM},
            ["namespaceSelector"],
        ),
    ],
)
def test_a_pod_that_other_pods_keep_from_all_nodes_waits_and_its_rules_are_named_where_labels_of_namespaces_decide(
    kind: str, term: Object, fields: list[str] | None
):
    rule = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}, **term}
    web = a_pod_object("web", 0, nodeName="n0")
    web["metadata"]["labels"] = {"app": "web"}
    node = a_node_object("n0")
    node["metadata"]["labels"]["zone"] = "a"
    objects = [a_pool_object(), node, a_device_object("n0", 0), web]
    answer = answer_of(a_pod_object("asked", affinity={kind: {REQUIRED: [rule]}}), objects)
    assert [item.reason for item in answer.decision.refused] == (
        [] if fields else [f"{kind} by zone excludes the node"]
    )
    assert answer.decision.verdict is (DecisionKind.PLACED if fields else DecisionKind.WAITS)
    assert answer.not_checked == [f"spec.affinity.{kind}[].{field}" for field in fields or ()]


@pytest.mark.parametrize("is_apart", [True, False])
def test_no_remedy_is_a_node_or_a_pool_where_other_pods_keep_the_pod_away(*, is_apart: bool):
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    web = a_pod_object("web", 0, nodeName="n0")
    if is_apart:
        web["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [rule]}}
    pools = [a_pool_object(access={}), a_pool_object("other", access={})]
    devices = [a_device_object("n0", 0), *(a_device_object("n0", n, pool="other") for n in (1, 2))]
    answer = answer_of(a_pod_object("asked", 2), [*pools, a_node_object("n0"), *devices, web])
    kinds = [type(remedy).__name__ for remedy in answer.remedies]
    assert kinds == ([] if is_apart else ["AskFewerUnits", "UsePool"])


def test_a_reservation_excludes_its_own_pod_from_no_node():
    """As a console or a scheduler sees it between admission and Binding."""
    rule = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    node = a_node_object("n0")
    node["metadata"]["labels"]["zone"] = "a"
    snapshot = copy_of(ListedObjects([a_pool_object(), node, a_device_object("n0", 0)]))
    manifest = a_pod_object("asked", affinity={"podAntiAffinity": {REQUIRED: [rule]}})
    manifest["metadata"]["labels"] = {"app": "web"}
    asked = pod_of_object(manifest, where="the test")
    assert asked is not None
    admit(asked, snapshot, PodCreator())
    assert len(snapshot.index.peers) == 1
    question = question_of(asked, snapshot)
    assert question is not None
    trial = trial_of(question, snapshot)
    assert (trial.limit(NodeName("n0")), list(trial.faults())) == ("", [])


def test_what_the_api_server_does_to_a_pod_that_does_not_exist_yet_is_named():
    limits = [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": namespace}}
        for kind in ("ResourceQuota", "LimitRange")
        for namespace in ("default", "shop")
    ]
    objects = [a_pool_object(), a_node_object("n0"), a_device_object("n0", 0), *limits]
    asked = pod_of_object(a_pod_object("asked", runtimeClassName="kata"), where="the test")
    assert asked is not None
    assert answer_for(asked, copy_of(ListedObjects(objects)), PodCreator()).not_checked == [
        "spec.runtimeClassName",
        "ResourceQuota default/x",
        "LimitRange default/x",
    ]
