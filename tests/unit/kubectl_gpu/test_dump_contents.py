"""What a dump has of a cluster: all that the verbs read, and nothing secret."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from api.annotations import ReservationNote, encode_devices
from api.foreign.core import Node, Pod
from api.names import (
    DEVICES_ANNOTATION,
    GROUP,
    POOL_LABEL,
    RESERVATION_ANNOTATION,
    UnitId,
)
from kube import resources
from kubectl_gpu.dump.dump_fields import reduced
from kubectl_gpu.dump.dumped_lists import collect, dumped_lists, metrics_path
from kubectl_gpu.dumped.dump_archive import answer_file, list_file
from pool.facts import node_facts, observed_pod
from tests.support.cluster_objects import (
    a_bound_pod_object,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
)
from tests.support.listed_clusters import asked_pods
from tests.support.object_source import NOON, ObjectSource

CANARY = "canary-7c1f"
Json = dict[str, Any]


def a_talkative_pod() -> Json:
    """Return a pool's pod with a canary wherever users put secrets."""
    pod = a_bound_pod_object("mine", "n1", [0])
    container = pod["spec"]["containers"][0]
    container |= {
        "command": [CANARY],
        "args": ["--password", CANARY],
        "env": [{"name": "TOKEN", "value": CANARY}, {"name": CANARY}],
        "envFrom": [{"secretRef": {"name": CANARY}}],
        "image": f"registry/{CANARY}",
        "lifecycle": {"postStart": {"exec": {"command": [CANARY]}}},
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "x", "value": CANARY}]}},
        "volumeMounts": [{"name": "v", "subPath": CANARY}],
        "workingDir": CANARY,
        "terminationMessagePath": CANARY,
    }
    container["resources"]["claims"] = [{"name": CANARY}]
    pod["spec"] |= {
        "initContainers": [{**container, "name": "init"}],
        "ephemeralContainers": [container],
        "imagePullSecrets": [{"name": CANARY}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": [CANARY]}],
        "affinity": {"podAffinity": {"x": CANARY}, "nodeAffinity": {}},
        "volumes": [
            {"name": "a", "secret": {"secretName": CANARY}},
            {"name": "b", "configMap": {"items": [{"key": CANARY}]}},
            {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": CANARY}}]}},
            {"name": "d", "csi": {"driver": "vault.csi", "volumeAttributes": {"token": CANARY}}},
            {"name": "e", "hostPath": {"path": CANARY}},
            {
                "name": "f",
                "csi": {
                    "driver": "csi.gkm.io",
                    "volumeAttributes": {"csi.gkm.io/GKMCache": "llama", "token": CANARY},
                    "nodePublishSecretRef": {"name": CANARY},
                },
            },
        ],
        CANARY: CANARY,
    }
    pod["metadata"] |= {
        "labels": {POOL_LABEL: "whole"},
        "managedFields": [{"manager": CANARY}],
        "selfLink": CANARY,
    }
    pod["metadata"]["annotations"] |= {
        "kubectl.kubernetes.io/last-applied-configuration": CANARY,
        "vault.hashicorp.com/token": CANARY,
        f"{GROUP}.evil.example/token": CANARY,
        f"not{GROUP}/token": CANARY,
        CANARY: CANARY,
        RESERVATION_ANNOTATION: ReservationNote(id="r1", pool="whole", signature=CANARY).encode(),
    }
    pod["status"] |= {
        "message": CANARY,
        "podIP": CANARY,
        "conditions": [{"type": "Ready", "status": "False", "message": CANARY}],
        "containerStatuses": [
            {
                "name": "main",
                "image": CANARY,
                "allocatedResources": {"cpu": "3"},
                "resources": {"requests": {"cpu": "7"}, "claims": [{"name": CANARY}]},
                "state": {"running": {"startedAt": CANARY}},
                "lastState": {"terminated": {"message": CANARY}},
            }
        ],
    }
    return pod


def a_plain_pod(name: str) -> Json:
    pod = a_pod_object(name)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return pod


def a_talkative_cluster() -> list[Json]:
    others: list[Json] = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": CANARY}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": CANARY}},
        {
            "kind": "Deployment",
            "metadata": {"name": "gpu-control-plane", "namespace": "gpu-control-plane"},
            "spec": {
                "template": {
                    "metadata": {"annotations": {"x": CANARY}},
                    "spec": {
                        "containers": [
                            {
                                "name": "server",
                                "image": "i",
                                "env": [{"value": CANARY}],
                                "args": [CANARY],
                            }
                        ]
                    },
                }
            },
        },
        {
            "kind": "MutatingWebhookConfiguration",
            "metadata": {
                "name": "zz-gpu-control-plane",
                "labels": {"app.kubernetes.io/part-of": "gpu-control-plane"},
            },
            "webhooks": [
                {"name": "pods", "clientConfig": {"caBundle": CANARY, "url": f"https://{CANARY}"}}
            ],
        },
        {
            "kind": "Event",
            "metadata": {"name": "foreign", "namespace": "default"},
            "reportingController": "kubelet",
            "note": CANARY,
        },
        {
            "kind": "Event",
            "metadata": {"name": "ours", "namespace": "default"},
            "reportingController": "gpu.deckhouse.io/control-plane",
            "note": "the pool is full",
            "source": {"host": CANARY},
        },
        {
            "kind": "GKMCache",
            "metadata": {"name": "llama", "namespace": "default"},
            "spec": {
                "image": "registry/llama",
                "pullSecrets": [{"name": CANARY}],
                "podTemplate": {"spec": {"env": [CANARY]}},
            },
        },
        {
            "kind": "Lease",
            "metadata": {"name": "gpu-control-plane", "namespace": "gpu-control-plane"},
            "spec": {"holderIdentity": "server-1"},
        },
        a_plain_pod(CANARY),
    ]
    node = a_node_object("n1")
    node["metadata"]["annotations"] = {"csi.volume.kubernetes.io/nodeid": CANARY}
    node["status"] |= {"images": [{"names": [CANARY]}], "addresses": [{"address": CANARY}]}
    return [
        a_pool_object(),
        a_device_object("n1", 0),
        node,
        a_node_object(f"{CANARY}-without-devices"),
        a_talkative_pod(),
        *others,
    ]


def test_a_dump_has_nothing_secret():
    dump = collect(ObjectSource(a_talkative_cluster()), namespace="gpu-control-plane")
    assert [name for name, body in dump.files.items() if CANARY.encode() in body] == []


def test_a_dump_has_what_the_verbs_read():
    dump = collect(ObjectSource(a_talkative_cluster()), namespace="gpu-control-plane")

    def names(resource: Any) -> list[str]:
        return [load["metadata"]["name"] for load in json.loads(dump.files[list_file(resource)])]

    assert names(resources.PODS) == ["mine"]
    assert names(resources.NODES) == ["n1"]
    # Each of the two queries for Events got it, from a source that evaluates no selector of fields.
    assert set(names(resources.EVENTS)) == {"ours"}
    assert names(resources.LEASES) == ["gpu-control-plane"]
    assert names(resources.DEPLOYMENTS) == ["gpu-control-plane"]
    assert names(resources.GKM_CACHES) == ["llama"]
    (webhooks,) = json.loads(dump.files[list_file(resources.MUTATING_WEBHOOK_CONFIGURATIONS)])
    assert webhooks["webhooks"][0]["clientConfig"]["caBundle"]
    assert dump.created_at == NOON


def test_a_dump_has_pods_that_bypassed_admission():
    stranger = a_bound_pod_object("static", "n1", [0])
    stranger["metadata"]["labels"] = None
    dump = collect(ObjectSource([stranger, a_plain_pod("web")]), namespace="gpu-control-plane")
    pods = json.loads(dump.files[list_file(resources.PODS)])
    assert [pod["metadata"]["name"] for pod in pods] == ["static"]


def test_a_dump_never_lists_secrets():
    assert resources.SECRETS not in {list_.resource for list_ in dumped_lists("gpu-control-plane")}


def test_lists_that_may_not_be_read_are_named_and_stop_no_other_one():
    source = ObjectSource(a_talkative_cluster(), forbidden=[resources.PODS, resources.NODES])
    dump = collect(source, namespace="gpu-control-plane")
    assert {list_file(resources.PODS), list_file(resources.NODES)} <= dump.missing.keys()
    assert list_file(resources.EVENTS) in dump.files


def test_metrics_and_version_are_part_of_it_where_they_can_be_read():
    path = metrics_path("gpu-control-plane")
    source = ObjectSource([], answers={path: b"gpu_leading 1\n"})
    dump = collect(source, namespace="gpu-control-plane")
    assert dump.files[answer_file(path)] == b"gpu_leading 1\n"
    assert answer_file("/version") in dump.missing


def test_decisions_about_a_reduced_pod_are_those_about_the_whole_one():
    whole = a_talkative_pod()
    assert facts_of(reduced(resources.PODS, whole)) == facts_of(without_signature(whole))


@given(pod=asked_pods())
def test_what_kube_scheduler_decides_by_is_in_a_reduced_pod(pod: dict[str, Any]):
    assert facts_of(reduced(resources.PODS, pod)) == facts_of(pod)


@given(st.data())
def test_decisions_about_any_reduced_pod_are_those_about_the_whole_one(data: st.DataObject):
    pod = data.draw(pods())
    assert facts_of(reduced(resources.PODS, pod)) == facts_of(without_signature(pod))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def pods(draw: st.DrawFn) -> Json:
    units = draw(st.integers(0, 3))
    pod = a_pod_object("p", units) if draw(st.booleans()) else a_bound_pod_object("p", "n1", [0, 1])
    container = {
        "name": draw(st.sampled_from(["main", "side"])),
        "restartPolicy": draw(st.sampled_from([None, "Always"])),
        "resources": {"requests": {"cpu": "1"}},
        "env": draw(JSON),
    }
    pod["spec"] |= {
        "initContainers": draw(st.sampled_from([None, [], [container]])),
        "priority": draw(st.none() | st.integers(0, 9)),
        "nodeSelector": draw(st.none() | st.just({"zone": "a"})),
        "schedulingGates": draw(st.none() | st.just([{"name": "other"}])),
        "tolerations": draw(st.none() | st.just([{"key": "gpu", "operator": "Exists"}])),
        "affinity": draw(
            st.sampled_from(
                [
                    None,
                    {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                                ]
                            }
                        }
                    },
                ]
            )
        ),
        "overhead": draw(st.none() | st.just({"cpu": "100m"})),
    }
    annotations = pod["metadata"].setdefault("annotations", {})
    texts = st.sampled_from(
        [
            "",
            "{",
            "null",
            '{"main":["GPU-1"]}',
            encode_devices({"main": (UnitId("GPU-n1-0"),)}),
            ReservationNote(
                id="r", pool="whole", node="n1", signature="s", expires_at=NOON
            ).encode(),
        ]
    )
    for key in (DEVICES_ANNOTATION, RESERVATION_ANNOTATION):
        if draw(st.booleans()):
            annotations[key] = draw(texts)
    pod["status"] = {
        "phase": draw(st.sampled_from(["Pending", "Running", "Succeeded"])),
        "containerStatuses": draw(
            st.sampled_from([None, [{"name": "main", "state": {"running": {"startedAt": "x"}}}]])
        ),
        "initContainerStatuses": draw(
            st.sampled_from(
                [None, [{"name": "side", "resources": {"requests": {"cpu": "9"}}, "ready": True}]]
            )
        ),
    }
    return pod


def test_decisions_about_a_reduced_node_are_those_about_the_whole_one():
    node = a_node_object("n1", unschedulable=True, taints=[{"key": "a", "effect": "NoSchedule"}])
    node["metadata"]["annotations"] = {f"{GROUP}/pool-taints": "a:NoSchedule", "other": "x"}

    def facts(one: Json) -> Any:
        return node_facts(msgspec.json.decode(json.dumps(one), type=Node))

    assert facts(reduced(resources.NODES, node)) == facts(node)


def facts_of(pod: Json) -> Any:
    return observed_pod(msgspec.json.decode(json.dumps(pod), type=Pod))


def without_signature(pod: Json) -> Json:
    """Return the pod as a reader without keys sees it."""
    copy: Json = json.loads(json.dumps(pod))
    annotations = copy["metadata"].get("annotations") or {}
    try:
        note = json.loads(annotations[RESERVATION_ANNOTATION])
        note.pop("seal", None)
        annotations[RESERVATION_ANNOTATION] = json.dumps(note)
    except (KeyError, ValueError, AttributeError):
        pass
    return copy
