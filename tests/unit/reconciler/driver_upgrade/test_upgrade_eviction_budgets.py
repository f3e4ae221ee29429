"""What disruption budgets say of an eviction."""

from typing import Any

import msgspec
import pytest

from api.names import PodUid
from operands.upgrade.facts import EvictionAnswer
from reconciler.driver_upgrade import objects
from reconciler.driver_upgrade.eviction_budgets import RefusedEvictions, eviction_answer
from tests.support.upgrade_objects import a_pod


def a_budget(name: str = "b", *, policy: str = "", **status: Any) -> objects.DisruptionBudget:
    defaults = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}
    spec = {
        "selector": {"matchLabels": {"app": "web"}},
        "unhealthyPodEvictionPolicy": policy,
    }
    body = {"metadata": {"name": name}, "spec": spec, "status": defaults | status}
    return msgspec.convert(body, objects.DisruptionBudget)


def running(*, is_ready: bool = True, app: str = "web") -> objects.UpgradePod:
    condition = {"type": "Ready", "status": "True" if is_ready else "False"}
    return a_pod(labels={"app": app}, status={"phase": "Running", "conditions": [condition]})


@pytest.mark.parametrize(
    ("pod", "budgets", "want"),
    [
        pytest.param(running(), [], "", id="none"),
        pytest.param(running(app="x"), [a_budget()], "", id="of other pods"),
        pytest.param(running(), [a_budget(disruptionsAllowed=1)], "", id="with room"),
        pytest.param(
            running(),
            [a_budget()],
            "budget b allows no disruption now: 2 healthy, 2 needed",
            id="full",
        ),
        pytest.param(
            running(),
            [a_budget("a"), a_budget()],
            "several budgets cover the pod, and Kubernetes evicts none such: a, b",
            id="two",
        ),
        pytest.param(running(is_ready=False), [a_budget()], "", id="an unready pod beside enough"),
        pytest.param(
            running(is_ready=False),
            [a_budget(currentHealthy=1)],
            "budget b allows no disruption now: 1 healthy, 2 needed",
            id="an unready pod of too few",
        ),
        pytest.param(
            running(is_ready=False),
            [a_budget(currentHealthy=1, policy="AlwaysAllow")],
            "",
            id="an unready pod that may always go",
        ),
        pytest.param(a_pod(labels={"app": "web"}), [a_budget()], "", id="a pending pod"),
    ],
)
def test_budgets_answer_as_the_eviction_subresource_does(
    pod: objects.UpgradePod, budgets: list[objects.DisruptionBudget], want: str
):
    answer, text = eviction_answer(pod, budgets)
    assert text == want
    assert (answer is EvictionAnswer.REFUSED) is bool(want)


def test_a_budget_that_is_not_counted_yet_refuses():
    counted = a_budget(disruptionsAllowed=1)
    meta = msgspec.structs.replace(counted.metadata, generation=2)
    answer, text = eviction_answer(running(), [msgspec.structs.replace(counted, metadata=meta)])
    assert (answer, text) == (
        EvictionAnswer.REFUSED,
        "budget b is new or changed, and not counted yet",
    )


def test_a_refusal_is_remembered_for_half_a_minute():
    refused, pod = RefusedEvictions(), PodUid("u")
    refused.note(pod, "used up", 100.0)
    assert refused.answer(pod, 129.0) == (EvictionAnswer.REFUSED, "used up")
    assert refused.answer(pod, 130.0) is None
    assert refused.answer(PodUid("v"), 100.0) is None
