"""100,000 malformed requests over all endpoints: no crash, no 5xx, nothing changed by what is refused.

`--long` sends all of them, `make test` a fifth. The decisions get most of them as bytes, in this
process; the served application gets some over TLS.
"""

import itertools
import json
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from admission import webhooks
from manifests import constants
from scheduler.extender import bind, filter_nodes, preempt, prioritize
from tests.component.security.malformed import VALID, Sent, damaged
from tests.support.reviews import AdmissionSetup
from tests.support.scheduling import ExtenderSetup, a_wire_pod, extender_args
from tests.support.served_app import ServedApp

SEED = 20261121
WEBHOOKS = {
    constants.MUTATE_PODS_PATH: webhooks.mutate_pod,
    constants.VALIDATE_PODS_PATH: webhooks.validate_pod,
    constants.MUTATE_WORKLOADS_PATH: webhooks.mutate_workload,
    constants.VALIDATE_POOLS_PATH: webhooks.validate_gpupool,
    constants.MUTATE_DEVICES_PATH: lambda body, context: webhooks.mutate_gpudevice(body),
    constants.VALIDATE_DEVICES_PATH: webhooks.validate_gpudevice,
    constants.VALIDATE_NODES_PATH: webhooks.validate_node,
}
VERBS = {
    constants.FILTER_PATH: filter_nodes,
    constants.PRIORITIZE_PATH: prioritize,
    constants.PREEMPT_PATH: preempt,
}


class World:
    """A small cluster behind both desks, and everything in it that a request could change."""

    def __init__(self) -> None:
        self.webhook_setup = AdmissionSetup(_numbers=itertools.count(1000))
        self.extender_setup = ExtenderSetup(allocation_state=self.webhook_setup.allocation_state)
        self.extender_setup.pool(n1=2, n2=1)
        self.extender_setup.pending()
        self.webhook_setup.add_pool("whole")
        self.webhook_setup.add_pool("members", access={"groups": ["researchers"]})
        self.admission = self.webhook_setup.context()

    def fingerprint(self) -> object:
        allocation_state = self.webhook_setup.allocation_state
        return (
            list(allocation_state.ledger.all()),
            list(allocation_state.reader.pods.all()),
            [self.extender_setup.free(node) for node in ("n1", "n2")],
            list(self.webhook_setup.catalog.pools.values()),
            len(self.extender_setup.binder.bindings),
        )

    def send(self, sent: Sent) -> str:
        """Let the request be decided; return its outcome, once the answer is of its protocol."""
        if sent.path in WEBHOOKS:
            answer = WEBHOOKS[sent.path](sent.body, self.admission)
            check_review(answer.status, answer.body)
            return answer.outcome
        if sent.path == constants.BIND_PATH:
            reply: Any = run(bind(sent.body, self.extender_setup.context))
        else:
            reply = VERBS[sent.path](sent.body, self.extender_setup.context)
        check_extender(sent.path, reply.body)
        return str(reply.outcome.value)


def run(deciding: Coroutine[Any, Any, Any]) -> Any:
    """Drive a coroutine that waits for nobody: the binder is a double."""
    try:
        deciding.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


def check_review(status: int, body: bytes) -> None:
    answer = json.loads(body)
    if status == 200:
        response = answer["response"]
        assert response["uid"]
        assert response["allowed"] or response["status"]["code"] in {403, 422, 503}
    else:
        assert (status, answer["kind"], answer["code"]) == (400, "Status", 400)
        assert answer["message"]
        assert len(answer["message"]) <= 1024


def check_extender(path: str, body: bytes) -> None:
    answer = json.loads(body)
    match path:
        case "/scheduler/filter":
            assert isinstance(answer["NodeNames"], list)
            assert isinstance(answer["Error"], str)
        case "/scheduler/prioritize":
            assert all(0 <= host["Score"] <= 10 for host in answer)
        case "/scheduler/preempt":
            assert isinstance(answer["NodeNameToMetaVictims"], dict)
        case _:
            assert isinstance(answer["Error"], str)


def errors_in(logs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [log for log in logs if log["log_level"] in {"error", "critical"}]


CHANGES = {"patched", "allowed", "bound"}
"""Outcomes that may change something, since what was damaged need not have mattered."""


@pytest.fixture
def count(is_long: bool) -> int:
    return 100_000 if is_long else 20_000


def test_undamaged_requests_are_understood() -> None:
    """Otherwise the test below would show nothing."""
    understood = {
        constants.MUTATE_PODS_PATH: {"patched"},
        constants.VALIDATE_PODS_PATH: {"denied"},
        constants.MUTATE_WORKLOADS_PATH: {"patched", "denied"},
        constants.VALIDATE_POOLS_PATH: {"allowed", "denied"},
        constants.MUTATE_DEVICES_PATH: {"patched"},
        constants.VALIDATE_DEVICES_PATH: {"allowed", "denied"},
        constants.VALIDATE_NODES_PATH: {"denied"},
    }
    for path, bodies in VALID.items():
        for body in bodies:
            outcome = World().send(Sent(path, body, is_broken=False))
            assert outcome != "malformed", (path, body)
            assert outcome in understood.get(path, {outcome})


def test_malformed_requests_are_answered_and_change_nothing(count: int) -> None:
    world = World()
    before = world.fingerprint()
    outcomes: dict[str, int] = {}
    for number, sent in enumerate(damaged(SEED, count)):
        try:
            outcome = world.send(sent)
        except Exception as error:
            raise AssertionError(f"request {number} to {sent.path}: {sent.body!r}") from error
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        assert not sent.is_broken or outcome == "malformed", (number, sent)
        if world.fingerprint() != before:
            assert outcome in CHANGES, (number, outcome, sent)
            world = World()
    assert sum(outcomes.values()) == count
    assert outcomes["malformed"] > count / 4, "the damage is real"
    assert outcomes["denied"] > count / 50, "and so is damage within the object"


@pytest.mark.parametrize("path", VALID)
@pytest.mark.parametrize(
    "deep",
    [
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="lists"),
        pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, id="objects"),
    ],
)
def test_hundred_thousand_levels_are_refused(path: str, deep: bytes) -> None:
    world = World()
    before = world.fingerprint()
    body = VALID[path][0]
    assert world.send(Sent(path, deep, is_broken=True)) == "malformed"
    assert world.send(Sent(path, body[:-1] + b',"x":' + deep + b"}", is_broken=True)) == "malformed"
    assert world.fingerprint() == before


def test_million_node_names_are_answered_one_by_one() -> None:
    names = [f"node-{number}" for number in range(1_000_000)]
    body = extender_args(a_wire_pod(whole=1), "n1", *names)
    answer = json.loads(filter_nodes(body, World().extender_setup.context).body)
    assert answer["NodeNames"] == ["n1"]
    refused = len(answer["FailedNodes"]) + len(answer["FailedAndUnresolvableNodes"])
    assert refused == len(names)


async def test_malformed_requests_over_tls_are_answered_and_change_nothing(
    scheduler: ServedApp,
    is_long: bool,
) -> None:
    scheduler.extender_setup.pending()
    count = 10_000 if is_long else 2_000
    with capture_logs() as logs:
        connector = aiohttp.TCPConnector(ssl=scheduler.tls())
        async with aiohttp.ClientSession(connector=connector) as session:
            for sent in damaged(SEED + 1, count):
                held = scheduler.reservations
                async with session.post(
                    scheduler.url + sent.path,
                    data=sent.body,
                    headers={"Content-Type": "application/json"},
                ) as reply:
                    body = await reply.read()
                if sent.path in WEBHOOKS:
                    check_review(reply.status, body)
                else:
                    assert reply.status == 200
                    check_extender(sent.path, body)
                if sent.is_broken:
                    assert scheduler.reservations == held
    assert errors_in(logs) == []
    assert (await scheduler.call("GET", constants.LIVENESS_PATH)).status == 200
