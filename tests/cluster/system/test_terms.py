"""The fence of the system as installed: what an operator does to it, and what comes of it."""

import time

from api.names import FENCED, FENCED_LABEL, LEADER_ANNOTATION
from tests.cluster.environment import client, pods, polling
from tests.cluster.system.installation import LEASE, SERVER_USER, TERM, until_gone
from tests.cluster.system.objects import a_pod

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY = f"{POLICIES}/gpu-control-plane-leadership"


async def bind_one(api, namespace, pool, name: str) -> float:
    """Create a pod; return after how long it was bound, by the present term."""
    since = time.monotonic()
    await api.create(pods.collection(namespace), a_pod(name, pool))
    pod = await pods.wait_for_pod(api, namespace, name)
    took_s = time.monotonic() - since
    bound_by = pod["metadata"]["annotations"][LEADER_ANNOTATION]

    async def is_present() -> bool:
        term = (await api.get(TERM))["spec"]
        assert bound_by == f"{term['holder']}/{term['number']}", f"bound by {bound_by} in {term}"
        return True

    await polling.eventually(is_present, what="the term of the binding")
    return took_s


async def test_term_names_the_holder_of_the_lease(make_pool, api, kubectl, namespace):
    term = (await api.get(TERM))["spec"]
    assert term["holder"] == (await api.get(LEASE))["spec"]["holderIdentity"]
    header, row = (await kubectl("get", "gterm")).stdout.splitlines()
    assert header.split() == ["NAME", "HOLDER", "NUMBER", "AGE"]
    assert row.split()[1:3] == [term["holder"], str(term["number"])]


async def test_term_that_is_deleted_is_written_again_by_the_next_binding(
    make_pool, system, api, namespace
):
    pool = await make_pool(devices=2)
    before = (await api.get(TERM))["spec"]
    await api.delete(TERM)
    print(f"bound {await bind_one(api, namespace, pool, 'after'):.1f} s after it was created")
    assert (await api.get(TERM))["spec"] == before | {"number": before["number"] + 1}


async def test_term_of_nobody_is_taken_over(make_pool, system, api, namespace, audit):
    pool = await make_pool(devices=2)
    before = (await api.get(TERM))["spec"]
    mark = await audit.mark()
    forged = {"holder": "nobody", "number": before["number"] + 5}
    await api.patch(TERM, {"spec": forged})
    print(f"bound {await bind_one(api, namespace, pool, 'after'):.1f} s after it was created")
    assert (await api.get(TERM))["spec"] == before | {"number": before["number"] + 6}
    written = await audit.writes(mark, user=SERVER_USER, resource="gpucontrolplaneterms")
    assert len(written) == 1


async def test_other_pods_are_scheduled_while_server_and_term_are_gone(
    make_pool, system, api, namespace, start_scheduler
):
    pool = await make_pool(devices=1)
    await start_scheduler()
    await system.crash_server()
    await api.delete(TERM)
    for name in ("first", "second"):
        await api.create(pods.collection(namespace), pods.a_pod(name))
        await pods.wait_for_pod(api, namespace, name)
    await system.restore()
    await bind_one(api, namespace, pool, "ours")


async def test_policies_that_are_deleted_and_applied_again_stop_no_binding(
    make_pool, system, api, control_plane, kubectl, namespace
):
    """As an operator does who installs us again. With a Lease for the parameter, the API server
    refused every Binding of a later term until it was restarted."""
    pool = await make_pool(devices=4)
    policies = await system.render("policy")
    for number in range(2):
        await kubectl("delete", "-f", "-", stdin=policies)
        await until_gone(api, POLICY)
        await bind_one(api, namespace, pool, f"unfenced-{number}")
        await api.delete(TERM)
        await kubectl("apply", "-f", "-", stdin=policies)
        await until_fenced(control_plane, namespace)
        await bind_one(api, namespace, pool, f"fenced-{number}")


async def until_fenced(control_plane, namespace) -> None:
    """Wait until a Binding of no term is refused: the server's own, with which only the fence is at odds."""
    metadata = {"annotations": {LEADER_ANNOTATION: "nobody/0"}, "labels": {FENCED_LABEL: FENCED}}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "nobody", "namespace": namespace, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "somewhere"},
    }
    kubeconfig = control_plane.kubeconfig(SERVER_USER, groups=("system:masters",))
    async with client.open_client(kubeconfig) as server:

        async def is_fenced() -> bool:
            try:
                await server.create(f"/api/v1/namespaces/{namespace}/bindings", body, dryRun="All")
            except client.ApiRefusedError as refused:
                return "gpu-control-plane-leadership" in refused.message
            return False

        await polling.eventually(is_fenced, what="a fence")
