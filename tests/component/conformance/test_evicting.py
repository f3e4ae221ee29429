"""The eviction of pods, under PodDisruptionBudgets whose status a test writes as their controller would."""

from typing import Any

import pytest

from tests.support.api_servers import Answer, Api
from tests.support.conformance import a_pod

Json = dict[str, Any]


class Evictions:
    """Pods and budgets of one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    async def run(self, name: str = "p", *, ready: str = "True") -> Answer:
        """Make a pod with the label `app: a` that runs."""
        pod = a_pod(name, metadata={"labels": {"app": "a"}}, nodeName="node-1")
        created = await self.api.created(self.pods, pod)
        conditions = [{"type": "Ready", "status": ready}]
        status = {"status": {"phase": "Running", "conditions": conditions}}
        assert (await self.api.merge(f"{self.pods}/{name}/status", status)).status == 200
        return created

    async def budget(
        self, name: str = "b", *, allowed: int, healthy: int = 1, app: str = "a"
    ) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
        }
        await self.api.created(self.budgets, body)
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": 1,
            "expectedPods": 1,
        }
        answer = await self.api.merge(f"{self.budgets}/{name}/status", {"status": status})
        assert answer.status == 200

    async def evict(
        self, name: str = "p", of: str = "p", *, dry_run: bool = False, **options: Any
    ) -> Answer:
        body: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": of},
            "deleteOptions": {"gracePeriodSeconds": 0, **options},
        }
        query = {"dryRun": "All"} if dry_run else {}
        return await self.api.post(f"{self.pods}/{name}/eviction", body, **query)

    async def is_there(self, name: str = "p") -> bool:
        answer = await self.api.get(f"{self.pods}/{name}")
        return answer.status == 200 and "deletionTimestamp" not in answer.body["metadata"]


@pytest.fixture
def evictions(api: Api, namespace: str) -> Evictions:
    return Evictions(api, namespace)


async def test_a_pod_without_a_budget_is_evicted(evictions: Evictions) -> None:
    await evictions.run()
    answer = await evictions.evict()
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
    assert not await evictions.is_there()


async def test_a_budget_that_allows_a_disruption_counts_it(evictions: Evictions) -> None:
    await evictions.run()
    await evictions.budget(allowed=1)
    assert (await evictions.evict()).status == 201
    assert not await evictions.is_there()
    status = (await evictions.api.get(f"{evictions.budgets}/b")).body["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["p"]


async def test_a_budget_that_allows_none_forbids_it_and_says_so(evictions: Evictions) -> None:
    await evictions.run()
    await evictions.budget(allowed=0)
    answer = await evictions.evict()
    assert (answer.status, answer.reason) == (429, "TooManyRequests")
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = answer.body["details"]["causes"]
    assert cause == {
        "reason": "DisruptionBudget",
        "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
    }
    assert await evictions.is_there()


async def test_a_budget_of_other_pods_forbids_nothing(evictions: Evictions) -> None:
    await evictions.run()
    await evictions.budget(allowed=0, app="b")
    assert (await evictions.evict()).status == 201


async def test_a_dry_run_asks_the_budget_and_takes_nothing(evictions: Evictions) -> None:
    await evictions.run()
    await evictions.budget(allowed=1)
    assert (await evictions.evict(dry_run=True)).status == 201
    assert await evictions.is_there()
    status = (await evictions.api.get(f"{evictions.budgets}/b")).body["status"]
    assert status["disruptionsAllowed"] == 1


async def test_a_budget_that_is_not_counted_yet_forbids_it(evictions: Evictions) -> None:
    await evictions.run()
    await evictions.budget(allowed=1)
    change = {"spec": {"minAvailable": 2}}
    assert (await evictions.api.merge(f"{evictions.budgets}/b", change)).status == 200
    answer = await evictions.evict()
    assert answer.status == 429
    assert answer.body["details"]["retryAfterSeconds"] == 10
    (cause,) = answer.body["details"]["causes"]
    assert cause["message"] == "The disruption budget b is still being processed by the server."


async def test_two_budgets_of_one_pod_are_an_error(evictions: Evictions) -> None:
    await evictions.run()
    await evictions.budget("b", allowed=1)
    await evictions.budget("c", allowed=1)
    answer = await evictions.evict()
    assert answer.status == 500
    assert "more than one PodDisruptionBudget" in answer.message
    assert await evictions.is_there()


async def test_a_pod_that_does_not_run_needs_no_budget(
    evictions: Evictions, api: Api, pods: str
) -> None:
    await api.created(pods, a_pod("p", metadata={"labels": {"app": "a"}}))
    await evictions.budget(allowed=0)
    assert (await evictions.evict()).status == 201
    assert not await evictions.is_there()


async def test_a_pod_that_is_not_ready_may_go_where_enough_others_are(evictions: Evictions) -> None:
    await evictions.run(ready="False")
    await evictions.budget(allowed=0, healthy=1)
    assert (await evictions.evict()).status == 201
    assert not await evictions.is_there()


async def test_a_pod_of_another_uid_is_not_evicted(evictions: Evictions) -> None:
    created = await evictions.run()
    answer = await evictions.evict(preconditions={"uid": "other"})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert await evictions.is_there()
    assert (await evictions.evict(preconditions={"uid": created.uid})).status == 201


async def test_a_pod_that_is_gone_is_not_found(evictions: Evictions) -> None:
    answer = await evictions.evict("gone", of="gone")
    assert (answer.status, answer.reason) == (404, "NotFound")


async def test_an_eviction_names_its_pod(evictions: Evictions) -> None:
    await evictions.run()
    answer = await evictions.evict(of="q")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "name in URL does not match name in Eviction object"


async def test_evictions_cannot_be_read(evictions: Evictions) -> None:
    await evictions.run()
    assert (await evictions.api.get(f"{evictions.pods}/p/eviction")).status in {404, 405}
