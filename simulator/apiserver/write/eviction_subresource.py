"""Eviction of pods: `pods/eviction`, which a PodDisruptionBudget may forbid.

As on the real server, the budget's status decides: its controller counts the allowed disruptions. A
pod whose end disrupts nothing (not running, or terminating already) needs no budget.
"""

from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.meta import LabelSelector
from simulator.apiserver import metadata
from simulator.apiserver.errors import StatusError, bad_request, not_found
from simulator.apiserver.resource_types import POD_DISRUPTION_BUDGETS, PODS
from simulator.apiserver.webhooks.chain import AdmissionAttributes
from simulator.apiserver.write.delete import DeleteOptions
from simulator.apiserver.write.object_writer import WriteResult

if TYPE_CHECKING:
    from api.clock import Clock
    from simulator.apiserver.store.objects import ObjectStore, Stored
    from simulator.apiserver.webhooks.chain import AdmissionChain
    from simulator.apiserver.write.delete import Deleter
    from simulator.apiserver.write.request_body import Caller, RequestTarget

Json = dict[str, Any]

_EVICTED: Final = msgspec.json.encode(
    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
)
_HARMLESS: Final = frozenset({"Pending", "Succeeded", "Failed"})


@final
class Evictor:
    def __init__(
        self,
        store: "ObjectStore",
        admission: "AdmissionChain",
        *,
        deleter: "Deleter",
        clock: "Clock",
    ) -> None:
        self._store = store
        self._admission = admission
        self._deleter = deleter
        self._clock = clock

    async def evict(self, target: "RequestTarget", caller: "Caller", eviction: Json) -> WriteResult:
        """Delete the pod that an Eviction names, if its budget allows it.

        Raises:
            StatusError: 400, 404, 409, 429, 500 (several budgets), or what admission says.
        """
        name = (eviction.get("metadata") or {}).get("name", "")
        if name != target.name:
            raise bad_request("name in URL does not match name in Eviction object")
        attributes = AdmissionAttributes(
            resource=PODS,
            operation="CREATE",
            namespace=target.namespace,
            name=name,
            subresource="eviction",
            user=caller.user,
            dry_run=caller.dry_run,
            kind=("policy", "v1", "Eviction"),
            warnings=caller.warnings,
        )
        await self._admission.validate(attributes, eviction)
        stored = self._store.collection(PODS).get(target.namespace, name)
        if stored is None:
            raise not_found(PODS, name)
        options = _options_of(eviction)
        if not _is_harmless(stored):
            self._ask_budget(stored, caller)
        if not caller.dry_run:
            self._deleter.delete_without_admission(PODS, stored, options)
        return WriteResult(status=201, encoded=_EVICTED)

    def _ask_budget(self, pod: "Stored", caller: "Caller") -> None:
        """Count the disruption in the pod's budget, or refuse it."""
        budgets = list(self._budgets_of(pod))
        if len(budgets) > 1:
            raise StatusError(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
                " support.",
            )
        for budget in budgets:
            body = budget.copy()
            status = body["status"] = dict(body.get("status") or {})
            if not _is_ready(pod) and _has_enough(status):
                return
            _check(budget, status)
            status["disruptionsAllowed"] -= 1
            status["disruptedPods"] = {
                **(status.get("disruptedPods") or {}),
                pod.key[1]: metadata.timestamp(self._clock.utc_now()),
            }
            if not caller.dry_run:
                self._store.collection(POD_DISRUPTION_BUDGETS).replace(
                    POD_DISRUPTION_BUDGETS, budget, body, ownership=budget.ownership
                )

    def _budgets_of(self, pod: "Stored") -> "list[Stored]":
        labels = pod.body["metadata"].get("labels") or {}
        found = []
        for budget in self._store.collection(POD_DISRUPTION_BUDGETS).all(pod.key[0]):
            selector = (budget.body.get("spec") or {}).get("selector")
            # A budget without a selector covers no pod, one with an empty selector all of them.
            if selector is not None and msgspec.convert(selector, LabelSelector).matches(labels):
                found.append(budget)
        return found


def _options_of(eviction: Json) -> DeleteOptions:
    options = eviction.get("deleteOptions") or {}
    preconditions = options.get("preconditions") or {}
    return DeleteOptions(
        grace_s=options.get("gracePeriodSeconds"),
        uid=preconditions.get("uid"),
        version=preconditions.get("resourceVersion"),
    )


def _is_harmless(pod: "Stored") -> bool:
    phase = pod.body["status"].get("phase", "Pending")
    return phase in _HARMLESS or "deletionTimestamp" in pod.body["metadata"]


def _is_ready(pod: "Stored") -> bool:
    conditions = pod.body["status"].get("conditions") or ()
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in conditions
    )


def _has_enough(status: Json) -> bool:
    """Return whether the budget has all required healthy pods, so that an unready one may go."""
    desired = status.get("desiredHealthy", 0)
    return bool(desired) and status.get("currentHealthy", 0) >= desired


def _check(budget: "Stored", status: Json) -> None:
    name = budget.key[1]
    if status.get("observedGeneration", 0) < budget.body["metadata"].get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(why, retry_after_s=10)
    if not status.get("disruptionsAllowed"):
        why = (
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has"
            f" {status.get('currentHealthy', 0)} currently"
        )
        raise _too_many(why)


def _too_many(cause: str, *, retry_after_s: int = 0) -> StatusError:
    details: Json = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
    return StatusError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details=details,
    )
