"""Random clusters as objects of lists: two pools, pods that are bound, reserved for, wait or have ended, and a pod that is asked about.

They vary what kube-scheduler and kubelet decide by (`tests.support.naive_scheduler`).
"""

from typing import Any

from hypothesis import strategies as st

from tests.support.cluster_objects import (
    Object,
    a_bound_pod_object,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
)
from tests.support.listed_objects import NOW
from tests.support.plugin_cluster import labelled

LABELS = (
    {"zone": "a"},
    {"zone": "b"},
    {"zone": "a", "tier": "1"},
    {"zone": "b", "tier": "7"},
)
TAINTS: tuple[list[Object], ...] = (
    [],
    [],
    [],
    [{"key": "team", "value": "red", "effect": "NoSchedule"}],
    [{"key": "team", "value": "blue", "effect": "NoExecute"}],
    [{"key": "spot", "effect": "PreferNoSchedule"}],
)
TOLERATIONS: tuple[list[Object], ...] = (
    [{"operator": "Exists"}],
    [{"key": "team", "value": "red"}],
    [{"key": "team", "operator": "Exists", "effect": "NoExecute"}],
    [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
    [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
)
EXPRESSIONS = (
    {"key": "zone", "operator": "In", "values": ["a", "c"]},
    {"key": "zone", "operator": "NotIn", "values": ["a"]},
    {"key": "tier", "operator": "NotIn", "values": ["1"]},
    {"key": "tier", "operator": "Exists"},
    {"key": "tier", "operator": "DoesNotExist"},
    {"key": "tier", "operator": "Gt", "values": ["1"]},
    {"key": "tier", "operator": "Lt", "values": ["7"]},
)
FIELDS = tuple(
    {"key": "metadata.name", "operator": operator, "values": ["n0"]} for operator in ("In", "NotIn")
)
PORTS: tuple[list[Object], ...] = (
    [],
    [],
    [{"containerPort": 80}],
    [{"containerPort": 80, "hostPort": 80}],
)
TAKEN_PORTS: tuple[list[Object], ...] = ([], [], [{"containerPort": 8080, "hostPort": 80}])
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CACHE_VOLUME = {
    "name": "cache",
    "csi": {
        "driver": "csi.gkm.io",
        "volumeAttributes": {"csi.gkm.io/GKMCache": "llama", "csi.gkm.io/namespace": "default"},
    },
}
CACHE: Object = {
    "apiVersion": "gkm.io/v1alpha1",
    "kind": "GKMCache",
    "metadata": {"name": "llama", "namespace": "default", "uid": "cache"},
    "spec": {"image": "r/x:1"},
    "status": {
        "resolvedDigest": "sha256:" + "1" * 64,
        "image": {
            "type": "triton",
            "targets": [{"backend": "cuda", "arch": "90", "warpSize": 32}],
            "layerBytes": 1,
        },
    },
}
"""Fits devices of compute capability 9.0."""


QUOTAS: tuple[list[Object], ...] = (
    [],
    [
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "units", "namespace": namespace},
            "spec": {"hard": {"requests.gpu.deckhouse.io/whole": "2"}},
        }
        for namespace in ("default", "shop")
    ],
)


def _rule(app: str) -> Object:
    """Return a rule about pods of an app in the zone of a node."""
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}


KEPT_AWAY: tuple[Object, ...] = (
    {},
    {},
    {},
    {"podAntiAffinity": {REQUIRED: [_rule("asked")]}},
)
"""Affinity of pods that are there."""
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=2),
        "matchFields": st.lists(st.sampled_from(FIELDS), min_size=1, max_size=1),
    },
)
AFFINITIES: dict[str, st.SearchStrategy[Any]] = {
    "nodeAffinity": st.lists(TERMS, min_size=1, max_size=2).map(
        lambda terms: {REQUIRED: {"nodeSelectorTerms": terms}}
    ),
    "podAffinity": st.just({REQUIRED: [_rule("web")]}),
    "podAntiAffinity": st.just({REQUIRED: [_rule("web")]}),
}
SPECS: dict[str, st.SearchStrategy[Any]] = {
    "nodeSelector": st.just({"zone": "a"}),
    "tolerations": st.sampled_from(TOLERATIONS),
    "hostNetwork": st.just(True),
    "schedulingGates": st.just([{"name": "example.com/quota"}]),
    "topologySpreadConstraints": st.just(
        [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **_rule("web")}]
    ),
    "volumes": st.lists(
        st.sampled_from(
            [
                CACHE_VOLUME,
                {"name": "data", "persistentVolumeClaim": {"claimName": "in-a"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "in-b"}},
            ]
        ),
        max_size=1,
    ),
}


def a_reservation(node: str, number: int, *, minutes: int) -> str:
    expires = NOW.replace(minute=minutes).isoformat()
    devices = f'{{"main":["GPU-{node}-{number}"]}}'
    return (
        f'{{"id":"r","pool":"whole","node":"{node}","devices":{devices},"expiresAt":"{expires}"}}'
    )


@st.composite
def clusters(draw: st.DrawFn) -> list[Object]:
    """Nodes with devices of two pools, and pods that are bound, reserved for, wait or have ended."""
    objects = [a_pool_object("whole", access={}), a_pool_object("other")]
    counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    for place, count in enumerate(counts):
        node = a_node_object(f"n{place}", unschedulable=draw(st.booleans()))
        node["status"]["allocatable"]["pods"] = draw(st.sampled_from(["110", "110", "1", "2"]))
        node["status"]["allocatable"]["cpu"] = draw(st.sampled_from(["64", "64", "12"]))
        node["status"]["allocatable"]["memory"] = draw(st.sampled_from(["512Gi", "512Gi", "3Gi"]))
        node["status"]["allocatable"]["ephemeral-storage"] = draw(st.sampled_from(["9Gi", "2Gi"]))
        node["metadata"]["labels"] |= draw(st.sampled_from(LABELS))
        node["spec"]["taints"] = draw(st.sampled_from(TAINTS))
        if draw(st.integers(0, 9)) == 0:
            node["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        objects.append(node)
        objects += draw(pods_without_units(f"n{place}"))
        for number in range(count):
            device = a_device_object(
                f"n{place}",
                number,
                pool=draw(st.sampled_from(["whole", "whole", "other"])),
                computeCapability=draw(st.sampled_from(["9.0", "9.0", "8.0"])),
            )
            if draw(st.integers(0, 5)) == 0:
                device["status"]["conditions"] = [a_condition("Healthy", "False")]
            objects.append(device)
            objects += draw(pods_on(f"n{place}", number))
    objects += [CACHE, *draw(st.sampled_from(QUOTAS))]
    if draw(st.booleans()):
        objects.append(an_inventory("n0", draw(st.sampled_from(["none", "restricted"]))))
    return objects


@st.composite
def pods_without_units(draw: st.DrawFn, node: str) -> list[Object]:
    """Pods that name no pool, and take CPU, memory, storage, ports and places of the node, or keep others away."""
    amounts = st.fixed_dictionaries(
        {
            "cpu": st.sampled_from(["0", "8", "60"]),
            "memory": st.sampled_from(["0", "1Gi", "2Gi"]),
            "ephemeral-storage": st.sampled_from(["0", "1Gi"]),
        }
    )
    requests = draw(st.lists(amounts, max_size=2))
    ports, affinity = draw(st.sampled_from(TAKEN_PORTS)), draw(st.sampled_from(KEPT_AWAY))
    namespace = draw(st.sampled_from(["default", "shop"]))
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"web-{node}-{number}",
                "namespace": namespace,
                "uid": f"web-{node}-{number}",
                "labels": {"app": "web"},
            },
            "spec": {
                "nodeName": node,
                "affinity": affinity,
                "containers": [{"name": "c", "ports": ports, "resources": {"requests": amount}}],
            },
            "status": {"phase": "Running"},
        }
        for number, amount in enumerate(requests)
    ]


@st.composite
def asked_pods(draw: st.DrawFn) -> Object:
    """Draw a pod with units of the pool `whole`, and a few constraints on its node."""
    spec = draw(st.fixed_dictionaries({}, optional=SPECS))
    affinity = draw(st.fixed_dictionaries({}, optional=AFFINITIES))
    pod = a_pod_object(
        "asked",
        draw(st.integers(1, 4)),
        cpu=draw(st.sampled_from(["0", "2", "20"])),
        affinity=affinity,
        **spec,
    )
    pod["metadata"]["labels"] = {"app": draw(st.sampled_from(["web", "asked"]))}
    (container,) = pod["spec"]["containers"]
    container["ports"] = draw(st.sampled_from(PORTS))
    container["resources"]["limits"]["ephemeral-storage"] = draw(st.sampled_from(["0", "0", "2Gi"]))
    return pod


@st.composite
def pods_on(draw: st.DrawFn, node: str, number: int) -> list[Object]:
    name = f"{node}-{number}"
    kind = draw(
        st.sampled_from(["none", "bound", "bound", "ended", "strange", "reserved", "waits"])
    )
    if kind == "none":
        return []
    if kind in {"bound", "ended", "strange"}:
        pod = labelled(a_bound_pod_object(name, node, [number]), pool="whole")
        pod["status"] = {"phase": "Succeeded" if kind == "ended" else "Running"}
        if kind == "strange":
            del pod["metadata"]["annotations"]
        return [pod]
    pod = labelled(a_pod_object(name, draw(st.integers(1, 4))), pool="whole")
    if kind == "reserved":
        minutes = draw(st.sampled_from([1, 59]))
        note = a_reservation(node, number, minutes=minutes)
        pod = labelled(a_pod_object(name, 1), pool="whole")
        pod["metadata"]["annotations"] = {"gpu.deckhouse.io/reservation": note}
    return [pod]


def a_condition(type_: str, status: str) -> dict[str, Any]:
    times = {"lastTransitionTime": "2026-11-23T22:00:00Z", "observedGeneration": 1}
    return {"type": type_, "status": status, "reason": "R", "message": "", **times}


def an_inventory(node: str, policy: str) -> Object:
    kubelet = {"topologyManagerPolicy": policy}
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUNodeInventory",
        "metadata": {"name": node},
        "status": {"kubelet": kubelet},
    }
