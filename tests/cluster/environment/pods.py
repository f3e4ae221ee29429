"""Pods: built, and awaited by a watch."""

import asyncio
import json
from typing import TYPE_CHECKING

from tests.cluster.environment import client
from tests.cluster.environment.polling import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.cluster.environment.client import JsonObject


def collection(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def a_pod(
    name: str,
    *,
    limits: "Mapping[str, int | str] | None" = None,
    scheduler: str = "default-scheduler",
    labels: "Mapping[str, str] | None" = None,
    annotations: "Mapping[str, str] | None" = None,
) -> "JsonObject":
    """Return a pod of one container; a name that ends in `-` is a generateName."""
    key = "generateName" if name.endswith("-") else "name"
    amounts = {resource: str(amount) for resource, amount in (limits or {}).items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [
                {"name": "main", "image": "example.test/main:1", "resources": {"limits": amounts}}
            ],
        },
    }


def is_bound(pod: "JsonObject") -> bool:
    return bool(pod["spec"].get("nodeName"))


def is_running(pod: "JsonObject") -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def is_unschedulable(pod: "JsonObject") -> bool:
    """The scheduler has tried it and said no; `PodScheduled` carries the words."""
    condition = scheduled_condition(pod)
    return condition.get("status") == "False" and condition.get("reason") == "Unschedulable"


def scheduled_condition(pod: "JsonObject") -> "JsonObject":
    """Return the condition PodScheduled, empty when there is none yet."""
    conditions: list[JsonObject] = pod.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == "PodScheduled"), {})


async def wait_for_pod(
    api: client.ApiClient,
    namespace: str,
    name: str,
    until: "Callable[[JsonObject], bool]" = is_bound,
    *,
    within: float = PATIENCE_S,
) -> "JsonObject":
    """Return the pod as soon as it exists and `until` holds."""

    def satisfied(found: "Mapping[str, JsonObject]") -> bool:
        return name in found and until(found[name])

    found = await wait_for_pods(
        api, namespace, satisfied, within=within, fieldSelector=f"metadata.name={name}"
    )
    return found[name]


async def wait_for_pod_gone(
    api: client.ApiClient, namespace: str, name: str, *, within: float = PATIENCE_S
) -> None:
    selector = f"metadata.name={name}"
    await wait_for_pods(
        api, namespace, lambda found: not found, within=within, fieldSelector=selector
    )


async def wait_for_pods(
    api: client.ApiClient,
    namespace: str,
    satisfied: "Callable[[Mapping[str, JsonObject]], bool]",
    *,
    within: float = PATIENCE_S,
    **selectors: str,
) -> "dict[str, JsonObject]":
    """Return name -> pod as soon as the selected pods of the namespace satisfy.

    `selectors` are `labelSelector` and `fieldSelector`. A failure says how the pods stand and
    which events they have.
    """
    last_seen: Mapping[str, JsonObject] = {}

    def remember(found: "Mapping[str, JsonObject]") -> bool:
        nonlocal last_seen
        last_seen = found
        return satisfied(found)

    try:
        async with asyncio.timeout(within):
            return await client.watch_until(
                api, collection(namespace), satisfied=remember, **selectors
            )
    except TimeoutError:
        raise AssertionError(
            f"pods of {namespace} {selectors or ''} are not as awaited within {within:g} s:\n"
            f"{_describe(last_seen)}\n{await _describe_events(api, namespace)}"
        ) from None


async def finish_pod(
    api: client.ApiClient, namespace: str, name: str, phase: str = "Succeeded"
) -> None:
    """Report the end of a pod once it runs: kubelet's report of the start would undo it."""
    await report_end(api, await wait_for_pod(api, namespace, name, is_running), phase)


async def report_end(api: client.ApiClient, pod: "JsonObject", phase: str) -> None:
    """End the containers of a running pod as its kubelet reports it; `phase` may be Failed."""
    metadata = pod["metadata"]
    path = f"{collection(metadata['namespace'])}/{metadata['name']}"
    current = pod.get("status", {}).get("containerStatuses", [])
    terminated = {"ready": False, "started": False, "state": {"terminated": {"exitCode": 0}}}
    status = {"phase": phase, "containerStatuses": [item | terminated for item in current]}
    await api.as_node(pod["spec"]["nodeName"]).patch(f"{path}/status", {"status": status})


def _describe(found: "Mapping[str, JsonObject]") -> str:
    lines = [
        f"  {name}: phase {pod.get('status', {}).get('phase')}, "
        f"node {pod['spec'].get('nodeName')}, {json.dumps(scheduled_condition(pod))}"
        for name, pod in sorted(found.items())
    ]
    return "\n".join(lines[:20]) or "  there are none"


async def _describe_events(api: client.ApiClient, namespace: str) -> str:
    listing = await api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    lines = [
        f"  {event['regarding'].get('name')} {event.get('reason')}: {event.get('note')}"
        for event in listing["items"]
    ]
    return "events:\n" + ("\n".join(lines[-20:]) or "  none")
