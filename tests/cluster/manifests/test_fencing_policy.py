"""The policy refuses bindings of any term but the present one, and no others."""

import contextlib
import functools
import time

import pytest

from api.names import DEVICES_ANNOTATION, FENCED, FENCED_LABEL, LEADER_ANNOTATION
from manifests import constants
from manifests.install.crds import build_crds
from manifests.install.leadership_policy import build_fencing_policies, leadership_token
from manifests.yaml import render
from server.settings import LeadershipSettings
from tests.cluster.environment import client, polling
from tests.cluster.manifests.objects import a_pod
from tests.cluster.system import installation

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
TERMS = "/apis/gpu.deckhouse.io/v1alpha1/gpucontrolplaneterms"
CRD = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpucontrolplaneterms.gpu.deckhouse.io"
)
TERM = "fence"
POLICY = "under-test-"
"""Begins the names: the system as it is installed may be in force, too."""


@pytest.fixture
async def fence(api, namespace, installed):
    """The policy in force, bound to a term of `first`."""
    await api.create(TERMS, a_term("first", 1))
    await api.create(f"/api/v1/namespaces/{namespace}/pods", a_pod(namespace))
    try:
        await apply_policy(api)
        await polling.eventually(
            lambda: in_force(api, namespace, "first/1"), what="a fence in force"
        )
        yield
    finally:
        await delete_policy(api)
        with contextlib.suppress(client.ApiRefusedError):
            await api.delete(f"{TERMS}/{TERM}")


async def apply_policy(api) -> None:
    for document in the_policies():
        path = POLICIES if document["kind"] == "ValidatingAdmissionPolicy" else BINDINGS
        await api.create(path, document, fieldValidation="Strict")


async def delete_policy(api) -> None:
    for document in reversed(the_policies()):
        path = POLICIES if document["kind"] == "ValidatingAdmissionPolicy" else BINDINGS
        await api.delete(f"{path}/{document['metadata']['name']}")


def the_policies() -> list[client.JsonObject]:
    documents = build_fencing_policies(term=TERM)
    for document in documents:
        document["metadata"] = {"name": POLICY + document["metadata"]["name"]}
        if "policyName" in document["spec"]:
            document["spec"]["policyName"] = POLICY + document["spec"]["policyName"]
    return documents


async def in_force(api, namespace, leader: str) -> bool:
    """Say whether both policies refuse, and let pass, several times in a row."""
    for _ in range(5):
        for label in (FENCED, None):
            with contextlib.suppress(client.ApiRefusedError):
                await bind(api, namespace, "nobody/0", label=label, dryRun="All")
                return False
        with contextlib.suppress(client.ApiRefusedError):
            await bind(api, namespace, leader, dryRun="All")
            continue
        return False
    return True


def a_term(holder: str, number: int) -> client.JsonObject:
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUControlPlaneTerm",
        "metadata": {"name": TERM},
        "spec": {"holder": holder, "number": number},
    }


async def bind(
    api,
    namespace,
    leader: str | None,
    *,
    legacy: bool = False,
    label: str | None = FENCED,
    **params: str,
):
    """Bind the pod `pod`, with devices, as a replica that takes this for the present term."""
    annotations, labels = {DEVICES_ANNOTATION: "{}"}, {}
    if leader is not None:
        annotations[LEADER_ANNOTATION] = leader
        if label is not None:
            labels[FENCED_LABEL] = label
    metadata = {"name": "pod", "namespace": namespace, "annotations": annotations, "labels": labels}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": "somewhere"},
    }
    path = f"/api/v1/namespaces/{namespace}/{'bindings' if legacy else 'pods/pod/binding'}"
    return await api.create(path, body, **params)


@contextlib.contextmanager
def is_refused(text: str):
    with pytest.raises(client.ApiRefusedError) as refused:
        yield
    assert refused.value.status == 403
    assert text in refused.value.message


async def begin_term(api, holder: str, number: int) -> None:
    await api.patch(f"{TERMS}/{TERM}", {"spec": a_term(holder, number)["spec"]})


async def until_refused(api, namespace, leader: str) -> None:
    async def is_refused_now() -> bool:
        with contextlib.suppress(client.ApiRefusedError):
            await bind(api, namespace, leader, dryRun="All")
            return False
        return True

    await polling.eventually(is_refused_now, what=f"a fence that refuses {leader}")


async def until_served(api, namespace, leader: str) -> float:
    """Return after how many seconds the fence lets this term pass."""
    since = time.monotonic()

    async def passes():
        with contextlib.suppress(client.ApiRefusedError):
            return await bind(api, namespace, leader, dryRun="All")

    await polling.eventually(passes, what=f"a fence that knows {leader}", every=0.001)
    return time.monotonic() - since


async def test_api_server_finds_no_fault_with_the_expressions(fence, api):
    for name in (constants.FENCING_POLICY, constants.FENCED_POLICY):

        async def checked(path: str = f"{POLICIES}/{POLICY}{name}"):
            found = await api.get(path)
            return found.get("status", {}).get("observedGeneration") and found

        found = await polling.eventually(checked, what="type check of the policy")
        assert found["status"]["typeChecking"].get("expressionWarnings", []) == []


@pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])
async def test_binding_of_another_term_is_refused(legacy, fence, api, namespace):
    for leader in ("second/2", "first/2", "first/", ""):
        with is_refused(f"decided by {leader}, but the GPU control plane is led by first/1"):
            await bind(api, namespace, leader, legacy=legacy)
    await bind(api, namespace, "first/1", legacy=legacy)


async def test_binding_that_names_no_term_is_not_concerned(fence, api, namespace):
    await bind(api, namespace, None)


@pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])
@pytest.mark.parametrize("label", [None, "false", ""])
async def test_binding_cannot_name_a_term_and_leave_out_the_label(
    label, legacy, fence, api, namespace
):
    """It would be compared with no term."""
    for leader in ("first/1", "second/2"):
        with is_refused(f"needs the label {FENCED_LABEL}={FENCED}"):
            await bind(api, namespace, leader, legacy=legacy, label=label)


@pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])
async def test_binding_of_another_pod_passes_without_a_term(legacy, fence, api, namespace):
    await api.delete(f"{TERMS}/{TERM}")
    await until_refused(api, namespace, "first/1")
    await bind(api, namespace, None, legacy=legacy)


async def test_term_that_is_over_is_refused_as_soon_as_the_next_is_known(fence, api, namespace):
    lags = []
    for number in range(2, 52):
        await begin_term(api, "second", number)
        lags.append(await until_served(api, namespace, leadership_token("second", number)))
        with is_refused(f"led by second/{number}"):
            await bind(api, namespace, leadership_token("second", number - 1), dryRun="All")
    print("fence knows a new term after ms:", sorted(round(1000 * lag, 1) for lag in lags))
    assert sorted(lags)[25] < LeadershipSettings().settle_s


async def test_number_never_goes_down_and_another_holder_needs_a_higher_one(fence, api):
    await begin_term(api, "second", 7)
    for holder, number in (("second", 6), ("third", 7), ("third", 6)):
        with pytest.raises(client.ApiRefusedError, match="number only goes up") as refused:
            await begin_term(api, holder, number)
        assert refused.value.status == 422
    await begin_term(api, "second", 7)
    await begin_term(api, "second", 8)


async def test_term_that_is_deleted_lets_nothing_pass_until_there_is_one_again(
    fence, api, namespace
):
    await api.delete(f"{TERMS}/{TERM}")
    await until_refused(api, namespace, "first/1")
    with pytest.raises(client.ApiRefusedError, match="no params found") as refused:
        await bind(api, namespace, "first/1")
    assert refused.value.status == 422
    await api.create(TERMS, a_term("first", 2))
    await until_served(api, namespace, "first/2")
    with is_refused("led by first/2"):
        await bind(api, namespace, "first/1")


async def test_policy_that_is_deleted_and_applied_again_knows_later_terms(fence, api, namespace):
    """With a Lease as parameter the API server kept the one that it knew, until it was restarted."""
    for number in range(2, 5):
        await delete_policy(api)
        await passes_all(api, namespace)
        await begin_term(api, "second", 2 * number)
        await apply_policy(api)
        await until_enforced(api, namespace)
        await until_served(api, namespace, f"second/{2 * number}")
        await begin_term(api, "second", 2 * number + 1)
        await until_served(api, namespace, f"second/{2 * number + 1}")
        with is_refused(f"led by second/{2 * number + 1}"):
            await bind(api, namespace, f"second/{2 * number}")


async def test_definition_that_is_deleted_and_applied_again_is_followed_again(
    fence, api, namespace, kubectl
):
    for number in range(3, 5):
        (definition,) = (
            crd for crd in build_crds() if crd["spec"]["names"]["plural"] == "gpucontrolplaneterms"
        )
        await api.delete(CRD)
        await until_refused(api, namespace, f"first/{number}")
        await installation.until_gone(api, CRD)
        await kubectl("apply", "-f", "-", stdin=render([definition]))

        async def is_served(term: client.JsonObject) -> bool:
            with contextlib.suppress(client.ApiRefusedError):
                await api.create(TERMS, term)
                return True
            return False

        since = time.monotonic()
        term = a_term("first", number)
        await polling.eventually(functools.partial(is_served, term), what="the kind, served again")
        served_after_s = await until_served(api, namespace, f"first/{number}")
        print(
            f"served after {time.monotonic() - since - served_after_s:.1f} s, known {served_after_s:.1f} s later"
        )
        await begin_term(api, "second", number + 10)
        await until_served(api, namespace, f"second/{number + 10}")
        with is_refused(f"led by second/{number + 10}"):
            await bind(api, namespace, f"first/{number}")
        await api.delete(f"{TERMS}/{TERM}")
        await until_refused(api, namespace, f"second/{number + 10}")


async def passes_all(api, namespace) -> None:
    async def passes() -> bool:
        with contextlib.suppress(client.ApiRefusedError):
            await bind(api, namespace, "nobody/0", dryRun="All")
            return True
        return False

    await polling.eventually(passes, what="no fence")


async def until_enforced(api, namespace) -> None:
    await until_refused(api, namespace, "nobody/0")
