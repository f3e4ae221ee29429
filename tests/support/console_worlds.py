"""Random histories of a small cluster, as objects that a console is fed with; by seed.

Pods are in two namespaces whose names, and those of their pods, appear in nothing else.
"""

import copy
import datetime as dt
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from api.annotations import encode_devices
from api.names import DEVICES_ANNOTATION, POOL_LABEL, RESERVATION_ANNOTATION, UnitId
from tests.support.cluster_objects import (
    Object,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
    uuid_of,
)
from tests.support.console_feed import ConsoleFeed
from tests.support.plugin_cluster import CREATED, labelled

NAMESPACES = ("northern", "southern")
POOLS = ("whole", "slices")
SLICES = 3
NODES = ("n0", "n1", "n2")
DEVICES = 3
Key = tuple[str, str]


def condition(type_: str, status: str, message: str = "") -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": "Because",
        "message": message,
        "lastTransitionTime": CREATED,
        "observedGeneration": 1,
    }


class ConsoleWorld:
    """The objects that there are, each as the feed has it, and random changes of them."""

    def __init__(self, feed: ConsoleFeed, seed: int) -> None:
        self._feed = feed
        self._chance = random.Random(seed)
        self._numbers = iter(range(10_000))
        self.objects: dict[Key, Object] = {}
        for pool in POOLS:
            self.put(self._pool(pool))
        for node in NODES:
            self.put(a_node_object(node))
            for number in range(DEVICES):
                self.put(self._device(node, number))

    @property
    def pods(self) -> list[Object]:
        return [item for (kind, _), item in self.objects.items() if kind == "Pod"]

    def put(self, content: Object) -> None:
        self.objects[_key(content)] = content
        self._feed.put(copy.deepcopy(content))

    def change(self) -> None:
        """Make one random change."""
        self._chance.choice(
            [
                *[self._new_pod] * 4,
                *[self._bind] * 4,
                *[self._reserve] * 3,
                *[self._end_pod] * 2,
                *[self._delete_pod] * 3,
                self._change_pod,
                self._change_node,
                self._change_device,
                self._change_device,
                self._change_pool,
                self._change_inventory,
                self._change_lease,
                self._wait,
                self._list_pods,
            ]
        )()

    def _one(self, options: Any) -> Any:
        return self._chance.choice(list(options))

    def _new_pod(self) -> None:
        namespace = self._one(NAMESPACES)
        name = f"{namespace}-pod-{next(self._numbers)}"
        pool = self._one((*POOLS, *POOLS, "absent"))
        pod = labelled(
            a_pod_object(name, self._one((1, 1, 2, 3)), pool=pool, priority=self._one((0, 0, 5))),
            pool=pool,
            namespace=namespace,
        )
        pod["metadata"]["uid"] = f"uid-{name}"
        if self._chance.random() < 0.1:
            pod["spec"]["schedulingGates"] = [{"name": "queue"}]
        self.put(pod)

    def _pending(self) -> Iterator[Object]:
        for pod in self.pods:
            if "nodeName" not in pod["spec"] and pod.get("status", {}).get("phase") != "Failed":
                yield pod

    def _bind(self) -> None:
        pending = list(self._pending())
        if not pending:
            return
        pod = copy.deepcopy(self._one(pending))
        pod["spec"].pop("schedulingGates", None)
        node = self._one(NODES)
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Running"}
        if self._chance.random() < 0.9:
            units = self._units(pod, node)
            pod["metadata"].setdefault("annotations", {})[DEVICES_ANNOTATION] = encode_devices(
                {"main": tuple(map(UnitId, units))}
            )
        self.put(pod)

    def _reserve(self) -> None:
        """Let the annotation of a pending pod say that units are reserved, or are not any more."""
        pending = list(self._pending())
        if not pending:
            return
        pod = copy.deepcopy(self._one(pending))
        annotations = pod["metadata"].setdefault("annotations", {})
        if self._chance.random() < 0.2:
            annotations.pop(RESERVATION_ANNOTATION, None)
        else:
            node = self._one(NODES)
            now = self._feed.clock.utc_now()
            until = now + dt.timedelta(seconds=self._one((5, 30, 300)))
            note = {
                "id": f"r{next(self._numbers)}",
                "pool": _pool_of(pod),
                "node": node,
                "devices": {"main": self._units(pod, node)},
                "expiresAt": until.isoformat(),
            }
            annotations[RESERVATION_ANNOTATION] = json.dumps(note)
        self.put(pod)

    def _units(self, pod: Object, node: str) -> list[str]:
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        pool = _pool_of(pod)
        count = int(limits[f"gpu.deckhouse.io/{pool}"])
        there = [
            item
            for (kind, _), item in self.objects.items()
            if kind == "GPUDevice"
            and item["status"]["nodeName"] == node
            and item["status"].get("poolRef", {}).get("name") == pool
        ]
        whole = [item["status"]["uuid"] for item in there]
        units = (
            whole if pool != "slices" else [f"{item}::{n}" for item in whole for n in range(SLICES)]
        )
        self._chance.shuffle(units)
        return units[:count]

    def _end_pod(self) -> None:
        bound = [item for item in self.pods if "nodeName" in item["spec"]]
        if bound:
            pod = copy.deepcopy(self._one(bound))
            pod["status"] = {"phase": self._one(("Succeeded", "Failed"))}
            self.put(pod)

    def _delete_pod(self) -> None:
        if self.pods:
            self._remove(self._one(self.pods))

    def _change_pod(self) -> None:
        """Let kube-scheduler and the leader say something of a pod."""
        pending = list(self._pending())
        if pending:
            pod = copy.deepcopy(self._one(pending))
            units = condition("gpu.deckhouse.io/UnitsAvailable", "False", "none is free")
            said = condition("PodScheduled", "False", f"refused {next(self._numbers)} times")
            pod["status"] = {"phase": "Pending", "conditions": [units, said]}
            self.put(pod)

    def _change_node(self) -> None:
        node = self._one(NODES)
        current = self.objects.get(("Node", node))
        if current is not None and self._chance.random() < 0.3:
            self._remove(current)
            return
        changed = a_node_object(node, unschedulable=self._one((True, False, False)))
        ready = self._one(("True", "True", "False"))
        changed["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        self.put(changed)

    def _change_device(self) -> None:
        node, number = self._one(NODES), self._one(range(DEVICES))
        current = self.objects.get(("GPUDevice", f"{node}-{number}"))
        if current is not None and self._chance.random() < 0.2:
            self._remove(current)
            return
        device = self._device(node, number)
        change: Callable[[Object], None] = self._one(
            (_fault, _drain, _leave, _say_that_it_is_old, lambda _: None, lambda _: None)
        )
        change(device)
        self.put(device)

    def _change_pool(self) -> None:
        name = self._one(POOLS)
        current = self.objects.get(("GPUPool", name))
        if current is not None and self._chance.random() < 0.3:
            self._remove(current)
            return
        pool = self._pool(name)
        pool["status"] = {
            "phase": self._one(("Ready", "Degraded")),
            "conditions": [
                condition("Ready", self._one(("True", "False")), "no device is healthy")
            ],
            "capacity": {"total": self._one(range(9)), "available": 1, "largestFree": 1},
        }
        if self._chance.random() < 0.2:
            pool["metadata"]["deletionTimestamp"] = CREATED
        self.put(pool)

    def _change_inventory(self) -> None:
        """Let an agent name a pod in what it says of its node."""
        pods = [pod["metadata"]["name"] for pod in self.pods] or ["none"]
        text = f"processes of {self._one(pods)} are left"
        status = {"conditions": [condition("AgentDegraded", self._one(("True", "False")), text)]}
        node = self._one(NODES)
        self.put({"kind": "GPUNodeInventory", "metadata": {"name": node}, "status": status})

    def _change_lease(self) -> None:
        renewed = self._feed.clock.utc_now() - dt.timedelta(seconds=self._one((1, 100)))
        self.put(
            {
                "kind": "Lease",
                "metadata": {"name": "gpu-control-plane", "namespace": "gpu-system"},
                "spec": {
                    "holderIdentity": self._one(("replica-1", "replica-2", None)),
                    "renewTime": renewed.isoformat(),
                },
            }
        )

    def _wait(self) -> None:
        self._feed.clock.passed_s += self._one((0.3, 2.0, 12.0, 40.0, 1500.0))

    def _list_pods(self) -> None:
        """Let a list of pods come that lacks one."""
        if self.pods:
            gone = self._one(self.pods)
            del self.objects[_key(gone)]
        self._feed.list_pods(copy.deepcopy(self.pods))

    def _remove(self, content: Object) -> None:
        del self.objects[_key(content)]
        self._feed.remove(copy.deepcopy(content))

    def _pool(self, name: str) -> Object:
        sliced = {"mode": "TimeSlice", "slicesPerDevice": SLICES}
        allocation = sliced if name == "slices" else {"mode": "Exclusive"}
        return a_pool_object(name, allocation=allocation)

    def _device(self, node: str, number: int) -> Object:
        pool = "slices" if number == DEVICES - 1 else "whole"
        return a_device_object(node, number, pool=pool, uuid=uuid_of(node, number))


def _fault(device: Object) -> None:
    device["status"]["conditions"] = [condition("Healthy", "False", "XID 79")]


def _drain(device: Object) -> None:
    device["status"]["conditions"] = [condition("Draining", "True")]


def _leave(device: Object) -> None:
    del device["status"]["poolRef"]


def _say_that_it_is_old(device: Object) -> None:
    device["status"]["conditions"] = [condition("Stale", "True", "the source is silent")]


def _pool_of(pod: Object) -> str:
    return str(pod["metadata"]["labels"][POOL_LABEL])


def _key(content: Object) -> Key:
    meta = content["metadata"]
    namespace = meta.get("namespace")
    return content["kind"], f"{namespace}/{meta['name']}" if namespace else meta["name"]
