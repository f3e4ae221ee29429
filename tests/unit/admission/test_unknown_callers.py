"""What anybody may read who reaches the webhooks: no groups, no nodes, and no pools but the one they named."""

from typing import Any

import pytest

from admission.webhooks import (
    mutate_pod,
    validate_gpudevice,
    validate_gpupool,
    validate_pod,
)
from tests.support.reviews import (
    GPUDEVICE,
    GPUPOOL,
    AdmissionSetup,
    a_device_object,
    a_pod_object,
    a_pool_object,
)

SECRETS = ("secret", "the-team", "the-namespace", "the-account", "the-node")
"""In names that the caller does not know."""


@pytest.fixture
def setup() -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(
        "guarded",
        access={
            "namespaces": ["the-namespace"],
            "serviceAccounts": ["the-namespace/the-account"],
            "groups": ["the-team"],
        },
    )
    setup.add_pool("secret", resource={"name": "gpu.deckhouse.io/taken"})
    setup.add_pool("full", reservation={"whenExhausted": "Reject"})
    setup.add_pool("waiting")
    setup.add_pool("small")
    setup.add_node("the-node-1", pool="guarded")
    setup.add_node("the-node-2", devices=1, pool="small")
    return setup


def a_waiting_pod() -> dict[str, Any]:
    return a_pod_object(pool="waiting")


@pytest.mark.parametrize(
    ("webhook", "review", "said"),
    [
        pytest.param(
            mutate_pod,
            {"obj": a_pod_object(pool="unknown")},
            "PoolNotFound: no GPU pool serves gpu.deckhouse.io/unknown;",
            id="no such pool",
        ),
        pytest.param(
            mutate_pod,
            {"obj": a_pod_object(pool="guarded")},
            "AccessDenied: pool guarded is not open to this pod:",
            id="no access",
        ),
        pytest.param(
            mutate_pod,
            {"obj": a_pod_object(pool="full")},
            "InsufficientCapacity: pool full cannot reserve 1 unit",
            id="exhausted",
        ),
        pytest.param(
            mutate_pod,
            {"obj": a_pod_object(9, pool="small")},
            "the largest node of pool small has 1",
            id="too large",
        ),
        pytest.param(mutate_pod, {"obj": a_waiting_pod()}, "the pod waits", id="a warning"),
        pytest.param(
            validate_pod, {"obj": a_pod_object(pool="guarded")}, "NotAdmitted:", id="not mutated"
        ),
        pytest.param(
            validate_gpudevice,
            {"obj": a_device_object("unknown"), "kind": GPUDEVICE},
            "pool not found",
            id="assignment to no pool",
        ),
        pytest.param(
            validate_gpupool,
            {
                "obj": a_pool_object("mine", resource={"name": "gpu.deckhouse.io/taken"}),
                "kind": GPUPOOL,
            },
            "is served by another pool",
            id="resource of another pool",
        ),
    ],
)
def test_answer_names_nothing_that_its_caller_has_not_named(
    setup: AdmissionSetup, webhook: Any, review: dict[str, Any], said: str
) -> None:
    answer = setup.ask(webhook, **review).answer.body.decode()
    assert said in answer
    assert [word for word in SECRETS if word in answer] == []
