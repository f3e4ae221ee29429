"""Parts of the environment of the cluster tests on which suites rely without seeing them fail: audit, waits, words."""

import asyncio
import secrets

import pytest

from tests.cluster.environment import (
    client,
    components,
    credentials,
    definitions,
    pods,
    processes,
)
from tests.cluster.environment import kubectl as kubectls


async def test_waiting_for_a_kind_bears_a_definition_that_is_not_there_yet(api, kubectl):
    """`kubectl wait` fails then, and where a definition has no conditions yet."""
    plural = f"things{secrets.token_hex(3)}"
    version = {"name": "v1", "served": True, "storage": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.test"},
        "spec": {
            "group": "example.test",
            "scope": "Cluster",
            "names": {"plural": plural, "kind": plural.title()},
            "versions": [version | {"schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }
    async with asyncio.TaskGroup() as group:
        group.create_task(definitions.until_served(kubectl, [definition]))
        with pytest.raises(kubectls.KubectlError):
            await kubectl("get", "--raw", f"/apis/example.test/v1/{plural}")
        await kubectl.apply_yaml(definition)
    assert (await api.get(f"/apis/example.test/v1/{plural}"))["items"] == []


async def test_audit_counts_the_writes_of_each_user_and_no_reads(
    api, audit, control_plane, namespace
):
    await api.create(pods.collection(namespace), pods.a_pod("before"))
    mark = await audit.mark()

    await api.create(pods.collection(namespace), pods.a_pod("counted"))
    await api.get(f"{pods.collection(namespace)}/counted")
    binding = {"metadata": {"name": "counted"}, "target": {"name": "nowhere"}}
    await api.create(f"{pods.collection(namespace)}/counted/binding", binding)
    async with client.open_client(control_plane.kubeconfig("alice")) as alice:
        with pytest.raises(client.ApiRefusedError, match="403 Forbidden"):
            await alice.create(pods.collection(namespace), pods.a_pod("refused"))

    by_admin = await audit.writes(mark, user=credentials.ADMIN)
    assert [(write.verb, write.resource, write.status) for write in by_admin] == [
        ("create", "pods", 201),
        ("create", "pods/binding", 201),
    ]
    by_alice = await audit.writes(mark, user="alice", resource="pods")
    assert [(write.verb, write.succeeded, write.namespace) for write in by_alice] == [
        ("create", False, namespace)
    ]
    assert await audit.writes(await audit.mark(), user=credentials.ADMIN) == []


async def test_dry_run_is_marked_in_the_audit(api, audit, namespace):
    mark = await audit.mark()
    await api.create(pods.collection(namespace), pods.a_pod("dry"), dryRun="All")
    (write,) = await audit.writes(mark, user=credentials.ADMIN)
    assert write.dry_run


async def test_scheduler_that_cannot_start_fails_with_its_own_words(start_scheduler):
    with pytest.raises(processes.ProcessDiedError, match=r"unknown field .*percentage"):
        await start_scheduler(components.STOCK_SCHEDULER + "percentage: 7\n")
