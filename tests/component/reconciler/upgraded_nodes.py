"""Nodes with a driver on an API server in memory; `tick` does what kubelet, the DaemonSet controllers and the validator do.

It fails where a driver is unloaded while a pod holds it.
"""

import contextlib
import datetime as dt
import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from api.driver_upgrade import (
    AGENT_DEPLOY_LABEL,
    PAUSED_FOR_UPGRADE,
    SAFE_LOAD_ANNOTATION,
)
from kube.client import KubeClient
from kube.errors import NotFound
from kube.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    NODES,
    PODS,
)
from simulator.apiserver.server import InMemoryApiServer
from tests.support.loop_clock import LoopClock

Json = dict[str, Any]

NAMESPACE = "gpu"
TEAM = "team"
STEP_S = 5.0
VALIDATOR_LABEL = "nvidia.com/gpu.deploy.operator-validator"
DEPLOYED = {"nvidia.com/gpu.deploy.driver": "true", VALIDATOR_LABEL: "true"}
DRIVER_LABELS = {"app.kubernetes.io/component": "nvidia-driver", "app": "nvidia-driver-daemonset"}
KEPT_AWAY = {"key": AGENT_DEPLOY_LABEL, "operator": "NotIn", "values": [PAUSED_FOR_UPGRADE]}
AGENT_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [KEPT_AWAY]}]
        }
    }
}


@dataclass
class UpgradedNodes:
    """Nodes, the DaemonSets of their driver and their agent, and the pods of both."""

    api: InMemoryApiServer
    client: KubeClient
    clock: LoopClock = field(default_factory=LoopClock)
    revision: int = 1
    digest: str = "d1"
    broken: set[str] = field(default_factory=set)
    """Nodes on which the driver of a new revision does not start."""
    agentless: set[str] = field(default_factory=set)
    """Nodes on which a new pod of the agent does not become ready."""
    unstaffed: set[str] = field(default_factory=set)
    """Nodes for which the agent's DaemonSet makes no new pod yet."""
    driver_spec: Json = field(default_factory=dict)
    """Further fields of the driver's template."""
    kubelet_lag_s: float = 0.0
    """By which the clocks of nodes are behind."""
    loaded: dict[str, str] = field(default_factory=dict)
    """Configuration of the driver pod that ended last, by node."""
    daemon_uid: str = ""
    agent_uid: str = ""
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def nodes(self) -> dict[str, Json]:
        listing = await self.client.list_(NODES, Json)
        return {item["metadata"]["name"]: item for item in listing.items}

    async def pods(self, namespace: str | None = None) -> list[Json]:
        return (await self.client.list_(PODS, Json, namespace=namespace)).items

    async def roll_out(self, revision: int, *, digest: str = "") -> None:
        """Change the template of the driver's DaemonSet, of which its controller makes a revision."""
        self.revision, self.digest = revision, digest or f"d{revision}"
        env = [{"name": "DRIVER_CONFIG_DIGEST", "value": self.digest}]
        template = {
            "metadata": {"labels": DRIVER_LABELS},
            "spec": {
                "nodeSelector": {"nvidia.com/gpu.deploy.driver": "true"},
                "containers": [{"name": "driver", "image": f"driver:{revision}", "env": env}],
                **self.driver_spec,
            },
        }
        body = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "driver", "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": DRIVER_LABELS},
                "updateStrategy": {"type": "OnDelete"},
                "template": template,
            },
        }
        written = await self.client.apply(DAEMON_SETS, body, field_manager="test")
        self.daemon_uid = written.decode(Json)["metadata"]["uid"]
        labels = DRIVER_LABELS | {"controller-revision-hash": f"r{revision}"}
        await self.client.create(
            CONTROLLER_REVISIONS,
            {
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {
                    "name": f"driver-r{revision}",
                    "namespace": NAMESPACE,
                    "labels": labels,
                    "ownerReferences": [self._owner("DaemonSet", "driver", self.daemon_uid)],
                },
                "revision": revision,
            },
        )

    async def add_node(self, name: str, **labels: str) -> None:
        meta = {"name": name, "labels": DEPLOYED | labels}
        await self.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        await self.client.merge_patch(NODES, {"spec": {"taints": None}}, name=name)
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.merge_patch(NODES, {"status": ready}, name=name, subresource="status")

    async def tick(self) -> None:
        """Let kubelet and controllers do what there is to do."""
        nodes, pods = await self.nodes(), await self.pods()
        on_node: dict[str, list[Json]] = defaultdict(list)
        for pod in pods:
            name = pod["spec"].get("nodeName", "")
            if pod["metadata"].get("deletionTimestamp") or (name and name not in nodes):
                if pod["spec"].get("volumes") and not has_agent(name, pods):
                    continue  # kubelet cannot unmount its cache
                await self._end(pod, pods if name in nodes and runs_driver(nodes[name]) else [])
            else:
                on_node[name].append(pod)
        for name, node in nodes.items():
            await self._tick_node(node, on_node[name])

    async def _end(self, pod: Json, pods: list[Json]) -> None:
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        if is_driver(pod):
            self.loaded[node] = digest_of(pod)
            self._unload(node, [item for item in pods if item["spec"].get("nodeName") == node])
        with contextlib.suppress(NotFound):
            await self.client.delete(
                PODS, meta["name"], namespace=meta["namespace"], grace_period_s=0
            )

    def _unload(self, node: str, pods: list[Json]) -> None:
        """Load a driver of another configuration than the one before: it is to come alone."""
        if self.loaded.get(node, self.digest) != self.digest:
            holders = [
                pod["metadata"]["name"]
                for pod in pods
                if not is_driver(pod) and pod["metadata"]["labels"].get("app") != "other"
            ]
            assert not holders, f"the driver of {node} is unloaded, and {holders} hold it"

    async def _tick_node(self, node: Json, pods: list[Json]) -> None:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        drivers = [pod for pod in pods if is_driver(pod)]
        is_loaded = any(is_ready(item) for item in drivers)
        is_kept_away = node.get("spec", {}).get("taints") and "tolerations" not in self.driver_spec
        if not drivers and runs_driver(node) and not is_kept_away:
            self._unload(name, pods)
            await self._create_driver(name)
        elif not runs_driver(node):
            for driver in drivers:
                await self.client.delete(PODS, driver["metadata"]["name"], namespace=NAMESPACE)
        for driver in drivers:
            is_waiting = SAFE_LOAD_ANNOTATION in (node["metadata"].get("annotations") or {})
            if not is_ready(driver) and not is_waiting:
                await self._start_driver(driver)
        expected = {
            "validator": labels.get(VALIDATOR_LABEL) == "true",
            "agent": labels.get(AGENT_DEPLOY_LABEL) != PAUSED_FOR_UPGRADE,
        }
        for kind, is_expected in expected.items():
            found = [pod for pod in pods if pod["metadata"]["name"].startswith(kind)]
            if is_expected and not found and (kind != "agent" or name not in self.unstaffed):
                await self._create_own(kind, name)
            for item in found:
                if not is_expected:
                    await self.client.delete(PODS, item["metadata"]["name"], namespace=NAMESPACE)
                elif not is_ready(item) and (
                    is_loaded if kind != "agent" else name not in self.agentless
                ):
                    await self._set_ready(NAMESPACE, item["metadata"]["name"])

    async def _create_driver(self, node: str) -> None:
        meta = {
            "name": f"driver-{next(self._numbers)}",
            "namespace": NAMESPACE,
            "labels": DRIVER_LABELS | {"controller-revision-hash": f"r{self.revision}"},
            "ownerReferences": [self._owner("DaemonSet", "driver", self.daemon_uid)],
        }
        env = [{"name": "DRIVER_CONFIG_DIGEST", "value": self.digest}]
        containers = [{"name": "driver", "image": "driver", "env": env}]
        await self._create(meta, {"containers": containers, "nodeName": node})

    async def _start_driver(self, driver: Json) -> None:
        meta = driver["metadata"]
        is_new = meta["labels"]["controller-revision-hash"] != "r1"
        if driver["spec"]["nodeName"] not in self.broken or not is_new:
            await self._set_ready(NAMESPACE, meta["name"])
            return
        waiting = {"reason": "CrashLoopBackOff", "message": "no module for this kernel"}
        crashes = {
            "name": "driver",
            "ready": False,
            "restartCount": 11,
            "image": "driver",
            "imageID": "",
            "state": {"waiting": waiting},
        }
        status = {"phase": "Running", "containerStatuses": [crashes]}
        await self._set_status(NAMESPACE, meta["name"], status)

    async def _create_own(self, kind: str, node: str) -> None:
        uid = self.agent_uid if kind == "agent" else f"{kind}-uid"
        meta = {
            "name": f"{kind}-{next(self._numbers)}",
            "namespace": NAMESPACE,
            "labels": {"app": "nvidia-operator-validator" if kind == "validator" else "agent"},
            "ownerReferences": [self._owner("DaemonSet", kind, uid)],
        }
        spec: Json = {"nodeName": node, "containers": [{"name": kind, "image": kind}]}
        # The DaemonSet's controller keeps no term of the agent's affinity on its pods.
        if kind == "validator":
            spec["nodeSelector"] = {VALIDATOR_LABEL: "true"}
        await self._create(meta, spec)

    async def _create(self, meta: Json, spec: Json) -> None:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        await self.client.create(PODS, body)

    async def _set_ready(self, namespace: str, name: str) -> None:
        done = {"terminated": {"exitCode": 0, "finishedAt": self._time()}}
        check = {"name": "driver-validation", "ready": True, "state": done}
        more = {"restartCount": 0, "image": "i", "imageID": ""}
        status = {
            "phase": "Running",
            "startTime": self._time(),
            "conditions": [{"type": "Ready", "status": "True"}],
            "initContainerStatuses": [check | more],
            "containerStatuses": [{"name": "c", "ready": True} | more],
        }
        await self._set_status(namespace, name, status)

    async def _set_status(self, namespace: str, name: str, status: Json) -> None:
        await self.client.merge_patch(
            PODS, {"status": status}, name=name, namespace=namespace, subresource="status"
        )

    def _time(self) -> str:
        now = self.clock.utc_now() - dt.timedelta(seconds=self.kubelet_lag_s)
        return now.strftime("%Y-%m-%dT%H:%M:%SZ")

    @staticmethod
    def _owner(kind: str, name: str, uid: str) -> Json:
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "name": name,
            "uid": uid,
            "controller": True,
        }


def runs_driver(node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    return bool(labels.get("nvidia.com/gpu.deploy.driver") == "true")


def is_driver(pod: Json) -> bool:
    labels: Json = pod["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/component") == "nvidia-driver"


def has_agent(node: str, pods: list[Json]) -> bool:
    return any(
        pod["metadata"]["name"].startswith("agent") and pod["spec"].get("nodeName") == node
        for pod in pods
    )


def digest_of(driver: Json) -> str:
    found: str = driver["spec"]["containers"][0]["env"][0]["value"]
    return found


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )
