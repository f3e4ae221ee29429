"""What becomes of NodeClaims is told, and those whose node never has devices are deleted."""

import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from api.clock import Instant
from api.driver_upgrade import UPGRADE_STATE_LABEL
from api.kinds.autoscaling import Autoscaling, NodeShape
from api.kinds.gpupool import GPUPool, GPUPoolSpec
from api.meta import ObjectMeta, PartialObjectMetadata
from api.names import SCALE_REQUEST_LABEL, PodUid, PoolName, UnitId
from autoscaling.parameters import scaling_parameters
from autoscaling.request_lifecycle import observed_requests
from autoscaling.scaling_model import ClaimFacts, ConditionFacts, RequestId, ScalingPlan, Supply
from kube.errors import NotFound
from kube.resources import NODE_CLAIMS
from reconciler.scaling.node_claim_watch import LEAST_WATCH_S, SPEC, VIEW_AGAIN_S
from reconciler.scaling.view import PoolScaling, scaling_view
from simulator.karpenter.karpenter_crds import karpenter_crds
from telemetry.metrics import REGISTRY
from tests.support.builders import a_device, a_node, a_pod_facts, a_pool, at
from tests.support.client_of_api import an_api_with_client
from tests.support.controllers import a_context
from tests.support.recorded_events import RecordedEvents
from tests.support.scale_requests import ID, START, a_signal, true_since
from tests.support.scale_requests import a_claim as claim_facts

pytestmark = pytest.mark.looptime

POOL = GPUPool(
    metadata=ObjectMeta(name="whole", uid="uid-whole"),
    spec=GPUPoolSpec(autoscaling=Autoscaling(shapes=[NodeShape(name="large", devices=8)])),
)
CREATED = claim_facts()
LAUNCHED = claim_facts(launched=true_since(5))
REGISTERED = replace(LAUNCHED, registered=true_since(60), node="n1")
INITIALIZED = replace(REGISTERED, initialized=true_since(90))


@dataclass
class SteppedClock:
    """Both times, moved by the test, together or apart."""

    seconds: float = 1000.0
    utc: dt.datetime = START

    def pass_s(self, seconds: float) -> None:
        self.seconds += seconds
        self.jump_s(seconds)

    def jump_s(self, seconds: float) -> None:
        self.utc += dt.timedelta(seconds=seconds)

    def monotonic(self) -> float:
        return self.seconds

    def utc_now(self) -> dt.datetime:
        return self.utc

    def instant(self) -> Instant:
        return Instant(self.seconds, self.utc)


@dataclass
class Run:
    client: Any
    uid: str
    """Of the NodeClaim."""
    clock: SteppedClock = field(default_factory=SteppedClock)
    recorder: RecordedEvents = field(default_factory=RecordedEvents)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a term, which knows nothing."""
        self.context = a_context(client=self.client, recorder=self.recorder, clock=self.clock)
        self.context.stores.pool_sink.upsert(POOL)
        self.reconcile = SPEC.build(self.context)

    async def show(self, claim: ClaimFacts) -> float | None:
        self.context.stores.node_claims.upsert(claim)
        found: float | None = await self.reconcile(claim.name)
        return found

    async def watch(self, claim: ClaimFacts) -> float | None:
        """Show a NodeClaim that was asked for, when `pool.scaling` has seen it."""
        self.context.stores.node_claims.upsert(claim)
        self.run_pass(signals=[a_signal()])
        found: float | None = await self.reconcile(claim.name)
        return found

    def run_pass(self, **objects: Any) -> None:
        """Do what `pool.scaling` does: look at the pool."""
        facts = self.context.index.pool(POOL.name)
        assert facts is not None
        parameters = scaling_parameters(POOL, facts)
        assert parameters is not None
        observed = observed_requests(
            parameters,
            signals=objects.get("signals", ()),
            claims=self.context.stores.node_claims,
            nodes={},
            now=self.clock.utc,
            recorded=(),
        )
        view = self.context.shared(scaling_view)
        view.pools[POOL.name] = PoolScaling(
            parameters=parameters,
            supply=Supply(),
            plan=ScalingPlan(assigned={ID: (PodUid("uid-p"),)}),
            observed=observed,
            history=(),
            at=self.clock.utc,
        )

    def add_pod(self) -> None:
        self.context.allocation_state.observe_pod(a_pod_facts("p"), at(0))

    def add_node(self, *, devices: int = 0) -> None:
        index = self.context.stores.index
        index.replace_node(a_node("n1", labels={SCALE_REQUEST_LABEL: ID}))
        for number in range(devices):
            index.replace_device(a_device("n1", number))

    def reasons(self) -> list[tuple[str, str]]:
        """Return kind and reason of the Events since the last call."""
        return [(item.regarding.kind, item.reason) for item in self.recorder.taken()]

    async def lose(self, claim: ClaimFacts) -> None:
        """Show that a NodeClaim, whose last state this is, was deleted."""
        self.context.stores.node_claims.discard(claim)
        await self.reconcile(claim.name)

    async def show_terminating(self, claim: ClaimFacts) -> None:
        await self.show(replace(claim, is_terminating=True))

    async def is_there(self) -> bool:
        try:
            await self.client.get(NODE_CLAIMS, dict[str, Any], LAUNCHED.name)
        except NotFound:
            return False
        return True


@asynccontextmanager
async def a_run() -> AsyncIterator[Run]:
    """A scaling pool, a waiting pod, and one NodeClaim, of which the test shows the facts."""
    async with an_api_with_client(definitions=karpenter_crds()) as (_, client):
        body = {
            "apiVersion": NODE_CLAIMS.api_version,
            "kind": NODE_CLAIMS.kind,
            "metadata": {"name": LAUNCHED.name, "labels": {SCALE_REQUEST_LABEL: ID}},
            "spec": {},
        }
        written = await client.create(NODE_CLAIMS, body)
        run = Run(client, written.decode(PartialObjectMetadata).metadata.uid)
        run.add_pod()
        yield run


# --- what is told ---


async def test_pods_that_wait_are_told_every_stage_once():
    async with a_run() as run:
        run.run_pass()
        run.add_node()
        for claim, expected in (
            (CREATED, "GPUNodeLaunched"),
            (LAUNCHED, None),
            (REGISTERED, "GPUNodeRegistered"),
            (INITIALIZED, "GPUNodeReady"),
            (replace(INITIALIZED, is_terminating=True), None),
        ):
            for _ in range(2):
                await run.show(claim)
            assert run.reasons() == ([("Pod", expected)] if expected else [])
        await run.lose(INITIALIZED)
        assert run.reasons() == []


async def test_a_claim_that_goes_before_its_node_is_told_on_pod_and_pool():
    for ends in (Run.lose, Run.show_terminating):
        async with a_run() as run:
            run.run_pass()
            await run.show(LAUNCHED)
            run.reasons()
            await ends(run, LAUNCHED)
            await run.reconcile(LAUNCHED.name)
            assert run.reasons() == [("Pod", "GPUNodeFailed"), ("GPUPool", "GPUNodeFailed")]
            await run.lose(LAUNCHED)
            assert run.reasons() == []


async def test_weak_point_15_the_reason_of_a_failure_is_that_of_the_last_facts():
    async with a_run() as run:
        run.run_pass()
        await run.show(CREATED)
        run.recorder.taken()
        cause = ConditionFacts("Unknown", "LaunchFailed", "quota of the account", None)
        await run.lose(replace(CREATED, launched=cause))
        (event, _) = run.recorder.taken()
        assert "LaunchFailed" in event.note
        assert "quota of the account" in event.note


async def test_a_new_term_tells_no_stage_that_was_told_before():
    async with a_run() as run:
        run.clock.pass_s(3600)
        run.begin()
        run.add_pod()
        run.run_pass()
        await run.show(REGISTERED)
        assert run.reasons() == []
        await run.show(INITIALIZED)
        assert run.reasons() == [("Pod", "GPUNodeReady")]


async def test_weak_point_17_claims_of_no_pool_are_none_of_ours():
    async with a_run() as run:
        for request in (None, RequestId("other-0123456789"), RequestId("1234567")):
            stranger = replace(REGISTERED, request=request, node_pool="general")
            assert await run.show(stranger) is None
        run.clock.pass_s(100_000)
        assert await run.reconcile(REGISTERED.name) is None
        assert run.reasons() == []
        assert await run.is_there()


async def test_a_claim_that_nobody_asked_for_is_told_on_the_pool_once():
    async with a_run() as run:
        assert await run.show(CREATED) == VIEW_AGAIN_S
        run.run_pass()
        for _ in range(3):
            await run.reconcile(CREATED.name)
        assert run.reasons().count(("GPUPool", "GPUForeignNodeClaim")) == 1


async def test_a_claim_that_was_asked_for_is_not_told_as_foreign():
    async with a_run() as run:
        await run.show(CREATED)
        run.run_pass(signals=[a_signal()])
        await run.reconcile(CREATED.name)
        assert ("GPUPool", "GPUForeignNodeClaim") not in run.reasons()


async def test_a_second_claim_of_a_request_is_counted_once():
    async with a_run() as run:
        name = "gpu_scale_duplicate_nodes_total"
        before = REGISTRY.get_sample_value(name, {"pool": "whole"}) or 0
        run.run_pass(signals=[a_signal()])
        await run.show(CREATED)
        for _ in range(3):
            await run.show(claim_facts(2))
            await run.reconcile(CREATED.name)
        assert (REGISTRY.get_sample_value(name, {"pool": "whole"}) or 0) - before == 1


# --- what is deleted ---


async def test_weak_point_6_a_node_that_never_has_devices_is_deleted_after_15_minutes():
    async with a_run() as run:
        run.add_node()
        claim = replace(REGISTERED, uid=run.uid)
        run.clock.pass_s(60)
        assert await run.watch(claim) == 900
        run.clock.pass_s(899)
        assert await run.watch(claim) == 1
        assert await run.is_there()
        run.reasons()
        run.clock.pass_s(1)
        await run.watch(claim)
        assert not await run.is_there()
        assert run.reasons() == [("GPUPool", "GPUNodeWithoutDevices")]


async def test_a_node_that_compiles_its_driver_is_left_as_long_as_its_pool_says():
    shapes = [NodeShape(name="large", devices=8)]
    spec = GPUPoolSpec(autoscaling=Autoscaling(shapes=shapes, driver_minutes=20))
    async with a_run() as run:
        run.context.stores.pool_sink.upsert(msgspec.structs.replace(POOL, spec=spec))
        run.add_node()
        run.clock.pass_s(60)
        assert await run.watch(replace(REGISTERED, uid=run.uid)) == 900 + 1200


async def test_a_node_with_devices_is_left_and_has_as_long_again_when_they_go():
    async with a_run() as run:
        run.add_node(devices=8)
        claim = replace(REGISTERED, uid=run.uid)
        run.clock.pass_s(5000)
        assert await run.watch(claim) is None
        for number in range(8):
            run.context.stores.index.discard_device(a_device("n1", number).name)
        assert await run.reconcile(claim.name) == LEAST_WATCH_S
        assert await run.is_there()


async def test_a_node_whose_devices_are_all_faulted_is_deleted_as_one_without():
    async with a_run() as run:
        run.add_node()
        run.context.stores.index.replace_device(a_device("n1", 0, is_faulted=True))
        claim = replace(REGISTERED, uid=run.uid)
        await run.watch(claim)
        run.clock.pass_s(5000)
        await run.reconcile(claim.name)
        assert not await run.is_there()


async def test_a_node_whose_devices_are_away_for_a_new_driver_is_left():
    async with a_run() as run:
        labels = {SCALE_REQUEST_LABEL: ID, UPGRADE_STATE_LABEL: "pod-restart-required"}
        run.context.stores.index.replace_node(a_node("n1", labels=labels))
        await run.watch(replace(REGISTERED, uid=run.uid))
        run.clock.pass_s(5000)
        assert await run.reconcile(REGISTERED.name) is None
        assert await run.is_there()


async def test_a_node_with_a_device_that_a_pod_of_another_pool_has_is_left():
    async with a_run() as run:
        run.add_node()
        index = run.context.stores.index
        index.replace_pool(a_pool("other"))
        index.replace_device(a_device("n1", 0, pool=PoolName("other")))
        index.set_observed(PodUid("someone"), (UnitId("GPU-n1-0"),))
        await run.watch(replace(REGISTERED, uid=run.uid))
        run.clock.pass_s(5000)
        assert await run.reconcile(REGISTERED.name) is None
        assert await run.is_there()


async def test_an_initialized_node_is_left_to_karpenter():
    async with a_run() as run:
        run.add_node()
        await run.watch(replace(INITIALIZED, uid=run.uid))
        run.clock.pass_s(5000)
        assert await run.reconcile(INITIALIZED.name) is None
        assert await run.is_there()


@pytest.mark.parametrize("jump_s", [86_400, -86_400])
async def test_a_jump_of_the_clock_deletes_nothing(jump_s: float):
    async with a_run() as run:
        run.add_node()
        claim = replace(REGISTERED, uid=run.uid)
        run.clock.pass_s(70)
        await run.watch(claim)
        run.clock.jump_s(jump_s)
        assert await run.reconcile(claim.name) == 890
        assert await run.is_there()
        run.begin()
        run.add_node()
        again_s = await run.watch(claim)
        assert again_s is not None
        assert again_s >= LEAST_WATCH_S
        assert await run.is_there()


async def test_another_claim_of_the_name_is_not_deleted():
    async with a_run() as run:
        run.add_node()
        run.clock.pass_s(60)
        await run.watch(REGISTERED)  # its uid is not that of the object
        run.clock.pass_s(2000)
        assert await run.reconcile(REGISTERED.name) is None
        assert await run.is_there()
        assert run.reasons().count(("GPUPool", "GPUNodeWithoutDevices")) == 0


async def test_a_claim_without_a_request_is_watched_by_its_node_pool():
    """As of a pool whose pods Karpenter sees itself."""
    async with a_run() as run:
        run.add_node()
        claim = replace(REGISTERED, uid=run.uid, request=None)
        run.clock.pass_s(60)
        assert await run.watch(claim) == 900
        run.clock.pass_s(900)
        await run.watch(claim)
        assert not await run.is_there()
