"""A small cluster with a pod that waits, as `kubectl gpu` reads it: invented objects, and an API server that lists them."""

import asyncio
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api.names import POOL_LABEL, PoolName, pool_node_label
from tests.support.canned_api import Answer, CannedApi, Json, Seen, Stream, a_list, status
from tests.support.cluster_objects import (
    Object,
    a_bound_pod_object,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
)
from tests.support.plugin_forks import Done, PluginForks

ROOT = Path(__file__).resolve().parents[2]
CREATED = "2026-11-23T22:00:00Z"
PLURALS = {
    "gpupools": "GPUPool",
    "gpudevices": "GPUDevice",
    "nodes": "Node",
    "gpunodeinventories": "GPUNodeInventory",
    "namespaces": "Namespace",
    "pods": "Pod",
    "leases": "Lease",
    "events": "Event",
}


def find_kubectl() -> Path:
    """Return the directory of a kubectl; the test is skipped where there is none."""
    found = shutil.which("kubectl")
    built = sorted((ROOT / "build" / "kubernetes").glob("v*/kubectl"))
    if found is None and not built:
        pytest.skip("no kubectl on PATH, and none is built: tests/cluster has one always")
    return Path(found).parent if found is not None else built[-1].parent


def a_fragmented_cluster() -> list[Object]:
    """Return a pool of 8 units of which 5 are free, at most 3 on one node, a pod that wants 4, and a spare node."""
    objects = [a_pool_object("training", status={})]
    objects[0]["spec"] = {"allocation": {"mode": "Exclusive"}}
    objects[0]["status"] = {
        "phase": "Ready",
        "capacity": {"total": 8, "used": 3, "available": 5, "largestFree": 3},
        "waiting": 1,
        "nodes": 2,
    }
    used = {"gpu-0": [0], "gpu-1": [0, 1]}
    for node, numbers in used.items():
        objects.append(a_pool_node("training", node))
        objects += [
            a_device("training", node, number, allocated=int(number in numbers))
            for number in range(4)
        ]
    objects += [
        a_node_object("gpu-2"),
        *(a_device("", "gpu-2", number) for number in range(4)),
        labelled(a_bound_pod_object("train-a", "gpu-0", [0], pool="training")),
        labelled(a_bound_pod_object("train-b", "gpu-1", [0, 1], pool="training")),
        a_waiting_pod("big", 4),
    ]
    return objects


def a_pool_node(pool: str, name: str, **spec: Any) -> Object:
    node = a_node_object(name, **spec)
    node["metadata"]["labels"][pool_node_label(PoolName(pool))] = ""
    return node


def a_device(pool: str, node: str, number: int, *, allocated: int = 0, **more: Any) -> Object:
    device = a_device_object(
        node,
        number,
        pool=pool,
        pci={"address": f"0000:{number + 23:02x}:00.0"},
        units={"capacity": 1, "reserved": 0, "allocated": allocated},
        **more,
    )
    if not pool:
        del device["status"]["poolRef"]
    return device


def a_waiting_pod(name: str, units: int, *, pool: str = "training", **spec: Any) -> Object:
    pod = labelled(a_pod_object(name, units, pool=pool, **spec), pool=pool)
    pod["status"] = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": f"0/3 nodes are available: 2 Insufficient gpu.deckhouse.io/{pool}.",
            }
        ],
    }
    return pod


def labelled(pod: Object, *, pool: str = "training", namespace: str = "ml-team") -> Object:
    meta = {"labels": {POOL_LABEL: pool}, "namespace": namespace, "creationTimestamp": CREATED}
    pod["metadata"] |= meta
    return pod


@dataclass
class ListedCluster:
    """An API server that changes nothing, and a kubectl to ask it with."""

    api: CannedApi
    kubectl: Path
    directory: Path
    plugin: PluginForks | None = None
    """Runs `run`; a test that starts the plugin itself needs none."""
    objects: list[Object] = field(default_factory=a_fragmented_cluster)
    forbidden: set[str] = field(default_factory=set)
    not_served: set[str] = field(default_factory=set)
    answers: dict[str, Answer] = field(default_factory=dict)
    """Path -> what is answered in place of what is known."""

    def __post_init__(self) -> None:
        self.api.always = self._answer

    async def run(self, *arguments: str, **variables: str) -> Done:
        """Run `kubectl gpu ARGUMENTS` with this cluster's address."""
        return await self.run_bare(*arguments, "--server", self.api.url, **variables)

    async def run_bare(self, *arguments: str, **variables: str) -> Done:
        assert self.plugin is not None
        return await asyncio.to_thread(self.plugin.run, arguments, self.environment(**variables))

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {key: os.environ[key] for key in ("HOME", "LANG") if key in os.environ}
        path = f"{self.kubectl}:/usr/bin:/bin"
        return {
            **kept,
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": "utf-8",
            "KUBECONFIG": str(self.directory / "none"),
            "TMPDIR": str(self.directory),
            **variables,
        }

    def reads(self) -> list[Seen]:
        """Return the plugin's requests; some builds of kubectl ask for the server's version by themselves."""
        return [seen for seen in self.api.seen if seen.path != "/version"]

    def _answer(self, seen: Seen) -> Answer:
        if seen.path in self.answers:
            return self.answers[seen.path]
        if seen.query.get("watch") == "true":
            return Stream((), then="hang")  # nothing changes
        parts = seen.path.strip("/").split("/")
        if parts[-1] in PLURALS:
            return self._refusal(parts[-1]) or self._list(seen, parts)
        if len(parts) > 1 and parts[-2] in PLURALS:
            return self._refusal(parts[-2]) or self._object(parts)
        return Json(status(404, "NotFound", "the server could not find it"), status=404)

    def _refusal(self, plural: str) -> Answer | None:
        if plural in self.forbidden:
            text = f'{plural} is forbidden: User "alice" cannot list resource "{plural}"'
            return Json(status(403, "Forbidden", text), status=403)
        if plural in self.not_served:
            return Json(status(404, "NotFound", "could not find the resource"), status=404)
        return None

    def _list(self, seen: Seen, parts: list[str]) -> Answer:
        found = [object_ for object_ in self.objects if object_["kind"] == PLURALS[parts[-1]]]
        if "namespaces" in parts[:-1]:
            namespace = parts[parts.index("namespaces") + 1]
            found = [item for item in found if item["metadata"].get("namespace") == namespace]
        found = [item for item in found if _is_selected(item, seen.query)]
        return a_list(*({key: item[key] for key in item if key != "kind"} for item in found))

    def _object(self, parts: list[str]) -> Answer:
        plural, name = parts[-2:]
        for object_ in self.objects:
            if (object_["kind"], object_["metadata"]["name"]) == (PLURALS[plural], name):
                return Json(object_)
        text = f'{plural} "{name}" not found'
        return Json(status(404, "NotFound", text, details={"name": name}), status=404)


def _is_selected(item: Object, query: Any) -> bool:
    labels = item["metadata"].get("labels", {})
    for part in filter(None, query.get("labelSelector", "").split(",")):
        key, equals, value = part.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    field_, _, value = query.get("fieldSelector", "").partition("=")
    if field_ == "status.poolRef.name":
        return bool(item["status"].get("poolRef", {}).get("name", "") == value)
    if field_ == "spec.nodeName":
        return bool(item.get("spec", {}).get("nodeName", "") == value)
    if field_ == "regarding.uid":
        return bool(item["regarding"]["uid"] == value)
    if field_ == "metadata.name":
        return bool(item["metadata"]["name"] == value)
    return True


def children_of(pid: int) -> list[int]:
    """Return the processes that the main thread of another one started, the first one first."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in children.split()]


def process_exists(pid: int) -> bool:
    """Say whether the process runs; a zombie that nobody has reaped yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def document_of(done: Done) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
