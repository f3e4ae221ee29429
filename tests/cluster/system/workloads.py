"""Workloads whose templates name a pool, for all tests of groups; and what becomes of their pods."""

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.objects import a_container

if TYPE_CHECKING:
    from tests.cluster.system.objects import Pool

OPEN_TO_GROUP = {"access": {"groups": ["researchers"]}}
ACCESS = "gpu.deckhouse.io/access"
RESTART = {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}


def at(namespace: str, plural: str, group: str = "apps") -> str:
    return f"/apis/{group}/v1/namespaces/{namespace}/{plural}"


def template(pool: "Pool", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "gpu"}},
        "spec": {"containers": [a_container("main", pool, 1)], **spec},
    }


def a_job(name: str, pool: "Pool") -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template(pool, restartPolicy="Never")},
    }


def a_cron_job(name: str, pool: "Pool") -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": a_job("", pool)["spec"]}},
    }


def a_daemon_set(name: str, pool: "Pool") -> dict[str, Any]:
    """Return one for the pool's nodes."""
    only = {f"pool.gpu.deckhouse.io/{pool.name}": ""}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "gpu"}},
            "template": template(pool, nodeSelector=only),
        },
    }


def a_stateful_set(name: str, pool: "Pool") -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "gpu"}},
            "serviceName": name,
            "template": template(pool),
        },
    }


async def refused(writing: Any) -> str:
    with pytest.raises(client.ApiRefusedError) as refusal:
        await writing
    return str(refusal.value)


async def running(api: client.ApiClient, namespace: str, prefix: str, count: int = 1) -> None:
    async def found() -> bool:
        items = (await api.get(pods.collection(namespace)))["items"]
        ours = [pod for pod in items if pod["metadata"]["name"].startswith(prefix)]
        alive = [pod for pod in ours if "deletionTimestamp" not in pod["metadata"]]
        assert sum(map(pods.is_running, alive)) == count, [
            (pod["metadata"]["name"], pod["status"].get("phase")) for pod in ours
        ]
        return True

    await polling.eventually(found, what=f"{count} running pods of {prefix}", within=90)


async def wait_for_event(
    api: client.ApiClient, namespace: str, name: str, text: str, *, drains: str = ""
) -> None:
    """Wait for an Event about an object with the text; meanwhile delete a pod that its controller makes again."""

    async def found() -> bool:
        if drains:
            with contextlib.suppress(client.ApiRefusedError):
                await api.delete(f"{pods.collection(namespace)}/{drains}")
        events = (await api.get(f"/api/v1/namespaces/{namespace}/events"))["items"]
        notes = [e["message"] for e in events if e["involvedObject"]["name"].startswith(name)]
        assert any(text in note for note in notes), notes
        return True

    await polling.eventually(found, what=f"an Event of {name}: {text}")
