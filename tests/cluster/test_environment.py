"""The environment of the cluster tests keeps its word: a smoke test of each of its parts."""

import asyncio
import secrets

import pytest

from tests.cluster.environment import (
    binaries,
    client,
    components,
    credentials,
    definitions,
    pods,
    processes,
)
from tests.cluster.environment import kubectl as kubectls


def a_deployment(name: str, replicas: int, selector: dict[str, str]) -> client.JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": selector,
                    "containers": [
                        {
                            "name": "main",
                            "image": "example.test/main:1",
                            "resources": {"limits": {"nvidia.com/gpu": "2"}},
                        }
                    ],
                },
            },
        },
    }


async def test_api_server_is_ready_and_reports_the_version_of_go_mod(control_plane, api):
    assert await control_plane.ready() is None
    version = await api.get("/version")
    assert version["gitVersion"] == binaries.kubernetes_version()


async def test_fresh_namespace_takes_pods_at_once(api, kubectl, namespace):
    await api.create(pods.collection(namespace), pods.a_pod("first"))
    listed = await kubectl("get", "pods", "-n", namespace, "-o", "name")
    assert listed.stdout == "pod/first\n"


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


async def test_deployment_runs_on_the_nodes_and_its_pods_go_with_it(
    api, kubectl, namespace, create_nodes, start_scheduler
):
    names = await create_nodes(2, gpus=4, labels={"test": namespace})
    await start_scheduler()
    deployment = a_deployment("web", 4, {"test": namespace})
    await kubectl.apply_yaml({**deployment, "metadata": {"name": "web", "namespace": namespace}})

    found = await pods.wait_for_pods(
        api,
        namespace,
        lambda found: sum(pods.is_running(pod) for pod in found.values()) == 4,
        labelSelector="app=web",
    )

    placed = [pod["spec"]["nodeName"] for pod in found.values()]
    assert sorted(placed) == sorted(2 * names)
    await kubectl("rollout", "status", "deployment/web", "-n", namespace, "--timeout=120s")

    await kubectl("delete", "deployment", "web", "-n", namespace)
    await pods.wait_for_pods(api, namespace, lambda left: not left)


async def test_pod_beyond_the_capacity_of_the_nodes_stays_pending_with_the_reason(
    api, namespace, create_nodes, start_scheduler
):
    await create_nodes(1, gpus=0, resources={"gpu.deckhouse.io/smoke": 2})
    await start_scheduler()
    pod = pods.a_pod("big", limits={"gpu.deckhouse.io/smoke": 3})
    await api.create(pods.collection(namespace), pod)

    refused = await pods.wait_for_pod(api, namespace, "big", pods.is_unschedulable)

    assert "Insufficient gpu.deckhouse.io/smoke" in pods.scheduled_condition(refused)["message"]
    with pytest.raises(AssertionError, match=r"within 0\.3 s:\n  big: phase Pending"):
        await pods.wait_for_pod(api, namespace, "big", pods.is_bound, within=0.3)


async def test_paused_kubelets_keep_a_bound_pod_pending_and_then_terminating(
    api, namespace, create_nodes, kubelets
):
    (node,) = await create_nodes(1)
    pod = pods.a_pod("slow")
    pod["spec"]["nodeName"] = node

    kubelets.pause()
    try:
        await api.create(pods.collection(namespace), pod)
        path = f"{pods.collection(namespace)}/slow"
        await api.delete(path)
        assert (await api.get(path))["metadata"]["deletionTimestamp"]
        assert (await api.get(path))["status"]["phase"] == "Pending"
    finally:
        kubelets.resume()

    await pods.wait_for_pod_gone(api, namespace, "slow")


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


async def test_restarted_api_server_keeps_its_data_port_and_users(
    api, audit, control_plane, namespace
):
    mark = await audit.mark()
    await api.create(pods.collection(namespace), pods.a_pod("kept"))
    before = control_plane.apiserver.pid

    await control_plane.restart_apiserver()

    assert control_plane.apiserver.pid != before
    assert (await api.get(f"{pods.collection(namespace)}/kept"))["metadata"]["name"] == "kept"
    written = await audit.writes(mark, user=credentials.ADMIN, resource="pods")
    assert len(written) == 1


async def test_user_made_up_by_a_test_has_the_groups_given(control_plane, kubectl):
    kubeconfig = control_plane.kubeconfig("carol", groups=["ml-team"])
    async with client.open_client(kubeconfig) as carol:
        review = await carol.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert review["status"]["userInfo"]["username"] == "carol"
    assert "ml-team" in review["status"]["userInfo"]["groups"]
    refused = await kubectl("get", "nodes", user="dave", check=False)
    assert 'User "dave" cannot list resource "nodes"' in refused.stderr


async def test_service_account_token_is_real(control_plane, namespace):
    kubeconfig = await control_plane.service_account_kubeconfig(namespace, "default")
    async with client.open_client(kubeconfig) as account:
        review = await account.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    expected = f"system:serviceaccount:{namespace}:default"
    assert review["status"]["userInfo"]["username"] == expected


async def test_killed_scheduler_comes_back_and_binds(api, namespace, create_nodes, start_scheduler):
    await create_nodes(1)
    scheduler = await start_scheduler()
    scheduler.kill9()
    await api.create(pods.collection(namespace), pods.a_pod("waiting"))

    await scheduler.start()

    await pods.wait_for_pod(api, namespace, "waiting", pods.is_bound)
    await scheduler.stop()
    assert not scheduler.process.running


async def test_scheduler_that_cannot_start_fails_with_its_own_words(start_scheduler):
    with pytest.raises(processes.ProcessDiedError, match=r"unknown field .*percentage"):
        await start_scheduler(components.STOCK_SCHEDULER + "percentage: 7\n")
