"""The node whose driver a ClusterPolicy brings: its pods, and what is said of its upgrade."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from api.driver_upgrade import UPGRADE_STATE_LABEL
from tests.cluster.environment import nodes, polling
from tests.cluster.node.environment import nvidia_image
from tests.cluster.node.stories.pools import INVENTORIES
from tests.cluster.node.upgrade.driver_images import DRIVER, MANAGER, REPOSITORY
from tests.cluster.system.installation import CLUSTER_POLICIES, NAMESPACE
from tests.support.driver_alone import OTHER_OPERANDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.node.environment.real_node import RealNode

    Json = dict[str, Any]

VERSIONS: Final = ("580.1", "580.2")
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
ROLES: Final = {
    "app.kubernetes.io/component=nvidia-driver": "driver",
    "app.kubernetes.io/name=gpu-node-agent": "agent",
    "app=nvidia-operator-validator": "validator",
}
_WITHIN_S: Final = 120


@final
@dataclass
class DrivenNode:
    """A ClusterPolicy with a driver and a validator, and the one node of it."""

    api: "ApiClient"
    node: "RealNode"
    policy: str = f"{CLUSTER_POLICIES}/driven"

    async def roll_out(self, version: str, *, with_modules: bool = False) -> None:
        """Apply the policy with a version of the driver, and with GPUDirect RDMA and Storage and GDRCopy if asked for."""
        manager, validator = {"image": MANAGER}, {"image": nvidia_image.NAME}
        driver = {
            "repository": REPOSITORY,
            "image": DRIVER,
            "version": version,
            "manager": manager,
            "startupProbe": {"initialDelaySeconds": 1, "periodSeconds": 1},
            "upgradePolicy": {"autoUpgrade": True, "podDeletion": {}},
        }
        spec = {
            "operator": {},
            "daemonsets": {},
            **OTHER_OPERANDS,
            "driver": driver,
            "validator": validator,
        }
        if with_modules:
            image = {key: driver[key] for key in ("repository", "image", "version")}
            spec |= dict.fromkeys(("gds", "gdrcopy"), {"enabled": True} | image)
            driver["rdma"] = {"enabled": True}
        body = {
            "apiVersion": "nvidia.com/v1",
            "kind": "ClusterPolicy",
            "metadata": {"name": self.policy.rpartition("/")[2]},
            "spec": spec,
        }
        await self.api.patch(self.policy, body, kind="apply", fieldManager="test", force="true")

    async def until_done(self, version: str) -> None:
        """Wait until the node's upgrade is done, and the node agent reports the version."""

        async def is_done() -> bool:
            state = (await self.labels()).get(UPGRADE_STATE_LABEL)
            assert state == "upgrade-done", f"{state}, {await self.entry()}"
            status = await self.api.status(f"{INVENTORIES}/{self.node.name}")
            assert status.get("driver", {}).get("version") == version, f"{status}"
            return True

        await polling.eventually(
            is_done, what=f"driver {version}", within=2 * _WITHIN_S, every=0.25
        )

    async def labels(self) -> "dict[str, str]":
        found = await self.api.get(f"{nodes.NODES}/{self.node.name}")
        labels: dict[str, str] = found["metadata"]["labels"]
        return labels

    async def entry(self) -> "Json":
        """Return the node's entry of `status.upgrade`; an empty one where it has none."""
        entries = (await self.api.status(self.policy)).get("upgrade") or ()
        return next((item for item in entries if item["node"] == self.node.name), {})

    async def says(self, reason: str) -> str:
        """Wait until the upgrade has this reason; return its message."""

        async def does() -> str:
            found = await self.entry()
            assert found.get("reason") == reason, f"{found}"
            return str(found["message"])

        return str(await polling.eventually(does, what=reason, within=_WITHIN_S, every=0.25))

    async def pod(self, role: str) -> "Json":
        """Return the one pod of a role."""
        (selector,) = (key for key, value in ROLES.items() if value == role)
        (found,) = (await self.api.get(PODS, labelSelector=selector))["items"]
        pod: Json = found
        return pod

    async def run_in_driver(self, *argv: str) -> str:
        name = (await self.pod("driver"))["metadata"]["name"]
        return await self.node.exec(NAMESPACE, name, argv, container="nvidia-driver-ctr")

    @contextlib.asynccontextmanager
    async def observed(self) -> "AsyncIterator[Observed]":
        """Watch the pods of driver, agent and validator from now on, until the context ends."""
        seen = Observed(self.api)
        version = (await self.api.get(PODS))["metadata"]["resourceVersion"]
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(seen.watch(version), name="observer of pods")
            yield seen
            watching.cancel()


@final
@dataclass
class Observed:
    """Pods that came and went, in the order in which the API server tells it."""

    api: "ApiClient"
    order: list[tuple[str, str]] = field(default_factory=list)
    """Role, and ADDED or DELETED."""

    async def watch(self, version: str) -> None:
        async for event in self.api.watch(PODS, resourceVersion=version):
            role = _role(event["object"])
            if role and event["type"] in {"ADDED", "DELETED"}:
                self.order.append((role, event["type"]))

    async def until(self, event: tuple[str, str]) -> None:
        """Wait for an event of `order`."""
        await polling.eventually(lambda: event in self.order, what=f"pod {event}")


def _role(pod: "Json") -> str:
    labels = {f"{key}={value}" for key, value in (pod["metadata"].get("labels") or {}).items()}
    return next((ROLES[label] for label in labels & ROLES.keys()), "")
