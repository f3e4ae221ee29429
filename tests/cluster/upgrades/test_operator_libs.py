"""NVIDIA's upgrade machine and ours, each on nodes of its own, of which two and two are in the same situation.

The nodes of both pass through the same states. Where they do not, the dictionaries named OTHERWISE say how ours goes, and why.
What no label shows, and what takes several nodes, is listed in `operands.upgrade` and tested in tests/unit/operands/upgrade.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from api import driver_upgrade as names
from tests.cluster.environment import binaries, client, nodes, polling
from tests.cluster.environment.driver_fleet import DONE, DRIVER, FAILED, Json, Observer
from tests.cluster.upgrades.conftest import CreateNodes, Upgrades
from tests.cluster.upgrades.peer_machine import (
    DRIVER_NAME,
    NODE_LABELS,
    PeerMachine,
    run_peer_machine,
)

if TYPE_CHECKING:
    from tests.cluster.environment.control_plane import ControlPlane

States = tuple[str, ...]

CHOSEN = (DONE, "upgrade-required", "cordon-required", "wait-for-jobs-required")
EMPTIED = (*CHOSEN, "pod-deletion-required")
DRAINED = (*EMPTIED, "drain-required")
VALIDATED = ("pod-restart-required", "validation-required")
RETURNED = (*VALIDATED, "uncordon-required", DONE)

SITUATIONS: dict[str, States] = {
    "plain": (*EMPTIED, *RETURNED),
    "cordoned": (*EMPTIED, *VALIDATED, DONE),
    "busy": (*EMPTIED, *RETURNED),
    "awaited": (*EMPTIED, *RETURNED),
    "stopped": (*EMPTIED, *RETURNED),
    "held": (*DRAINED, *RETURNED),
    "full": (*DRAINED, FAILED),
    "skipped": (DONE, "upgrade-required"),
    "crashing": (*EMPTIED, "pod-restart-required", FAILED),
}
"""What a node is like, and its states while it is to get another driver."""
STOPPED_OTHERWISE: dict[str, States] = {"stopped": (*CHOSEN, "upgrade-required")}
"""A node that is to be skipped leaves an upgrade that has not touched the driver; NVIDIA's machine asks at the start only."""

RECOVERED: dict[str, States] = {"crashing": (FAILED, "uncordon-required", DONE)}
RECOVERED_OTHERWISE: dict[str, States] = {"crashing": (FAILED, DONE)}
"""A failed node is done after the validation of its driver; for NVIDIA's machine it suffices that the driver is ready."""

AGAIN: dict[str, States] = {"plain": (*EMPTIED, *RETURNED), "full": (FAILED,)}
AGAIN_OTHERWISE: dict[str, States] = {"full": (FAILED, *EMPTIED[1:], *RETURNED)}
"""A failed node gets the next driver; under NVIDIA's machine it waits for a user who deletes the driver pod."""

POLICY: Json = {
    "autoUpgrade": True,
    "maxParallelUpgrades": 0,
    "maxUnavailable": "100%",
    "podDeletion": {"timeoutSeconds": 300},
    "waitForCompletion": {"podSelector": "job"},
    "drain": {"enable": True, "force": True, "timeoutSeconds": 300},
}
WITHIN_S = 120


@dataclass(frozen=True, kw_only=True)
class Side:
    """The nodes of one machine."""

    name: str
    nodes: dict[str, str]
    """By situation."""
    state_label: str
    skip_label: str


@dataclass(frozen=True, kw_only=True)
class Twins:
    """Both machines, and what a test does to the nodes of both."""

    api: client.ApiClient
    namespace: str
    upgrades: Upgrades
    peer: PeerMachine
    sides: tuple[Side, Side]
    """Ours, and theirs."""

    @contextlib.asynccontextmanager
    async def observed(self) -> AsyncIterator[tuple[Observer, Observer]]:
        """Watch all nodes until the context ends."""
        ours, theirs = self.sides
        async with (
            self.upgrades.observed(ours.nodes.values(), label=ours.state_label) as first,
            self.upgrades.observed(theirs.nodes.values(), label=theirs.state_label) as second,
        ):
            yield first, second

    async def until(
        self,
        observers: tuple[Observer, Observer],
        states: dict[str, States],
        otherwise: dict[str, States],
    ) -> None:
        """Let nodes in these situations pass through the states, and ours in some of them otherwise."""
        expected = (states | otherwise, states)

        async def have_passed() -> bool:
            answer = await self.peer.step(POLICY)
            odd = {
                side.nodes[situation]: seen
                for side, observer, passages in zip(self.sides, observers, expected, strict=True)
                for situation, passage in passages.items()
                if (seen := tuple(observer.states[side.nodes[situation]])) != passage
            }
            assert not odd, f"{odd}; operator-libs said: {answer}"
            return True

        await polling.eventually(have_passed, what=f"nodes pass {expected}", within=WITHIN_S)

    async def roll_out(self, tag: str = "") -> str:
        version = await self.upgrades.roll_out(tag=tag, **POLICY)
        await self.peer.roll_out(f"registry.test/driver:{version}")
        return version

    async def change(self, situation: str, changed: Callable[[Side], Json]) -> None:
        for side in self.sides:
            await self.api.patch(f"{nodes.NODES}/{side.nodes[situation]}", changed(side))

    async def run_pods(self, situation: str, *, is_replica: bool = False, **spec: Any) -> None:
        """Run a pod with a device on each of the two nodes."""
        for side in self.sides:
            name = f"{situation}-{side.name}"
            labels = {"pod": name} | ({"job": "train"} if situation in AWAITED else {})
            pod = {"metadata": {"labels": labels}, "spec": a_pod(side.nodes[situation]) | spec}
            if is_replica:
                replicas = {"selector": {"matchLabels": labels}, "template": pod}
                path = f"/apis/apps/v1/namespaces/{self.namespace}/replicasets"
                await self.api.create(path, {"metadata": {"name": name}, "spec": replicas})
            else:
                await self.api.create(
                    self._pods, pod | {"metadata": {"name": name, "labels": labels}}
                )
        for side in self.sides:
            await self._until_running(f"{situation}-{side.name}")

    async def _until_running(self, name: str) -> None:
        async def is_running() -> bool:
            listing = await self.api.get(self._pods, labelSelector=f"pod={name}")
            return [item["status"]["phase"] for item in listing["items"]] == ["Running"]

        await polling.eventually(is_running, what=f"pod {name} runs")

    async def end_pods(self, situation: str) -> None:
        for side in self.sides:
            path = f"{self._pods}/{situation}-{side.name}/status"
            await self.api.patch(path, {"status": {"phase": "Succeeded"}})

    async def delete_pods(self, situation: str) -> None:
        for side in self.sides:
            await self.api.delete(f"{self._pods}/{situation}-{side.name}")

    async def mend_drivers(self, situation: str) -> None:
        """Make driver pods ready that crash."""
        for side in self.sides:
            node = side.nodes[situation]
            (pod,) = (
                await self.api.get(
                    "/api/v1/pods", labelSelector=DRIVER, fieldSelector=f"spec.nodeName={node}"
                )
            )["items"]
            meta, statuses = pod["metadata"], pod["status"]["containerStatuses"]
            ready = [status | {"ready": True, "state": {"running": {}}} for status in statuses]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
            await self.api.patch(path, {"status": {"containerStatuses": ready}})

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"


AWAITED = frozenset({"awaited", "stopped"})
"""Situations with a pod whose end the policy waits for."""


def a_pod(node: str) -> Json:
    container: Json = {"name": "train", "image": "registry.test/train"}
    container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]}


@pytest.fixture
async def peer(
    control_plane: "ControlPlane",
    api: client.ApiClient,
    namespace: str,
    progress: Callable[[str], None],
) -> AsyncIterator[PeerMachine]:
    program = binaries.find_operator_libs(progress)
    log = control_plane.run.directory / "operator-libs.log"
    async with run_peer_machine(
        program, kubeconfig=control_plane.kubeconfig(), log=log, api=api, namespace=namespace
    ) as running:
        yield running


@pytest.fixture
async def twins(
    upgrades: Upgrades,
    peer: PeerMachine,
    gpu_nodes: CreateNodes,
    create_kwok_nodes: CreateNodes,
    api: client.ApiClient,
    namespace: str,
) -> Twins:
    """Return both machines; their nodes have a first driver."""
    plain = [item for item in SITUATIONS if item != "crashing"]
    device = {"nvidia.com/gpu": 1}
    found: list[dict[str, str]] = []
    for create, prefix, options in (
        (gpu_nodes, "ours", {}),
        (create_kwok_nodes, "theirs", {"labels": NODE_LABELS}),
    ):
        made = await create(len(plain), prefix=prefix, resources=device, **options)
        (crashing,) = await create(1, prefix=f"broken-{prefix}", **options)
        found.append({**dict(zip(plain, made, strict=True)), "crashing": crashing})
    ours, theirs = found
    label, skip = peer.names["state"], peer.names["skip"]
    both = Twins(
        api=api,
        namespace=namespace,
        upgrades=upgrades,
        peer=peer,
        sides=(
            Side(
                name="ours",
                nodes=ours,
                state_label=names.UPGRADE_STATE_LABEL,
                skip_label=names.UPGRADE_SKIP_LABEL,
            ),
            Side(name="theirs", nodes=theirs, state_label=label, skip_label=skip),
        ),
    )
    await peer.add_validator()
    version = await both.roll_out()
    await upgrades.until_driven(ours.values(), version, within=WITHIN_S)

    async def are_done() -> bool:
        answer = await peer.step(POLICY)
        seen = await upgrades.nodes(theirs.values())
        odd = [name for name, item in seen.items() if item["metadata"]["labels"].get(label) != DONE]
        assert not odd, f"{odd}; operator-libs said: {answer}"
        return True

    await polling.eventually(are_done, what="their nodes have a driver", within=WITHIN_S)
    return both


async def test_names_are_the_same(peer: PeerMachine):
    with_gpu = {key: name.replace(f"/{DRIVER_NAME}-", "/gpu-") for key, name in peer.names.items()}
    assert with_gpu == {
        "state": names.UPGRADE_STATE_LABEL,
        "skip": names.UPGRADE_SKIP_LABEL,
        "drainSkip": f"{names.DRAIN_SKIP_LABEL}!=true",
        "requested": names.UPGRADE_REQUESTED_ANNOTATION,
        "initiallyUnschedulable": names.INITIALLY_UNSCHEDULABLE_ANNOTATION,
        "safeLoad": names.SAFE_LOAD_ANNOTATION,
        "waitStart": names.WAIT_START_ANNOTATION,
        "validationStart": names.VALIDATION_START_ANNOTATION,
        "requestorMode": names.REQUESTOR_MODE_ANNOTATION,
    }


async def test_nodes_pass_through_the_same_states(twins: Twins):
    await twins.change("cordoned", lambda _side: {"spec": {"unschedulable": True}})
    await twins.change("skipped", skip)
    await twins.run_pods("busy", is_replica=True)
    await twins.run_pods("awaited")
    await twins.run_pods("stopped")
    await twins.run_pods("held")
    await twins.run_pods("full", volumes=[{"name": "data", "emptyDir": {}}])
    async with twins.observed() as observers:
        await twins.roll_out("-broken")
        await twins.until(observers, dict.fromkeys(sorted(AWAITED), CHOSEN), {})
        await twins.change("stopped", skip)
        await twins.until(observers, {"stopped": CHOSEN}, STOPPED_OTHERWISE)
        for situation in sorted(AWAITED):
            await twins.end_pods(situation)
        await twins.until(observers, SITUATIONS, STOPPED_OTHERWISE)
    async with twins.observed() as observers:
        await twins.mend_drivers("crashing")
        await twins.until(observers, RECOVERED, RECOVERED_OTHERWISE)
    await twins.delete_pods("full")
    async with twins.observed() as observers:
        await twins.roll_out()
        await twins.until(observers, AGAIN, AGAIN_OTHERWISE)


def skip(side: Side) -> Json:
    return {"metadata": {"labels": {side.skip_label: "true"}}}
