"""What disruption budgets say about evicting a pod, by the rules of the eviction subresource. Pure.

The API server has the last word: a budget may have been used up since it was read. Its refusal is kept for a while, so that
the next pass tells it instead of asking again at once.
"""

from typing import TYPE_CHECKING, Final, final

from api.text import listed
from operands.upgrade.facts import EvictionAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.names import PodUid
    from reconciler.driver_upgrade.objects import DisruptionBudget, UpgradePod

REMEMBERED_S: Final = 30.0
ALLOWED: Final = (EvictionAnswer.ALLOWED, "")


def eviction_answer(
    pod: "UpgradePod", budgets: "Sequence[DisruptionBudget]"
) -> tuple[EvictionAnswer, str]:
    """Return the answer, and the budget that refuses; `budgets` are those of the pod's namespace."""
    labels = pod.metadata.labels or {}
    # A budget without a selector covers no pod.
    found = [item for item in budgets if item.spec.selector and item.spec.selector.matches(labels)]
    if not found or pod.status.phase != "Running" or pod.is_terminating:
        return ALLOWED
    if len(found) > 1:
        names = listed(sorted(item.metadata.name for item in found))
        text = f"several budgets cover the pod, and Kubernetes evicts none such: {names}"
        return EvictionAnswer.REFUSED, text
    (budget,) = found
    status, name = budget.status, budget.metadata.name
    has_enough = 0 < status.desired_healthy <= status.current_healthy
    is_free = budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" or has_enough
    if pod.condition("Ready").status != "True" and is_free:
        return ALLOWED
    if status.observed_generation < budget.metadata.generation:
        return EvictionAnswer.REFUSED, f"budget {name} is new or changed, and not counted yet"
    if status.disruptions_allowed <= 0:
        figures = f"{status.current_healthy} healthy, {status.desired_healthy} needed"
        return EvictionAnswer.REFUSED, f"budget {name} allows no disruption now: {figures}"
    return ALLOWED


@final
class RefusedEvictions:
    """Refusals of the API server, for a while."""

    def __init__(self) -> None:
        self._refusals: dict[PodUid, tuple[str, float]] = {}
        # pod -> text, monotonic time of its end

    def note(self, pod: "PodUid", text: str, now: float) -> None:
        self._refusals = {uid: item for uid, item in self._refusals.items() if item[1] > now}
        self._refusals[pod] = (text, now + REMEMBERED_S)

    def answer(self, pod: "PodUid", now: float) -> tuple[EvictionAnswer, str] | None:
        """Return the refusal, if there was one not long ago."""
        text, ends = self._refusals.get(pod, ("", 0.0))
        return (EvictionAnswer.REFUSED, text) if ends > now else None
