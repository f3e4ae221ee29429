"""Evictions through the Eviction API, which honours PodDisruptionBudgets.

A refusal by a budget is an answer, not a failure: it is reported and tried again later. A pod that is gone, or
whose name another pod has by now, counts as evicted.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

import structlog

from inventory.pools.maintenance import pods_text
from kube.errors import Conflict, KubeError, NotFound, TooManyRequests
from kube.resources import PODS
from manifests.install.rbac import PolicyRule
from telemetry.metrics import EVICTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inventory.pools.maintenance import PodUsage
    from kube.client import KubeClient

RBAC: Final = (PolicyRule(resources=("pods/eviction",), verbs=("create",)),)

BUDGET_CAUSE: Final = "DisruptionBudget"
"""Cause in a 429 of a PodDisruptionBudget; a 429 of the API server's load shedding has none."""

_log = structlog.get_logger()


class Eviction(Enum):
    """Outcome of an eviction request; the label of `gpu_evictions_total`."""

    EVICTED = "evicted"
    GONE = "gone"
    REFUSED = "refused"
    """A PodDisruptionBudget forbids it now."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Evicted:
    """Outcomes of one round of evictions."""

    done: "tuple[PodUsage, ...]" = ()
    """Evicted now, or gone before."""
    refused: "tuple[PodUsage, ...]" = ()
    failed: "tuple[PodUsage, ...]" = ()

    @property
    def obstacle(self) -> str:
        """What keeps pods from being evicted; empty where nothing does."""
        return ", ".join(
            f"{subject} {pods_text(pods)}"
            for subject, pods in (
                ("a PodDisruptionBudget protects", self.refused),
                ("the API server did not evict", self.failed),
            )
            if pods
        )


@final
class EvictionQueue:
    """Requests evictions of the API server."""

    def __init__(self, client: "KubeClient") -> None:
        self._client = client
        for outcome in Eviction:
            EVICTIONS.labels(outcome.value)

    async def evict(self, pods: "Iterable[PodUsage]") -> Evicted:
        """Request each eviction once, one after the other: each one changes the budgets."""
        by_outcome: dict[Eviction, list[PodUsage]] = {outcome: [] for outcome in Eviction}
        for pod in pods:
            outcome = await self._request_eviction(pod)
            EVICTIONS.labels(outcome.value).inc()
            by_outcome[outcome].append(pod)
        return Evicted(
            done=(*by_outcome[Eviction.EVICTED], *by_outcome[Eviction.GONE]),
            refused=tuple(by_outcome[Eviction.REFUSED]),
            failed=tuple(by_outcome[Eviction.FAILED]),
        )

    async def _request_eviction(self, pod: "PodUsage") -> Eviction:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            await self._client.create(PODS, body, subresource="eviction")
        except (NotFound, Conflict):
            return Eviction.GONE
        except TooManyRequests as error:
            causes = error.details.causes if error.details is not None else None
            if any(cause.reason == BUDGET_CAUSE for cause in causes or ()):
                return Eviction.REFUSED
            return _failed(pod, error)
        except KubeError as error:
            return _failed(pod, error)
        _log.info("pod evicted", pod=pod.ref, units=pod.units)
        return Eviction.EVICTED


def _failed(pod: "PodUsage", error: KubeError) -> Eviction:
    _log.warning("pod could not be evicted", pod=pod.ref, error=str(error))
    return Eviction.FAILED
