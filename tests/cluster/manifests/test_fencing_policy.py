"""The policy refuses bindings of a replica that the Lease does not name, and no others."""

import contextlib
import time

import pytest

from api.names import DEVICES_ANNOTATION, LEADER_ANNOTATION
from manifests.fencing import build_fencing_policy, leadership_token
from server.settings import Leadership
from tests.cluster.environment import client, polling
from tests.cluster.manifests.objects import a_pod

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
LEASE_NAME = "fence"
POLICY = "fence-under-test"
"""Another one may be in force for the system as it is installed."""


@pytest.fixture
def leases(namespace):
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


@pytest.fixture
async def fence(api, namespace, leases):
    """The policy in force, bound to a Lease that `first` holds."""
    policy, binding = build_fencing_policy(namespace=namespace, lease=LEASE_NAME)
    for document in (policy, binding):
        document["metadata"] = {"name": POLICY}
    binding["spec"]["policyName"] = POLICY
    await api.create(leases, a_lease("first", 0))
    await api.create(f"/api/v1/namespaces/{namespace}/pods", a_pod(namespace))
    try:
        await api.create(POLICIES, policy)
        await api.create(BINDINGS, binding)
        await polling.eventually(lambda: in_force(api, namespace), what="a fence in force")
        yield
    finally:
        for path in (f"{BINDINGS}/{POLICY}", f"{POLICIES}/{POLICY}"):
            await api.delete(path)


async def in_force(api, namespace) -> bool:
    """Say whether the fence refuses, and lets pass, several times in a row."""
    for _ in range(5):
        with contextlib.suppress(client.ApiRefused):
            await bind(api, namespace, "nobody/0", dryRun="All")
            return False
        with contextlib.suppress(client.ApiRefused):
            await bind(api, namespace, "first/0", dryRun="All")
            continue
        return False
    return True


def a_lease(holder: str, transitions: int) -> client.JsonObject:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE_NAME},
        "spec": {"holderIdentity": holder, "leaseTransitions": transitions},
    }


async def bind(api, namespace, leader: str | None, *, legacy: bool = False, **params: str):
    """Bind the pod `pod`, with devices, as a replica that takes this for the present term."""
    annotations = {DEVICES_ANNOTATION: "{}"}
    if leader is not None:
        annotations[LEADER_ANNOTATION] = leader
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "pod", "namespace": namespace, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "somewhere"},
    }
    path = f"/api/v1/namespaces/{namespace}/{'bindings' if legacy else 'pods/pod/binding'}"
    return await api.create(path, body, **params)


@contextlib.contextmanager
def is_refused(text: str):
    with pytest.raises(client.ApiRefused) as refused:
        yield
    assert refused.value.status == 403
    assert text in refused.value.message


async def take_lease(api, leases, holder: str, transitions: int) -> None:
    await api.patch(f"{leases}/{LEASE_NAME}", {"spec": a_lease(holder, transitions)["spec"]})


async def until_known(api, namespace, leader: str) -> float:
    """Return after how many seconds the fence lets this term pass."""
    since = time.monotonic()

    async def passes():
        with contextlib.suppress(client.ApiRefused):
            return await bind(api, namespace, leader, dryRun="All")

    await polling.eventually(passes, what=f"a fence that knows {leader}", every=0.001)
    return time.monotonic() - since


async def test_api_server_finds_no_fault_with_the_expressions(fence, api):
    async def checked():
        found = await api.get(f"{POLICIES}/{POLICY}")
        return found.get("status", {}).get("observedGeneration") and found

    found = await polling.eventually(checked, what="type check of the policy")
    assert found["status"]["typeChecking"].get("expressionWarnings", []) == []


@pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])
async def test_binding_of_another_term_is_refused(legacy, fence, api, namespace):
    for leader in ("second/1", "first/1", "first/", ""):
        with is_refused(f"decided by {leader}, but the GPU control plane is led by first/0"):
            await bind(api, namespace, leader, legacy=legacy)
    await bind(api, namespace, "first/0", legacy=legacy)


async def test_binding_that_names_no_term_is_not_concerned(fence, api, namespace):
    await bind(api, namespace, None)


async def test_term_that_is_over_is_refused_as_soon_as_the_next_is_known(
    fence, api, namespace, leases
):
    lags = []
    for number in range(1, 21):
        await take_lease(api, leases, "second", number)
        lags.append(await until_known(api, namespace, leadership_token("second", number)))
        with is_refused(f"led by second/{number}"):
            await bind(api, namespace, leadership_token("second", number - 1), dryRun="All")
    print("fence knows a new term after ms:", sorted(round(1000 * lag, 1) for lag in lags))
    assert sorted(lags)[10] < Leadership().settle_s


async def test_released_or_deleted_lease_lets_nothing_pass(fence, api, namespace, leases):
    await take_lease(api, leases, "", 0)

    async def is_refused_now() -> bool:
        with contextlib.suppress(client.ApiRefused):
            await bind(api, namespace, "first/0", dryRun="All")
            return False
        return True

    await polling.eventually(is_refused_now, what="a fence that knows of the release")
    await take_lease(api, leases, "first", 0)
    await until_known(api, namespace, "first/0")
    await api.delete(f"{leases}/{LEASE_NAME}")
    await polling.eventually(is_refused_now, what="a fence that knows of the deletion")
    with pytest.raises(client.ApiRefused, match="no params found") as refused:
        await bind(api, namespace, "first/0")
    assert refused.value.status == 422
