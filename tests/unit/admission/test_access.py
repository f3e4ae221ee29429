"""Who may ask for a pool: any rule that is met is enough."""

from typing import Any

import pytest

from admission.webhooks import mutate_pod
from telemetry.reasons import RefusalReason
from tests.support.reviews import AdmissionSetup, Reply, a_pod_object

TEAM = {"matchLabels": {"team": "ml"}}


def ask(access: dict[str, Any], labels: dict[str, Any] | None = None, **review: Any) -> Reply:
    setup = AdmissionSetup()
    setup.add_pool(access=access)
    setup.add_node()
    if labels is not None:
        setup.catalog.labels_by_namespace["team-a"] = labels
    return setup.ask(mutate_pod, a_pod_object(spec={"serviceAccountName": "trainer"}), **review)


@pytest.mark.parametrize(
    ("access", "labels"),
    [
        pytest.param({}, None, id="no rule"),
        pytest.param({"namespaces": [], "groups": []}, None, id="empty rules"),
        pytest.param({"namespaces": ["team-b", "team-a"]}, None, id="its namespace"),
        pytest.param({"namespaceSelector": TEAM}, {"team": "ml"}, id="its namespace's labels"),
        pytest.param({"namespaceSelector": {}}, {}, id="a selector of everything"),
        pytest.param({"serviceAccounts": ["team-a/trainer"]}, None, id="its service account"),
        pytest.param({"groups": ["researchers"]}, None, id="a group of the user"),
        pytest.param(
            {"namespaces": ["team-b"], "serviceAccounts": ["team-a/trainer"]}, None, id="one of two"
        ),
    ],
)
def test_a_pod_that_meets_a_rule_is_admitted(access, labels):
    assert ask(access, labels, groups=("system:authenticated", "researchers")).allowed


@pytest.mark.parametrize(
    ("access", "labels"),
    [
        pytest.param({"namespaces": ["team-b"]}, None, id="another namespace"),
        pytest.param({"namespaceSelector": TEAM}, {"team": "web"}, id="other labels"),
        pytest.param({"namespaceSelector": {}}, None, id="a namespace that is not known"),
        pytest.param({"serviceAccounts": ["team-b/trainer"]}, None, id="another's account"),
        pytest.param({"groups": ["admins"]}, None, id="another group"),
    ],
)
def test_a_pod_that_meets_no_rule_is_refused(access, labels):
    reply = ask(access, labels)

    assert reply.answer.reason is RefusalReason.ACCESS_DENIED
    assert reply.code == 403


def test_a_pod_without_a_service_account_runs_as_default():
    setup = AdmissionSetup()
    setup.add_pool(access={"serviceAccounts": ["team-a/default"]})
    pod = a_pod_object()
    del pod["spec"]["serviceAccountName"]

    assert setup.ask(mutate_pod, pod).allowed


def test_the_namespace_is_that_of_the_request():
    setup = AdmissionSetup()
    setup.add_pool(access={"namespaces": ["team-a"]})
    pod = a_pod_object()
    del pod["metadata"]["namespace"]

    assert setup.ask(mutate_pod, pod, namespace="team-a").allowed
    assert not setup.ask(mutate_pod, pod, namespace="team-b").allowed


def test_a_refusal_says_who_asked_and_not_who_may():
    reply = ask(
        {
            "namespaces": ["x"],
            "namespaceSelector": TEAM,
            "serviceAccounts": ["x/y"],
            "groups": ["g"],
        },
        user="system:serviceaccount:kube-system:job-controller",
    )

    assert "namespace team-a, service account team-a/trainer" in reply.message
    assert "created by system:serviceaccount:kube-system:job-controller" in reply.message
    assert reply.message.endswith(
        "job-controller; no controller reference leads to an object of a kind whose templates are admitted"
        " (setting workloads.kinds), or ask its operator to extend spec.access"
    )
