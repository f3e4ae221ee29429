"""Rules are merged to the same rights in a fixed order."""

import pytest

from api.kinds.autoscaling import ScalingBackend
from manifests.install.annotation_policy import build_annotation_policy
from manifests.install.rbac import PolicyRule, build_rbac, merge_rules
from manifests.install.server_policy import OwnObjects, build_server_policies
from server.rbac import build_roles


def test_verbs_of_a_resource_are_joined():
    merged = merge_rules(
        [
            PolicyRule(resources=("pods",), verbs=("watch", "list")),
            PolicyRule(resources=("pods",), verbs=("get", "list")),
        ]
    )
    assert merged == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


def test_resources_with_the_same_verbs_share_a_rule():
    merged = merge_rules(
        [
            PolicyRule(resources=("pods",), verbs=("get",)),
            PolicyRule(resources=("nodes",), verbs=("get",)),
        ]
    )
    assert merged == [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get"]}]


def test_rights_to_named_objects_do_not_spread_to_others():
    merged = merge_rules(
        [
            PolicyRule(resources=("secrets",), verbs=("update",), names=("ours",)),
            PolicyRule(resources=("secrets",), verbs=("create",)),
        ]
    )
    assert merged == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["ours"],
            "verbs": ["update"],
        },
    ]


def test_groups_are_kept_apart():
    merged = merge_rules(
        [
            PolicyRule(group="events.k8s.io", resources=("events",), verbs=("create",)),
            PolicyRule(resources=("events",), verbs=("create",)),
        ]
    )
    assert [rule["apiGroups"] for rule in merged] == [[""], ["events.k8s.io"]]


def test_order_of_rules_does_not_matter():
    rules = [
        PolicyRule(group="b", resources=("y", "x"), verbs=("get", "list")),
        PolicyRule(group="a", resources=("x",), verbs=("list",), names=("n",)),
        PolicyRule(resources=("pods",), verbs=("get",)),
    ]
    assert build_rbac(rules) == build_rbac([*reversed(rules), *rules])


@pytest.mark.parametrize("verb", ["create", "deletecollection"])
def test_verb_without_a_name_in_its_request_cannot_be_limited_to_names(verb):
    with pytest.raises(ValueError, match=f"{verb} of secrets cannot be limited to names"):
        PolicyRule(resources=("secrets",), verbs=(verb,), names=("ours",))


def test_empty_rule_is_refused():
    with pytest.raises(ValueError, match="needs resources and verbs"):
        PolicyRule(resources=("secrets",), verbs=())


def test_without_rules_for_our_namespace_there_is_no_role_for_it():
    kinds = [
        document["kind"] for document in build_rbac([PolicyRule(resources=("a",), verbs=("b",))])
    ]
    assert kinds == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]


def test_weak_point_17_no_node_claim_is_created():
    """Weak point 17: a NodeClaim of one's own evades the NodePool's limits, and is never consolidated."""
    verbs = {
        (resource, verb)
        for role in build_roles(OwnObjects())
        if role["kind"] in {"ClusterRole", "Role"}
        for rule in role["rules"]
        if "karpenter.sh" in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {verb for resource, verb in verbs if resource == "nodeclaims"} == {
        "delete",
        "list",
        "watch",
    }
    assert not {verb for resource, verb in verbs if resource == "nodepools"} & {"create", "delete"}


def test_rights_of_removed_backends_are_those_of_the_setting():
    plain = build_roles(OwnObjects())
    rendered = build_roles(OwnObjects(), [ScalingBackend.BALLOON, ScalingBackend.CAPACITY_BUFFER])
    added = {(item["kind"], item["metadata"]["name"]) for item in rendered if item not in plain}
    name = "gpu-control-plane-capacity-buffer"
    assert added == {("Role", name), ("RoleBinding", name)}


OUR_ROLES = {
    "gpu-control-plane",
    "gpu-control-plane-node-software",
    *(f"gpu-control-plane-{item.value}" for item in ScalingBackend),
}
UNRESTRICTED = {
    "events.k8s.io/events": "of anything, as every controller; Events decide nothing",
    "authentication.k8s.io/tokenreviews": "a question, which is not stored",
    "authorization.k8s.io/subjectaccessreviews": "a question, which is not stored",
    "gpu.deckhouse.io/gpucontrolplaneconfigs": "its own; the definition allows one object",
    "gpu.deckhouse.io/gpucontrolplaneterms": "its own; the policy of fencing reads it",
    "gpu.deckhouse.io/gpudevices": "its own kind",
    "gpu.deckhouse.io/gpudevices/status": "its own kind",
    "gpu.deckhouse.io/gpunodeinventories": "its own kind",
    "gpu.deckhouse.io/gpunodeinventories/status": "its own kind",
    "gpu.deckhouse.io/gpupools/status": "its own kind",
    "gkm.io/clustergkmcachenodes": "of nodes that are gone",
    "gkm.io/clustergkmcaches": "finalizers",
    "gkm.io/clustergkmcaches/status": "the digest, which validation judges",
    "gkm.io/gkmcachenodes": "of nodes that are gone",
    "gkm.io/gkmcaches": "finalizers",
    "gkm.io/gkmcaches/status": "the digest, which validation judges",
    "nvidia.com/clusterpolicies": "finalizers, with node software",
    "nvidia.com/clusterpolicies/status": "with node software",
    "nvidia.com/nvidiadrivers": "finalizers, with node software",
    "nvidia.com/nvidiadrivers/status": "with node software",
    "autoscaling.k8s.io/verticalpodautoscalers": "those of operands, by name",
    "karpenter.sh/nodepools/scale": "with karpenter-static",
    "autoscaling.x-k8s.io/capacitybuffers": "of its namespace, with capacity-buffer",
}
"""Resources that the server writes under no policy, and why."""


def test_each_right_to_write_is_for_names_or_under_a_policy():
    """A right that is there only to be granted on is one that a stolen token may use."""
    own = OwnObjects(runs_node_software=True)
    policies = [*build_annotation_policy([own.username]), *build_server_policies(own)]
    judged = {
        (group, resource)
        for policy in policies
        for rule in policy["spec"].get("matchConstraints", {}).get("resourceRules", [])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    written = {
        (group, resource)
        for role in build_roles(own, list(ScalingBackend))
        if role["kind"] in {"ClusterRole", "Role"} and role["metadata"]["name"] in OUR_ROLES
        for rule in role["rules"]
        if not rule.get("resourceNames") and set(rule["verbs"]) - {"get", "list", "watch"}
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {f"{group}/{resource}" for group, resource in written - judged} == set(UNRESTRICTED)
