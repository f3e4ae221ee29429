"""No pod costs more than a decision may: counted in calls and bytes, which are the same on every machine."""

import random
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from admission.context import AdmissionContext
from admission.review import AdmissionResult
from admission.webhooks import mutate_pod, validate_pod
from pool.reservations.reservation import ReservationPhase
from tests.support.reviews import AdmissionSetup, Reply, a_review, stored
from tests.support.worst_pods import WORST, a_large_setup, everything, worst

MAX_CALLS = 250_000
"""At 0.1 to 0.2 us, with what they do themselves: 25 to 50 ms."""
MAX_BYTES = 20_000_000
MAX_ANSWER_BYTES = 500_000

Webhook = Callable[[bytes, AdmissionContext], AdmissionResult]


@pytest.fixture(scope="module")
def setup() -> AdmissionSetup:
    return a_large_setup()


@pytest.fixture(autouse=True)
def _nothing_stays_held(setup: AdmissionSetup) -> Any:
    yield
    for item in list(setup.allocation_state.ledger.all()):
        assert item.phase is ReservationPhase.HELD
        setup.allocation_state.withdraw(item.id)


def calls_of(decide: Callable[[], AdmissionResult]) -> tuple[AdmissionResult, int]:
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        answer = decide()
    finally:
        sys.setprofile(None)
    return answer, count


def judge(setup: AdmissionSetup, webhook: Webhook, body: bytes) -> AdmissionResult:
    """Decide once to count calls, and once more to count bytes."""
    context = setup.context()
    answer, calls = calls_of(lambda: webhook(body, context))
    tracemalloc.start()
    try:
        webhook(body, context)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert calls <= MAX_CALLS
    assert most <= MAX_BYTES
    assert len(answer.body) <= MAX_ANSWER_BYTES
    assert answer.outcome in {"patched", "allowed", "denied"}
    return answer


@pytest.mark.parametrize("name", WORST)
def test_no_pod_costs_more_than_a_decision_may(setup: AdmissionSetup, name: str) -> None:
    pod = worst(name)

    answer = judge(setup, mutate_pod, a_review(pod))

    is_admitted = answer.outcome == "patched"
    patched = Reply(answer).applied_to(pod) if is_admitted else pod
    validation = judge(setup, validate_pod, a_review(stored(patched), dryRun=True))
    assert validation.outcome == ("allowed" if is_admitted else "denied")


@pytest.mark.parametrize("seed", range(5))
def test_no_mixture_of_full_fields_costs_more(setup: AdmissionSetup, seed: int) -> None:
    pod = everything(random.Random(seed))

    answer = judge(setup, mutate_pod, a_review(pod))

    assert answer.outcome == "patched"
