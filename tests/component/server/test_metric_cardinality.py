"""Whatever callers send, they add no series; pools that are deleted take theirs with them."""

import random
import string
from functools import partial

from admission.webhooks import mutate_pod, validate_pod
from http_edge.replies import Reply
from manifests import constants
from server.http.endpoints import Webhook
from telemetry.metrics import REGISTRY
from tests.support.loop_clock import LoopClock
from tests.support.reviews import a_pod_object, a_review
from tests.support.scheduling import binding_args, extender_args
from tests.support.served_app import ServedApp

REQUESTS = 10_000
WARM = 200


def series() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in REGISTRY.collect()
        for sample in family.samples
    }


def a_name(source: random.Random) -> str:
    return "".join(source.choices(string.ascii_lowercase, k=12))


async def test_ten_thousand_names_in_requests_add_no_series(scheduler: ServedApp) -> None:
    """Admission and the extender, with pools, namespaces, users and nodes that nobody has heard of."""
    source = random.Random(1)
    context = scheduler.webhook_setup.context()
    webhooks = [
        Webhook("mutate-pods", partial(mutate_pod, context=context), clock=LoopClock()),
        Webhook("validate-pods", partial(validate_pod, context=context), clock=LoopClock()),
    ]
    before: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for number in range(REQUESTS):
        if number == WARM:
            # Every outcome has been seen by now, each a series that is there for good.
            before = series()
        name, pool = a_name(source), source.choice(["whole", a_name(source)])
        pod = a_pod_object(1, pool, name, metadata={"namespace": a_name(source)})
        body = a_review(pod, user=a_name(source), namespace=a_name(source))
        answer = webhooks[number % 2].answer(body)
        assert isinstance(answer, Reply)
        assert answer.status == 200
    assert series() == before


async def test_names_in_scheduling_requests_add_no_series(scheduler: ServedApp) -> None:
    source = random.Random(2)
    before: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for number in range(60):
        limits = {f"gpu.deckhouse.io/{a_name(source)}": "1"}
        container = {"name": "c", "image": "x", "resources": {"limits": limits}}
        meta = {"name": a_name(source), "namespace": a_name(source), "uid": a_name(source)}
        pod = {"metadata": meta, "spec": {"containers": [container]}}
        await scheduler.post(constants.FILTER_PATH, extender_args(pod, a_name(source)))
        await scheduler.post(constants.BIND_PATH, binding_args(a_name(source), a_name(source)))
        if number == 10:
            before = series()
    assert series() == before
