"""Pods: defaults, rules, priority, and what an update may change."""

from typing import Any

import pytest

from tests.support.api_servers import Api, unique
from tests.support.conformance import a_pod

Json = dict[str, Any]

GPU = "gpu.deckhouse.io/pool"


async def test_a_new_pod_is_pending_for_the_default_scheduler(api: Api, pods: str) -> None:
    pod = (await api.created(pods, a_pod("p"))).body
    assert pod["status"]["phase"] == "Pending"
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert pod["spec"]["restartPolicy"] == "Always"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert pod["spec"]["priority"] == 0
    assert "nodeName" not in pod["spec"]


async def test_requests_are_taken_from_limits(api: Api, pods: str) -> None:
    pod = (await api.created(pods, a_pod("p", limits={GPU: 2, "cpu": "1"}))).body
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {GPU: "2", "cpu": "1"}
    assert resources["limits"] == {GPU: "2", "cpu": "1"}


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        pytest.param(
            {"limits": {GPU: "1.5"}},
            f"spec.containers[0].resources.limits[{GPU}]: Invalid value:",
            id="a fraction",
        ),
        pytest.param(
            {"requests": {GPU: "1"}},
            "spec.containers[0].resources.limits: Required value: Limit must be set for non "
            "overcommitable resources",
            id="no limit",
        ),
        pytest.param(
            {"limits": {GPU: "2"}, "requests": {GPU: "1"}},
            f'spec.containers[0].resources.requests: Invalid value: "1": must be equal to {GPU} '
            "limit of 2",
            id="other request than limit",
        ),
    ],
)
async def test_extended_resources_are_whole_and_not_overcommitted(
    api: Api, pods: str, resources: Json, text: str
) -> None:
    body = a_pod("p")
    body["spec"]["containers"][0]["resources"] = resources
    answer = await api.post(pods, body)
    assert answer.status == 422
    assert text in answer.message


async def test_a_pod_needs_a_container_with_name_and_image(api: Api, pods: str) -> None:
    answer = await api.post(pods, {"metadata": {"name": "p"}, "spec": {}})
    assert answer.message == 'Pod "p" is invalid: spec.containers: Required value'
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{}]}}
    answer = await api.post(pods, body)
    assert answer.status == 422
    fields = {cause["field"] for cause in answer.causes}
    assert {"spec.containers[0].name", "spec.containers[0].image"} <= fields


async def test_two_containers_of_a_name_are_invalid(api: Api, pods: str) -> None:
    body = a_pod("p")
    body["spec"]["containers"] *= 2
    answer = await api.post(pods, body)
    assert answer.status == 422
    assert 'spec.containers[1].name: Duplicate value: "main"' in answer.message


async def test_the_priority_of_a_pod_is_that_of_its_class(api: Api, pods: str) -> None:
    name = unique("high")
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    body = {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}
    await api.created(path, body)
    try:
        pod = (await api.created(pods, a_pod("p", priorityClassName=name))).body
        assert pod["spec"]["priority"] == 1000
        assert pod["spec"]["preemptionPolicy"] == "Never"
        answer = await api.post(pods, a_pod("q", priorityClassName=name, priority=5))
        assert answer.status == 403
        assert (
            "the integer value of priority (5) must not be provided in pod spec; priority admission "
            "controller computed 1000" in answer.message
        )
    finally:
        await api.delete(f"{path}/{name}")


async def test_a_priority_class_that_is_missing_is_forbidden(api: Api, pods: str) -> None:
    answer = await api.post(pods, a_pod("p", priorityClassName="nobody"))
    assert (answer.status, answer.message) == (
        403,
        'pods "p" is forbidden: no PriorityClass with name nobody was found',
    )


async def test_a_gated_pod_says_so_at_once(api: Api, pods: str) -> None:
    gates = [{"name": "example.com/wait"}]
    pod = (await api.created(pods, a_pod("p", schedulingGates=gates))).body
    (condition,) = pod["status"]["conditions"]
    assert condition["type"] == "PodScheduled"
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")


async def test_gates_can_be_removed_and_a_selector_added_in_one_patch(api: Api, pods: str) -> None:
    gates = [{"name": "example.com/wait"}]
    await api.created(pods, a_pod("p", schedulingGates=gates))
    patch = {"spec": {"schedulingGates": None, "nodeSelector": {"a": "b"}}}
    pod = (await api.merge(f"{pods}/p", patch)).body
    assert "schedulingGates" not in pod["spec"]
    assert pod["spec"]["nodeSelector"] == {"a": "b"}
    assert pod["metadata"]["generation"] == 2


async def test_gates_cannot_be_added(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"))
    answer = await api.merge(
        f"{pods}/p", {"spec": {"schedulingGates": [{"name": "example.com/w"}]}}
    )
    assert answer.status == 422
    assert "only deletion is allowed, but found new scheduling gate 'example.com/w'" in (
        answer.message
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"nodeName": "n"}, id="node"),
        pytest.param({"nodeSelector": {"a": "b"}}, id="selector of an ungated pod"),
        pytest.param({"schedulerName": "other"}, id="scheduler"),
        pytest.param({"priority": 5}, id="priority"),
    ],
)
async def test_the_rest_of_a_pods_spec_cannot_be_changed(api: Api, pods: str, change: Json) -> None:
    await api.created(pods, a_pod("p"))
    answer = await api.merge(f"{pods}/p", {"spec": change})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "spec: Forbidden: pod updates may not change fields other than" in answer.message


async def test_resources_of_a_pod_cannot_be_changed(api: Api, pods: str) -> None:
    created = await api.created(pods, a_pod("p", limits={GPU: "1"}))
    created.body["spec"]["containers"][0]["resources"]["limits"][GPU] = "2"
    created.body["spec"]["containers"][0]["resources"]["requests"][GPU] = "2"
    assert (await api.put(f"{pods}/p", created.body)).status == 422


async def test_tolerations_can_be_added_only(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p", tolerations=[{"key": "a", "operator": "Exists"}]))
    before = (await api.get(f"{pods}/p")).body["spec"]["tolerations"]
    more = [*before, {"key": "b", "operator": "Exists"}]
    assert (await api.merge(f"{pods}/p", {"spec": {"tolerations": more}})).status == 200
    fewer = {"spec": {"tolerations": more[1:]}}
    assert (await api.merge(f"{pods}/p", fewer)).status == 422


async def test_labels_and_annotations_do_not_move_the_generation(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"))
    answer = await api.merge(f"{pods}/p", {"metadata": {"annotations": {"a": "b"}}})
    assert answer.body["metadata"]["generation"] == 1


async def test_status_in_a_patch_of_the_pod_is_ignored(api: Api, pods: str) -> None:
    created = await api.created(pods, a_pod("p"))
    answer = await api.merge(f"{pods}/p", {"status": {"phase": "Running"}})
    assert (answer.status, answer.body) == (200, created.body)


async def test_spec_in_a_patch_of_the_status_is_ignored(api: Api, pods: str) -> None:
    await api.created(pods, a_pod("p"))
    patch = {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    answer = await api.merge(f"{pods}/p/status", patch)
    assert answer.body["status"]["phase"] == "Running"
    assert "nodeName" not in answer.body["spec"]
