"""Nodes with a driver on an API server in memory, what moves their pods, and a leader that upgrades them.

`tick` does what kubelet, the DaemonSet controllers and the validator do. It fails where a driver is unloaded while something
holds it. An observer on the API server's watch counts the nodes that are away, whatever the leader thinks.
"""

import asyncio
import contextlib
import datetime as dt
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from api.clock import Instant
from api.csi.names import DRIVER_NAME
from api.driver_upgrade import (
    AGENT_DEPLOY_LABEL,
    PAUSED_FOR_UPGRADE,
    SAFE_LOAD_ANNOTATION,
    UNITS_WITHHELD_ANNOTATION,
    UPGRADE_STATE_LABEL,
)
from api.foreign.core import Taint
from api.kinds.gpunodeinventory import DriverProcess
from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from kube.client import KubeClient
from kube.errors import NotFound
from kube.resources import (
    CLUSTER_POLICIES,
    CONTROLLER_REVISIONS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIMS,
)
from manifests.nvidia.operator_crds import build_operator_crds
from reconciler.driver_upgrade.reports import UpgradeReports
from reconciler.driver_upgrade.upgrade_pass import KEY, DriverUpgrades, UpgradeTools
from reconciler.sinks.operator_objects import OperatorObjects
from simulator.apiserver.server import InMemoryApiServer
from tests.support.client_of_api import an_api_with_client
from tests.support.loop_clock import LoopClock
from tests.support.recorded_events import RecordedEvents

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
class Observer:
    """Counts nodes that are away after every single change that the API server tells."""

    away: set[str] = field(default_factory=set)
    most_away: int = 0
    order: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Node -> `withheld`, `cordoned` and states, in the order in which they came."""

    async def watch(self, client: KubeClient, version: str) -> None:
        async with client.watch(
            NODES, resource_version=version, timeout_s=10**6, idle_timeout_s=10**6
        ) as lines:
            async for line in lines:
                event = msgspec.json.decode(line)
                if event["type"] in {"ADDED", "MODIFIED", "DELETED"}:
                    self._see(event["type"], event["object"])

    def _see(self, kind: str, node: Json) -> None:
        meta = node["metadata"]
        name, annotations = meta["name"], meta.get("annotations") or {}
        conditions = (node.get("status") or {}).get("conditions") or ()
        is_ready = any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in conditions
        )
        is_cordoned = bool(node.get("spec", {}).get("unschedulable"))
        is_withheld = UNITS_WITHHELD_ANNOTATION in annotations
        is_away = kind != "DELETED" and (is_cordoned or is_withheld or not is_ready)
        (self.away.add if is_away else self.away.discard)(name)
        self.most_away = max(self.most_away, len(self.away))
        seen = [(meta.get("labels") or {}).get(UPGRADE_STATE_LABEL, "")]
        seen += ["withheld"] * is_withheld + ["cordoned"] * is_cordoned
        self.order[name] += [item for item in seen if item and item not in self.order[name]]


@dataclass
class UpgradeRun:
    """The world, and the process that leads."""

    api: InMemoryApiServer
    client: KubeClient
    clock: LoopClock = field(default_factory=LoopClock)
    objects: OperatorObjects = field(default_factory=OperatorObjects)
    recorder: RecordedEvents = field(default_factory=RecordedEvents)
    observer: Observer = field(default_factory=Observer)
    revision: int = 1
    digest: str = "d1"
    broken: set[str] = field(default_factory=set)
    """Nodes on which the driver of a new revision does not start."""
    agentless: set[str] = field(default_factory=set)
    """Nodes on which a new pod of the agent does not become ready."""
    unstaffed: set[str] = field(default_factory=set)
    """Nodes for which the agent's DaemonSet makes no new pod yet."""
    pools: set[str] = field(default_factory=lambda: {"whole"})
    pool_taints: list[Taint] = field(default_factory=list)
    """What the pools give every node."""
    driver_spec: Json = field(default_factory=dict)
    """Further fields of the driver's template."""
    found: dict[str, list[DriverProcess]] = field(default_factory=dict)
    """What the agents find with the driver open, by node."""
    kubelet_lag_s: float = 0.0
    """By which the clocks of nodes are behind."""
    loaded: dict[str, str] = field(default_factory=dict)
    """Configuration of the driver pod that ended last, by node."""
    daemon_uid: str = ""
    agent_uid: str = ""
    policy_uid: str = ""
    """Where the API server has a ClusterPolicy."""
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.lead()

    # The leader

    def lead(self) -> None:
        """Let another process lead, which remembers nothing."""
        self.reports = UpgradeReports()
        self.upgrades = DriverUpgrades(
            self.client,
            self.recorder,
            objects=self.objects,
            reports=self.reports,
            tools=UpgradeTools(
                namespace=NAMESPACE,
                pools=lambda: self.pools,
                pool_taints=lambda _node: self.pool_taints,
                now=lambda: Instant(self.clock.monotonic(), self.clock.utc_now()),
                found=lambda node: self.found.get(node, ()),
            ),
        )

    async def run_pass(self) -> float | None:
        return await self.upgrades.reconcile(KEY)

    async def step(self) -> None:
        """Let a moment pass, in which all others act, and then the leader."""
        await asyncio.sleep(STEP_S)
        await self.tick()
        await self.run_pass()

    async def until(self, *states: str, node: str = "", steps: int = 400) -> None:
        """Go on until the node, or every node, is in one of the states."""
        for _ in range(steps):
            found = await self.states()
            current = {found.get(node, "")} if node else set(found.values())
            if current <= set(states):
                return
            await self.step()
        raise AssertionError(await self.states(), self.reports.by_node())

    def policy(
        self,
        *,
        annotations: "dict[str, str] | None" = None,
        status: "Json | None" = None,
        **fields: Any,
    ) -> None:
        """Write the ClusterPolicy with an upgrade policy of these fields."""
        defaults = {"autoUpgrade": True, "maxParallelUpgrades": 0, "podDeletion": {}}
        spec = {"driver": {"upgradePolicy": defaults | fields}}
        self.put_policy(spec, annotations=annotations, status=status)

    def put_policy(
        self,
        spec: Json,
        *,
        annotations: "dict[str, str] | None" = None,
        status: "Json | None" = None,
    ) -> None:
        meta = {"name": "policy", "uid": self.policy_uid, "annotations": annotations or {}}
        self.objects.policy_store.upsert(
            msgspec.convert({"metadata": meta, "spec": spec, "status": status or {}}, ClusterPolicy)
        )

    def driver(self, name: str, **fields: Any) -> None:
        spec = {"upgradePolicy": {"maxParallelUpgrades": 0} | fields}
        self.objects.driver_store.upsert(
            msgspec.convert({"metadata": {"name": name}, "spec": spec}, NVIDIADriver)
        )

    # What is there

    async def node(self, name: str) -> Json:
        return await self.client.get(NODES, Json, name)

    async def nodes(self) -> dict[str, Json]:
        listing = await self.client.list_(NODES, Json)
        return {item["metadata"]["name"]: item for item in listing.items}

    async def pods(self, namespace: str | None = None) -> list[Json]:
        return (await self.client.list_(PODS, Json, namespace=namespace)).items

    async def states(self) -> dict[str, str]:
        return {
            name: (node["metadata"].get("labels") or {}).get(UPGRADE_STATE_LABEL, "")
            for name, node in (await self.nodes()).items()
        }

    async def driver_revisions(self) -> dict[str, str]:
        return {
            pod["spec"]["nodeName"]: pod["metadata"]["labels"]["controller-revision-hash"]
            for pod in await self.pods(NAMESPACE)
            if is_driver(pod)
        }

    def writes(self) -> int:
        found = len(self.api.requests.writes())
        self.api.requests.clear()
        return found

    async def marks(self, name: str) -> set[str]:
        """Return what upgrades have left on the node, but for the record and a state of rest."""
        node = await self.node(name)
        meta, labels = node["metadata"], node["metadata"].get("labels") or {}
        found = {"cordoned"} if node.get("spec", {}).get("unschedulable") else set()
        found |= {"withheld"} & {
            "withheld" if UNITS_WITHHELD_ANNOTATION in meta.get("annotations", {}) else ""
        }
        return found | {key for key, value in labels.items() if value == PAUSED_FOR_UPGRADE}

    # What others do

    async def begin(self, nodes: int) -> None:
        for name in (NAMESPACE, TEAM):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            with contextlib.suppress(Exception):
                await self.client.create(NAMESPACES, body)
        await self.roll_out(1)
        body = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": {"app": "agent"}},
                "template": {
                    "metadata": {"labels": {"app": "agent"}},
                    "spec": {
                        "affinity": AGENT_AFFINITY,
                        "containers": [{"name": "agent", "image": "agent"}],
                    },
                },
            },
        }
        written = await self.client.apply(DAEMON_SETS, body, field_manager="test")
        self.agent_uid = written.decode(Json)["metadata"]["uid"]
        for number in range(nodes):
            await self.add_node(f"n{number}")
        for _ in range(3):
            await self.tick()

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

    async def cordon(self, name: str, *, is_cordoned: bool = True) -> None:
        """What `kubectl cordon` writes."""
        await self.client.merge_patch(
            NODES, {"spec": {"unschedulable": is_cordoned or None}}, name=name
        )

    async def add_pod(
        self,
        node: str,
        *,
        owner: str = "ReplicaSet",
        resource: str = "gpu.deckhouse.io/whole",
        has_cache: bool = False,
        **labels: str,
    ) -> str:
        """Let a pod of a GPUPool, or that requests another resource, run on the node."""
        name = f"train-{next(self._numbers)}"
        resources = {"limits": {resource: "1"}}
        container = {"name": "c", "image": "cuda", "resources": resources}
        meta: Json = {"name": name, "namespace": TEAM, "labels": {"app": "train"} | labels}
        if owner:
            meta["ownerReferences"] = [self._owner(owner, "train", "owner-uid")]
        volumes = [{"name": "cache", "csi": {"driver": DRIVER_NAME}}] if has_cache else []
        await self._create(meta, {"nodeName": node, "containers": [container], "volumes": volumes})
        await self._set_ready(TEAM, name)
        return name

    async def serve_policy(self) -> None:
        """Let the API server have the ClusterPolicy, whose status shows upgrades."""
        await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, build_operator_crds()[0])
        meta = {"name": "policy"}
        blocks = "operator daemonsets driver toolkit devicePlugin dcgmExporter dcgm nodeStatusExporter gfd"
        body = {
            "apiVersion": CLUSTER_POLICIES.api_version,
            "kind": CLUSTER_POLICIES.kind,
            "metadata": meta,
            "spec": {name: {} for name in blocks.split()},
        }
        written = await self.client.create(CLUSTER_POLICIES, body)
        self.policy_uid = written.decode(Json)["metadata"]["uid"]
        await self.client.merge_patch(
            CLUSTER_POLICIES,
            {"status": {"state": "notReady", "namespace": NAMESPACE}},
            name="policy",
            subresource="status",
        )

    async def serve_claims(self) -> None:
        """Let the API server have Dynamic Resource Allocation."""
        kinds = {"plural": "resourceclaims", "singular": "resourceclaim", "kind": "ResourceClaim"}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "resourceclaims.resource.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
            },
            "spec": {
                "group": "resource.k8s.io",
                "scope": "Namespaced",
                "names": kinds | {"listKind": "ResourceClaimList"},
                "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
            },
        }
        await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)

    async def add_claiming_pod(self, node: str, *, driver: str) -> str:
        """Let a pod run on the node that has a device by a claim."""
        name = f"claiming-{next(self._numbers)}"
        results = [{"driver": driver, "pool": "p", "device": "d", "request": "r"}]
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": TEAM},
            "status": {"allocation": {"devices": {"results": results}}},
        }
        await self.client.create(RESOURCE_CLAIMS, body)
        owners = [self._owner("ReplicaSet", "web", "web-uid")]
        meta = {"name": name, "namespace": TEAM, "ownerReferences": owners}
        spec = {
            "nodeName": node,
            "containers": [{"name": "c", "image": "cuda"}],
            "resourceClaims": [{"name": "device", "resourceClaimName": name}],
        }
        await self._create(meta, spec)
        await self._set_ready(TEAM, name)
        return name

    async def add_budget(self, *, allowed: int) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "train", "namespace": TEAM},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}},
        }
        await self.client.create(POD_DISRUPTION_BUDGETS, body)
        await self.allow(allowed)

    async def allow(self, allowed: int) -> None:
        status = {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 1 + allowed,
            "observedGeneration": 1,
        }
        await self.client.merge_patch(
            POD_DISRUPTION_BUDGETS,
            {"status": status},
            name="train",
            namespace=TEAM,
            subresource="status",
        )

    async def tick(self) -> None:
        """Let kubelet and controllers do what there is to do."""
        nodes, pods = await self.nodes(), await self.pods()
        on_node: dict[str, list[Json]] = defaultdict(list)
        for pod in pods:
            name = pod["spec"].get("nodeName", "")
            if pod["metadata"].get("deletionTimestamp") or (name and name not in nodes):
                if pod["spec"].get("volumes") and not has_agent(name, pods):
                    continue  # kubelet cannot unmount its cache
                await self._end(pod, pods if name in nodes and _runs_driver(nodes[name]) else [])
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
        if not drivers and _runs_driver(node) and not is_kept_away:
            self._unload(name, pods)
            await self._create_driver(name)
        elif not _runs_driver(node):
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


def _runs_driver(node: Json) -> bool:
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


@asynccontextmanager
async def an_upgrade_run(nodes: int = 1, **policy: Any) -> AsyncIterator[UpgradeRun]:
    """Nodes with a driver of revision 1 that is up to date, and a policy with autoUpgrade."""
    async with an_api_with_client() as (api, client):
        run = UpgradeRun(api, client)
        await run.begin(nodes)
        run.policy(**policy)
        await run.until("upgrade-done")
        run.recorder.taken()
        listing = await client.list_(NODES, Json)
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(run.observer.watch(client, listing.resource_version))
            yield run
            watch.cancel()
