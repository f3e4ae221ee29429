"""Drivers in a run: a ClusterPolicy for the arena's nodes, pods with a disruption budget, and drivers that crash.

DaemonSets, ControllerRevisions and evictions are real, and the kubelet double plays the pods. Every version differs in what
is installed, so no upgrade is a restart of the driver pod alone.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, final

import aiohttp

from tests.cluster.environment import client, nodes
from tests.cluster.system import installation
from tests.cluster.system.objects import Pool, a_container
from tests.fault.upgrades.upgrade_observations import (
    DEVICE_LABEL,
    DRIVERS,
    FAILED,
    GUARDED,
    GUARDED_PODS,
    STATE_LABEL,
)
from tests.support.driver_alone import OTHER_OPERANDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Insist = Callable[..., Awaitable[Any]]

SYSTEM_PODS: Final = f"/api/v1/namespaces/{installation.NAMESPACE}/pods"
REQUESTED: Final = "nvidia.com/gpu-driver-upgrade-requested"
NODE_LABELS: Final = {
    DEVICE_LABEL: "true",
    "feature.node.kubernetes.io/kernel-version.full": "6.8.0-60-generic",
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID.major": "24",
}
"""As Node Feature Discovery gives them to a node with a GPU."""
IMAGES: Final = {
    name: f"registry.test/{name.lower()}:1" for name in ("VALIDATOR_IMAGE", "DRIVER_MANAGER_IMAGE")
}
"""What the policy does not name."""
NODES_AWAY_IDLE: Final = "50%"
EMPTIED_WITHIN_S: Final = 20
"""A node whose pods a budget keeps has failed after this, and is back in service."""
_REPLICAS: Final = 2
_CRASHES: Final = 11
"""One more than a driver pod may restart."""
_READ_EVERY_S: Final = 0.3


@final
class DriverRollout:
    """The policy and the guarded pods of one arena."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        """All names begin with `namespace`, as those of the arena do."""
        self._api = api
        self.policy = f"{namespace}-drivers"
        self._policy = f"{installation.CLUSTER_POLICIES}/{self.policy}"
        self._deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/{GUARDED_PODS}"
        self._budget = (
            f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{namespace}-guarded"
        )

    async def build(self, insist: "Insist", *, pool: str, priority: str) -> None:
        """Create the policy, and guarded pods that ask for a unit of the pool each."""
        kind = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy"}
        await insist(lambda: self._create(self._policy, {**kind, "spec": _policy_spec()}))
        labels = {GUARDED: "true"}
        budget = {"spec": {"minAvailable": _REPLICAS - 1, "selector": {"matchLabels": labels}}}
        await insist(lambda: self._create(self._budget, budget))
        spec = {
            "containers": [a_container("c0", Pool(name=pool, nodes=()), 1)],
            # No other pod of the run preempts them: a scheduler may do so past a budget.
            "priorityClassName": priority,
        }
        template = {"metadata": {"labels": labels}, "spec": spec}
        deployment = {
            "spec": {
                "replicas": _REPLICAS,
                "selector": {"matchLabels": labels},
                "template": template,
            }
        }
        await insist(lambda: self._create(self._deployment, deployment))

    async def release(self) -> None:
        """Delete the policy and let it go without a server; the garbage collector deletes what it owns."""
        with contextlib.suppress(client.ApiRefusedError):
            await self._api.delete(self._policy)
            await self._api.patch(self._policy, {"metadata": {"finalizers": None}})

    async def set_version(self, insist: "Insist", number: int) -> None:
        await self._change(insist, {"version": f"580.{number}"})

    async def set_limits(
        self, insist: "Insist", max_parallel: int, max_unavailable: int | str
    ) -> None:
        limits = {"maxParallelUpgrades": max_parallel, "maxUnavailable": max_unavailable}
        await self._change(insist, {"upgradePolicy": limits})

    async def crash(self, node: str, for_s: float) -> None:
        """Have every driver pod of the node crash, those that come meanwhile too, and recover afterwards."""
        deadline = asyncio.get_running_loop().time() + for_s
        while asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(client.ApiRefusedError, aiohttp.ClientError, TimeoutError):
                await self._report(node, is_ready=False)
            await asyncio.sleep(_READ_EVERY_S)

    async def recover(self, node: str) -> None:
        await self._report(node, is_ready=True)

    async def end_guarded_pods(self, insist: "Insist") -> None:
        """Delete what creates them; the garbage collector deletes the pods."""
        await insist(lambda: self._api.delete(self._deployment), missing_is_done=True)

    async def request_failed(self, insist: "Insist") -> "Sequence[str]":
        """Ask for another attempt on the nodes that have failed, as the documentation says; return them."""
        selector = f"{DEVICE_LABEL},{STATE_LABEL}={FAILED}"
        found = await insist(lambda: self._api.get(nodes.NODES, labelSelector=selector))
        names = [item["metadata"]["name"] for item in found["items"]]
        body = {"metadata": {"annotations": {REQUESTED: "true"}}}
        for name in names:
            path = f"{nodes.NODES}/{name}"
            await insist(lambda path=path: self._api.patch(path, body), missing_is_done=True)
        return names

    async def _create(self, path: str, body: dict[str, Any]) -> None:
        collection, _, name = path.rpartition("/")
        await self._api.create(collection, {"metadata": {"name": name}, **body})

    async def _change(self, insist: "Insist", driver: dict[str, Any]) -> None:
        await insist(lambda: self._api.patch(self._policy, {"spec": {"driver": driver}}))

    async def _report(self, node: str, *, is_ready: bool) -> None:
        """Report the containers of the node's running driver pods, as kubelet does."""
        drivers = await self._api.get(
            SYSTEM_PODS, labelSelector=DRIVERS, fieldSelector=f"spec.nodeName={node}"
        )
        for pod in drivers["items"]:
            status, metadata = pod["status"], pod["metadata"]
            containers = status.get("containerStatuses") or ()
            if status.get("phase") == "Running" and any(
                container["ready"] is not is_ready for container in containers
            ):
                path = f"{SYSTEM_PODS}/{metadata['name']}/status"
                body = {"metadata": {"uid": metadata["uid"]}}
                body["status"] = _containers(containers, is_ready=is_ready)
                await self._api.as_node(node).patch(path, body, kind="strategic")


def _policy_spec() -> dict[str, Any]:
    driver = {
        "repository": "registry.test",
        "image": "driver",
        "version": "580.1",
        "upgradePolicy": {
            "autoUpgrade": True,
            "maxParallelUpgrades": 2,
            "maxUnavailable": NODES_AWAY_IDLE,
            # Nothing creates the pods of the run again.
            "podDeletion": {"force": True, "timeoutSeconds": EMPTIED_WITHIN_S},
        },
    }
    return {"operator": {}, "daemonsets": {}, "driver": driver, **OTHER_OPERANDS}


def _containers(containers: "Sequence[dict[str, Any]]", *, is_ready: bool) -> dict[str, Any]:
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    reported = {
        "ready": is_ready,
        "restartCount": _CRASHES,
        "state": running if is_ready else waiting,
    }
    condition = {"type": "Ready", "status": "True" if is_ready else "False"}
    return {
        "containerStatuses": [{**container, **reported} for container in containers],
        "conditions": [condition],
    }
