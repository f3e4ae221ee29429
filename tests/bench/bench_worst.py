"""What the worst pods cost that anybody can send: processor time and memory of one decision.

In this process, on an allocation state with 1,000 nodes, without HTTP: what is measured is how long the loop is away. The
pods are those of `tests.support.worst_pods`, and mixtures of them by seed.
"""

import random
import time
import tracemalloc
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from admission.admission_webhooks import mutate_pod, validate_pod
from tests.bench.report import Result, at_most, checked
from tests.support.reviews import Reply, a_review, stored
from tests.support.worst_pods import WORST, a_large_setup, everything, worst

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from admission.review import AdmissionResult
    from tests.bench.sizes import Sizes
    from tests.support.reviews import AdmissionSetup

REPEATS = 3
LARGEST_REVIEW_BYTES = 8 * 2**20
"""`listen.max_body_bytes`; a longer one is refused before it is read."""
_ORDINARY_ANSWER_BYTES = 300_000


class Cost(NamedTuple):
    """Of one decision."""

    cpu_ms: float
    peak_mib: float


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure both webhooks with every pod; the worst of all is what is told."""
    setup = a_large_setup()
    pods = [worst(name) for name in WORST]
    pods += [everything(random.Random(seed)) for seed in range(sizes.worst_mixtures)]
    mutations: list[Cost] = []
    validations: list[Cost] = []
    for pod in pods:
        answer, cost = _cost(setup, mutate_pod, pod)
        mutations.append(cost)
        patched = Reply(answer).applied_to(pod) if answer.outcome == "patched" else pod
        _, cost = _cost(setup, validate_pod, stored(patched))
        validations.append(cost)
    filler = {"annotations": {"a": "x" * (LARGEST_REVIEW_BYTES - 2_000)}}
    _, longest = _cost(setup, mutate_pod, {"metadata": filler, "spec": {}})
    return [
        _result(f"mutate, the worst of {len(pods)} pods", mutations),
        _result(f"validate, the worst of {len(pods)} pods", validations),
        _result("a review as long as the server reads", [longest]),
    ]


def _cost(
    setup: "AdmissionSetup",
    webhook: "Callable[..., AdmissionResult]",
    pod: "dict[str, Any]",
) -> "tuple[AdmissionResult, Cost]":
    body, context = a_review(pod, dryRun=True), setup.context()
    spent: list[float] = []
    for _ in range(REPEATS):
        started = time.process_time()
        answer = webhook(body, context)
        spent.append(time.process_time() - started)
    tracemalloc.start()
    answer = webhook(body, context)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    allowed = msgspec.json.decode(answer.body)["response"]["allowed"]
    assert allowed or answer.reason is not None
    assert len(answer.body) < _ORDINARY_ANSWER_BYTES, f"{len(answer.body)} bytes of answer"
    checked("decision")
    return answer, Cost(min(spent) * 1e3, most / 2**20)


def _result(case: str, costs: list[Cost]) -> Result:
    return Result(
        subject="worst",
        case=case,
        samples=len(costs) * REPEATS,
        stall_cpu_ms=max(cost.cpu_ms for cost in costs),
        peak_mib=max(cost.peak_mib for cost in costs),
        aims=(at_most("stall_cpu_ms", 50), at_most("peak_mib", 20)),
    )
