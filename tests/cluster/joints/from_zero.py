"""From no node to a running pod with a warm kernel cache, told line by line; each line is checked.

A user applies the objects of `objects_of` and does nothing else by hand. The test and `make playground` play it.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import yaml

from api.csi.names import CACHE_ATTRIBUTE, DRIVER_NAME
from api.names import (
    AGENT_NOT_READY_TAINT,
    API_VERSION,
    CAPACITY_GATE,
    DEVICES_ANNOTATION,
    RESOURCE_PREFIX,
)
from demo.child_programs import output_of
from tests.cluster.environment import karpenter, nodes, pods, polling, whole_cluster
from tests.cluster.system.installation import GKM, NAMESPACE
from tests.cluster.system.objects import DEVICES, POOLS, RESERVATION_KEY, capacity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.cluster.environment.client import JsonObject
    from tests.cluster.environment.whole_cluster import WholeCluster

POOL: Final = "llm"
"""And its NodePool, whose name Karpenter's kwok provider makes much longer for a Node."""
RESOURCE: Final = f"{RESOURCE_PREFIX}{POOL}"
CACHE: Final = "triton-common"
"""ClusterGKMCache of the examples."""
POD: Final = "server"
IDLE_AFTER: Final = "30s"
"""The shortest that there is."""
TAINT: Final = f"pool.gpu.deckhouse.io/{POOL}"
TYPES: Final = {1: "gpu-1x", 2: "gpu-2x"}
"""Devices of a shape -> its instance type."""


def a_pool() -> "JsonObject":
    """Return a pool that has no node, with a shape of each size, as docs/autoscaling.md describes one."""
    key = "node.kubernetes.io/instance-type"
    shapes = [
        {
            "name": f"devices-{devices}",
            "devices": devices,
            "requirements": [karpenter.a_requirement(key, type_)],
        }
        for devices, type_ in TYPES.items()
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUPool",
        "metadata": {"name": POOL},
        "spec": {
            "nodeSelector": {"matchLabels": {"example.com/gpu-pool": POOL}},
            "assignment": {"requireAnnotation": False},
            "scheduling": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]},
            "autoscaling": {"idleAfter": IDLE_AFTER, "shapes": shapes},
        },
    }


def a_pod(namespace: str, name: str = POD, units: int = 1) -> "JsonObject":
    """Return a pod that mounts the cache; it names neither node, nor taint, nor scheduler."""
    attributes = {CACHE_ATTRIBUTE: CACHE}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/server:1",
                    "resources": {"limits": {RESOURCE: units}},
                    "volumeMounts": [{"name": "kernels", "mountPath": "/root/.triton/cache"}],
                }
            ],
            "volumes": [
                {"name": "kernels", "csi": {"driver": DRIVER_NAME, "volumeAttributes": attributes}}
            ],
        },
    }


@dataclass(kw_only=True)
class FromZero:
    """The story, in one namespace of a cluster without a node."""

    cluster: "WholeCluster"
    namespace: str
    folder: "Path"
    """For the files that the user applies."""
    say: "Callable[[str], None]"
    policy: "Mapping[str, JsonObject]" = field(default_factory=dict)
    """Sections of the ClusterPolicy, over what is printed of them."""
    pool: "JsonObject" = field(default_factory=a_pool)
    times: dict[str, float] = field(default_factory=dict)
    """What happened -> seconds after the pod was created."""
    node: str = ""
    examples: "tuple[JsonObject, ...]" = ()
    """The objects of `cache example`, as it printed them."""

    async def apply_all(self) -> None:
        """Apply everything but the pod."""
        self.cluster.nodes[POOL] = self.cluster.agent
        self.say("  $ gpu-control-plane render clusterpolicy > clusterpolicy.yaml")
        printed = await self.cluster.system.render("clusterpolicy")
        (policy,) = filter(None, yaml.safe_load_all(printed))
        for section, changes in self.policy.items():
            policy["spec"][section] |= changes
        await self._apply(self._write("clusterpolicy", policy))
        registry = self.cluster.images.registry.host
        self.say(f"  $ gpu-control-plane cache example {registry} --plain-http > examples.yaml")
        printed = await output_of("cli", "cache", "example", registry, "--plain-http")
        self.examples = tuple(yaml.safe_load_all(printed))
        (self.folder / "examples.yaml").write_text(printed, encoding="utf-8")
        await self._apply(self.folder / "examples.yaml")
        await polling.eventually(self._are_admitted, what="the pods of the examples are admitted")
        pool = self._write("pool", self.pool)
        kind = "/".join((*karpenter.NODE_CLASS_KIND.values(), whole_cluster.NODE_CLASS))
        self.say(f"  $ gpu-control-plane render nodepool --pool-file pool.yaml --node-class {kind}")
        printed = await self.cluster.system.render(
            "nodepool", "--pool-file", str(pool), "--node-class", kind
        )
        await self._apply(pool, self._write("nodepool", *yaml.safe_load_all(printed)))

    async def play(self) -> None:
        """Apply everything, and follow the pod until it runs and its cache is warm."""
        await self.apply_all()
        self._began = asyncio.get_running_loop().time()
        await self._apply(self._write("pod", a_pod(self.namespace)))
        pod = await self._pod()
        assert pod["spec"]["schedulingGates"] == [{"name": CAPACITY_GATE}], f"{pod['spec']}"
        self._note(f"pod {POD} waits behind the scheduling gate {CAPACITY_GATE}")
        claim = await polling.eventually(self._claim, what="a NodeClaim")
        self._note(f"Karpenter has the NodeClaim {claim['metadata']['name']}")
        self.node = await polling.eventually(self._node_name, what="a Node")
        self._note(f"node {self.node} has joined, with taints that keep the pod away")
        await polling.eventually(self._driver_runs, what=f"the driver runs on {self.node}")
        assert {AGENT_NOT_READY_TAINT, TAINT} <= await self._taints()
        self._note("the driver's pod of the ClusterPolicy runs there")
        await polling.eventually(self._has_devices, what=f"devices of {self.node}")
        self._note("the agent reports the devices")
        await polling.eventually(self._has_units, what=f"{self.node} has units of {POOL}")
        self._note(f"they are in pool {POOL}: kubelet offers {RESOURCE}")
        await polling.eventually(self._has_no_startup_taint, what="the startup taint is removed")
        self._note(f"units are reserved for the pod, and the taint {AGENT_NOT_READY_TAINT} goes")
        pod = await polling.eventually(self._running_pod, what=f"pod {POD} runs")
        assert pod["spec"]["nodeName"] == self.node, f"{pod['spec']}"
        self._note(f"pod {POD} runs with {pod['metadata']['annotations'][DEVICES_ANNOTATION]}")
        await polling.eventually(self._is_warm, what=f"cache {CACHE} is warm on {self.node}")
        self._note(f"kernel cache {CACHE} is on the node, verified, and the pod's volume is it")

    async def end(self) -> None:
        """Delete the pod, wait until its node is gone and the pool has no unit, and delete the examples."""
        await self.cluster.api.delete(f"{pods.collection(self.namespace)}/{POD}")

        async def is_at_zero() -> bool:
            assert not await self.cluster.api.find(f"{nodes.NODES}/{self.node}")
            return capacity(await self.cluster.api.get(f"{POOLS}/{POOL}")).get("total") == 0

        await polling.eventually(is_at_zero, what=f"{self.node} is gone")
        file = str(self.folder / "examples.yaml")
        await self.cluster.kubectl("delete", "--wait=false", "-f", file)

    def _write(self, name: str, *documents: "JsonObject") -> "Path":
        """Write objects into a file that the user may read and change."""
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")
        return file

    async def _apply(self, *files: "Path") -> None:
        arguments = [text for file in files for text in ("-f", str(file))]
        await self.cluster.kubectl("apply", *arguments)
        self.say(f"  $ kubectl apply {' '.join(f'-f {file.name}' for file in files)}")

    def _note(self, event: str) -> None:
        self.times[event] = asyncio.get_running_loop().time() - self._began
        self.say(f"  {self.times[event]:5.1f} s  {event}")

    async def _are_admitted(self) -> bool:
        """Say whether every workload of the examples has its pods, and all have been given to their pool."""
        for example in self.examples:
            name, count = example["metadata"]["name"], example.get("spec", {}).get("replicas", 1)
            if example["kind"] not in {"Pod", "Deployment"}:
                continue
            path = pods.collection(example["metadata"]["namespace"])
            found = [
                pod["metadata"]
                for pod in (await self.cluster.api.get(path))["items"]
                if pod["metadata"]["name"].startswith(name)
            ]
            assert len(found) == count, f"{name}: {found}"
            assert all(RESERVATION_KEY in pod.get("annotations", {}) for pod in found), f"{found}"
        return True

    async def _pod(self) -> "JsonObject":
        return await self.cluster.api.get(f"{pods.collection(self.namespace)}/{POD}")

    async def _claim(self) -> "JsonObject | None":
        found = await karpenter.claims_of(self.cluster.api, POOL)
        return found[0] if found else None

    async def _node_name(self) -> str:
        claim = await self._claim() or {}
        name = str(claim.get("status", {}).get("nodeName", ""))
        return name if name and await self.cluster.api.find(f"{nodes.NODES}/{name}") else ""

    async def _driver_runs(self) -> bool:
        path, selector = pods.collection(NAMESPACE), f"spec.nodeName={self.node}"
        found = {
            pod["metadata"]["name"]: pod["status"]["phase"]
            for pod in (await self.cluster.api.get(path, fieldSelector=selector))["items"]
        }
        driver = [name for name in found if name.startswith(whole_cluster.DRIVER_PODS)]
        assert [found[name] for name in driver] == ["Running"], f"{found}"
        return True

    async def _has_devices(self) -> bool:
        devices = (await self.cluster.api.get(DEVICES))["items"]
        return any(item.get("status", {}).get("nodeName") == self.node for item in devices)

    async def _node(self) -> "JsonObject":
        return await self.cluster.api.get(f"{nodes.NODES}/{self.node}")

    async def _has_units(self) -> bool:
        allocatable = (await self._node())["status"]["allocatable"]
        assert allocatable.get(RESOURCE, "0") != "0", f"{allocatable}"
        return True

    async def _has_no_startup_taint(self) -> bool:
        taints = await self._taints()
        assert AGENT_NOT_READY_TAINT not in taints, f"{taints}"
        return True

    async def _taints(self) -> set[str]:
        return {item["key"] for item in (await self._node())["spec"].get("taints", ())}

    async def _running_pod(self) -> "JsonObject":
        pod = await self._pod()
        assert pod["status"]["phase"] == "Running", f"{pod['spec']} {pod['status']}"
        return pod

    async def _is_warm(self) -> bool:
        status = await self.cluster.api.status(f"{GKM}/clustergkmcaches/{CACHE}")
        (pool,) = status.get("pools") or [{}]
        assert pool == {"name": POOL, "nodes": 1, "warm": 1, "incompatible": 0}, f"{status}"
        assert status["counts"]["podRunningCnt"] == 1, f"{status}"
        return True
