"""Pods of the operands' DaemonSets on the node, and what the node's inventory says of them."""

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tests.cluster.environment import polling
from tests.cluster.node.operands.switches import DAEMON_SETS, STATES
from tests.cluster.system.installation import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.cluster.environment.client import ApiClient

    Json = dict[str, Any]

INVENTORIES: Final = "/apis/gpu.deckhouse.io/v1alpha1/gpunodeinventories"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_DAEMON_SETS: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"


@final
@dataclass(frozen=True)
class OperandPods:
    """Of one node."""

    api: "ApiClient"
    node: str

    @property
    def node_feature(self) -> str:
        """Return the path of GFD's NodeFeature."""
        return (
            f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures/"
            f"nvidia-features-for-{self.node}"
        )

    async def of(self, state: str) -> "list[Json]":
        """Return the pods of a state that are not going away."""
        selector = f"gpu.deckhouse.io/operand={STATES.get(state, state)}"
        found: list[Json] = (await self.api.get(PODS, labelSelector=selector))["items"]
        return [item for item in found if "deletionTimestamp" not in item["metadata"]]

    async def pod_of_state(self, state: str, *, other_than: str = "") -> "Json":
        """Wait for the one pod of a state, with a status of its containers."""

        async def is_there() -> "Json":
            found = [item for item in await self.of(state) if item["metadata"]["uid"] != other_than]
            assert len(found) == 1, f"{len(found)} pods of {state}"
            assert found[0]["status"].get("initContainerStatuses"), f"{found[0]['status']}"
            return found[0]

        return await polling.eventually(is_there, what=f"pod of {state}")

    async def ready(self, state: str, *, other_than: str = "") -> "Json":
        """Wait for the one pod of a state to be ready."""

        async def is_ready() -> "Json":
            found = await self.pod_of_state(state, other_than=other_than)
            assert condition(found, "Ready")["status"] == "True", f"{found['status']}"
            return found

        return await polling.eventually(is_ready, what=f"{state} ready")

    async def gone(self, states: "Iterable[str]", *, within: float = polling.PATIENCE_S) -> None:
        """Wait until these states have neither a DaemonSet nor a pod."""
        expected = {DAEMON_SETS[state] for state in states}

        async def are_gone() -> bool:
            sets = (await self.api.get(_DAEMON_SETS))["items"]
            left = {set_["metadata"]["name"] for set_ in sets} & expected
            pods = [
                item["metadata"]["name"] for state in states for item in await self._every(state)
            ]
            assert not left, f"{left}"
            assert not pods, f"{pods}"
            return True

        await polling.eventually(are_gone, what=f"{expected} gone", within=within)

    async def current(self) -> "dict[str, Json]":
        """Return `status.operands` of the node's inventory, by name."""
        status = await self.api.status(f"{INVENTORIES}/{self.node}")
        return {item["name"]: item for item in status.get("operands", ())}

    async def conditions(self) -> dict[str, str]:
        """Return the conditions of the node's inventory."""
        found = await self.api.conditions(f"{INVENTORIES}/{self.node}")
        return {name: item["status"] for name, item in found.items()}

    async def _every(self, state: str) -> "list[Json]":
        selector = f"gpu.deckhouse.io/operand={STATES.get(state, state)}"
        found: list[Json] = (await self.api.get(PODS, labelSelector=selector))["items"]
        return found


def condition(pod: "Json", name: str) -> "Json":
    found = (item for item in pod["status"].get("conditions", ()) if item["type"] == name)
    return next(found, {"status": "Unknown"})


def container(pod: "Json", name: str) -> "Json":
    """Return the status of a container, or of an init container; empty where it has none yet."""
    status = pod["status"]
    every = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return next((item for item in every if item["name"] == name), {})


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)
