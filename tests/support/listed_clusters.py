"""Random clusters as objects of lists: two pools, and pods that are bound, reserved for, wait or have ended."""

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
        node["metadata"]["labels"]["zone"] = draw(st.sampled_from(["a", "b"]))
        if draw(st.integers(0, 4)) == 0:
            node["spec"]["taints"] = [{"key": "maintenance", "effect": "NoSchedule"}]
        objects.append(node)
        objects += draw(pods_without_units(f"n{place}"))
        for number in range(count):
            device = a_device_object(
                f"n{place}", number, pool=draw(st.sampled_from(["whole", "whole", "other"]))
            )
            if draw(st.integers(0, 5)) == 0:
                device["status"]["conditions"] = [a_condition("Healthy", "False")]
            objects.append(device)
            objects += draw(pods_on(f"n{place}", number))
    if draw(st.booleans()):
        objects.append(an_inventory("n0", draw(st.sampled_from(["none", "restricted"]))))
    return objects


@st.composite
def pods_without_units(draw: st.DrawFn, node: str) -> list[Object]:
    """Pods that name no pool, and take CPU, memory and places of the node."""
    amounts = st.fixed_dictionaries(
        {"cpu": st.sampled_from(["0", "8", "60"]), "memory": st.sampled_from(["0", "1Gi", "2Gi"])}
    )
    requests = draw(st.lists(amounts, max_size=2))
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"web-{node}-{number}",
                "namespace": "shop",
                "uid": f"web-{node}-{number}",
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "resources": {"requests": amount}}],
            },
            "status": {"phase": "Running"},
        }
        for number, amount in enumerate(requests)
    ]


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
