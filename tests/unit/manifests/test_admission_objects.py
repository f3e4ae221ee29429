"""Promises of the webhook configurations and the policy that a golden file does not explain."""

from typing import Any

import msgspec
import pytest

from api.meta import LabelSelector
from api.names import ENGINE_ANNOTATIONS, FENCED, FENCED_LABEL, POOL_LABEL
from manifests import constants
from manifests.install.annotation_policy import build_annotation_policy
from manifests.install.leadership_policy import build_fencing_policies
from manifests.install.server_policy import OwnObjects, build_server_policies
from manifests.install.webhooks import (
    ServiceClient,
    UrlClient,
    WebhookSettings,
    build_mutating_configuration,
    build_validating_configuration,
)

URL = UrlClient(base_url="https://127.0.0.1:1/")
CACHE_PATHS = [
    constants.MUTATE_CACHES_PATH,
    constants.MUTATE_CLUSTER_CACHES_PATH,
    constants.VALIDATE_CACHES_PATH,
    constants.VALIDATE_CLUSTER_CACHES_PATH,
]


def webhooks(settings: WebhookSettings) -> list[dict[str, Any]]:
    return [
        *build_mutating_configuration(settings)["webhooks"],
        *build_validating_configuration(settings)["webhooks"],
    ]


def test_mutating_configuration_sorts_after_usual_names():
    usual = ["istio-sidecar-injector", "vault-agent-injector", "webhook", "yunikorn", "zebra"]
    assert max([*usual, constants.MUTATING_CONFIGURATION]) == constants.MUTATING_CONFIGURATION


def test_every_webhook_fails_closed_within_seconds_and_under_a_condition():
    for webhook in webhooks(WebhookSettings(client=URL)):
        assert webhook["failurePolicy"] == "Fail"
        assert webhook["timeoutSeconds"] <= 5
        assert webhook["matchConditions"] or webhook["name"] == constants.LABELLED_PODS_WEBHOOK


@pytest.mark.parametrize("labels", [{}, {POOL_LABEL: ""}, {POOL_LABEL: "train"}], ids=str)
def test_no_webhook_is_bypassed_by_a_label_that_a_user_may_set(labels):
    """Each path has one webhook that looks at the pod; the one without conditions looks at every labelled pod."""
    settings = WebhookSettings(client=URL)
    paths = []
    for webhook in webhooks(settings):
        selector = msgspec.convert(webhook.get("objectSelector", {}), LabelSelector)
        if selector.matches(labels):
            paths.append(webhook["clientConfig"]["url"].removeprefix("https://127.0.0.1:1"))
    assert sorted(paths) == sorted(
        [
            constants.MUTATE_PODS_PATH,
            constants.VALIDATE_PODS_PATH,
            constants.VALIDATE_POOLS_PATH,
            constants.MUTATE_DEVICES_PATH,
            *[constants.MUTATE_WORKLOADS_PATH] * 2,
            constants.VALIDATE_DEVICES_PATH,
            constants.VALIDATE_NODES_PATH,
            *CACHE_PATHS,
        ]
    )


def test_webhooks_for_pods_differ_in_selector_and_condition_only():
    mutating, labelled, others = (
        webhook
        for webhook in webhooks(WebhookSettings(client=URL))
        if "pods" in webhook["rules"][0]["resources"]
    )
    changed = {"name", "objectSelector", "matchConditions"}
    assert {k: v for k, v in labelled.items() if k not in changed} == {
        k: v for k, v in others.items() if k not in changed
    }
    assert others["matchConditions"] == mutating["matchConditions"]


def test_pod_webhooks_leave_out_the_namespaces_of_the_settings():
    settings = WebhookSettings(client=URL, excluded_namespaces=("b", "a", "b"))
    selectors = [
        webhook["namespaceSelector"]["matchExpressions"][0]["values"]
        for webhook in webhooks(settings)
        if "pods" in webhook["rules"][0]["resources"]
    ]
    assert selectors == [["b", "a"]] * 3


def test_webhooks_of_caches_are_those_of_gkm_and_sort_behind_those_of_kyverno():
    found = {
        webhook["name"]: webhook
        for webhook in webhooks(WebhookSettings(client=URL))
        if webhook["name"].startswith("z-")
    }
    assert list(found) == [
        "z-mgkmcache.kb.io",
        "z-mclustergkmcache.kb.io",
        "z-vgkmcache.kb.io",
        "z-vclustergkmcache.kb.io",
    ]
    for name, webhook in found.items():
        (rule,) = webhook["rules"]
        assert webhook["sideEffects"] == "None"
        assert webhook["timeoutSeconds"] == 3
        assert rule["operations"] == ["CREATE", "UPDATE"]
        assert not any("/" in resource for resource in rule["resources"])
        assert webhook.get("reinvocationPolicy") == ("IfNeeded" if name[2] == "m" else None)


def test_webhooks_of_caches_are_left_out_where_caches_are_not_served():
    settings = WebhookSettings(client=URL, serves_caches=False)
    assert not any(webhook["name"].startswith("z-") for webhook in webhooks(settings))


def test_missing_authority_leaves_room_for_its_injection():
    for webhook in webhooks(WebhookSettings(client=ServiceClient())):
        assert "caBundle" not in webhook["clientConfig"]


def test_every_path_is_one_that_the_server_serves():
    paths = {
        webhook["clientConfig"]["service"]["path"]
        for webhook in webhooks(WebhookSettings(client=ServiceClient()))
    }
    assert paths == {
        constants.MUTATE_PODS_PATH,
        constants.VALIDATE_PODS_PATH,
        constants.VALIDATE_POOLS_PATH,
        constants.MUTATE_DEVICES_PATH,
        constants.MUTATE_WORKLOADS_PATH,
        constants.VALIDATE_DEVICES_PATH,
        constants.VALIDATE_NODES_PATH,
        *CACHE_PATHS,
    }


@pytest.mark.parametrize("annotation", ENGINE_ANNOTATIONS)
def test_policy_names_every_annotation_of_ours(annotation):
    policy, _ = build_annotation_policy(["us"])
    [forged] = [v for v in policy["spec"]["variables"] if v["name"] == "forged"]
    assert f"'{annotation}'" in forged["expression"]


@pytest.mark.parametrize("usernames", [[], [""], ["it's"], ["a\\b"], ["a\nb"]])
def test_policy_needs_user_names_that_it_can_spell(usernames):
    with pytest.raises(ValueError, match="user name"):
        build_annotation_policy(usernames)


def test_a_policy_with_a_parameter_selects_our_objects_before_it_is_looked_up():
    """Where the parameter is missing, the API server refuses whatever `matchConstraints` select."""
    with_parameter = [
        document["spec"]
        for document in (*build_annotation_policy(["us"]), *build_fencing_policies())
        if "paramKind" in document["spec"]
    ]
    assert len(with_parameter) == 1
    for spec in with_parameter:
        selector = spec["matchConstraints"]["objectSelector"]
        assert selector == {"matchLabels": {FENCED_LABEL: FENCED}}


@pytest.mark.parametrize("label", [None, "", "false", FENCED], ids=str)
def test_each_binding_is_selected_by_exactly_one_of_the_policies_on_terms(label):
    """One that no selector takes would be compared with no term; one that both take is converted again and again."""
    labels = {} if label is None else {FENCED_LABEL: label}
    selectors = [
        msgspec.convert(policy["spec"]["matchConstraints"]["objectSelector"], LabelSelector)
        for policy in build_fencing_policies()
        if policy["kind"] == "ValidatingAdmissionPolicy"
    ]
    assert sum(selector.matches(labels) for selector in selectors) == 1


def test_policies_of_the_server_affect_no_other_user():
    own = OwnObjects(namespace="gpu")
    policies = [item for item in build_server_policies(own) if "matchConditions" in item["spec"]]
    assert len(policies) == 2
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"] == (
            "request.userInfo.username in ['system:serviceaccount:gpu:gpu-control-plane']"
        )


def test_policy_of_the_servers_objects_names_images_where_they_are_known():
    def texts(images: tuple[str, ...] | None) -> list[str]:
        built = build_server_policies(OwnObjects(images=images))
        rules = [rule for item in built for rule in item["spec"].get("validations", ())]
        expressions = [rule.get("messageExpression", "") for rule in rules]
        return [
            expression
            for expression in expressions
            if expression.startswith("'containers in DaemonSets")
        ]

    assert texts(None) == []
    assert " run ' + 'nothing' + ': " in texts(())[0]
    joined = "['r.test/a', 'r.test/b'].join(' or ')"
    assert f" run ' + {joined} + ': " in texts(("r.test/a", "r.test/b"))[0]


def test_policy_of_the_servers_objects_leaves_the_leases_of_nodes_alone():
    (spec,) = (
        policy["spec"]["matchConstraints"]
        for policy in build_server_policies(OwnObjects(namespace="gpu"))
        if "leases" in str(policy["spec"].get("matchConstraints"))
    )
    assert spec["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "gpu"}}


def test_a_policy_is_only_evaluated_for_a_request_that_breaks_a_rule_of_it():
    """The condition says no less than all validations: what it lets pass is not examined."""
    policies = (
        build_annotation_policy(["engine"])[0],
        build_annotation_policy(["engine"], server="engine")[0],
        build_fencing_policies()[0],
    )
    for spec in (policy["spec"] for policy in policies):
        (condition,) = spec["matchConditions"]
        named = {variable["name"]: variable["expression"] for variable in spec.get("variables", ())}
        for validation in spec["validations"]:
            rule = validation["expression"]
            while "variables." in rule:
                for name, expression in named.items():
                    rule = rule.replace(f"variables.{name}", f"({expression})")
            assert rule in condition["expression"]
        assert "variables." not in condition["expression"]
