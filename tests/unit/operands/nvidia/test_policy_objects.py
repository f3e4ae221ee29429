"""Objects of all states of the whole matrix: valid for every version of Kubernetes, consistent, and with few rights."""

import functools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from api.names import OPERAND_LABEL
from operands.nvidia.policy_states import BUILT_IN_STATES, build_operands
from operands.nvidia.policy_transforms import containers_of
from operands.operand_state import ALL_KINDS_SERVED, OPTIONAL_KINDS
from operands.transforms import pod_spec_of
from tests.support.kubernetes_schemas import check_object
from tests.support.published_crds import faults, published_crd
from tests.unit.operands.nvidia.policy_cases import (
    CASES,
    DRIVERS,
    NAMED_BY_SPEC,
    NAMESPACE,
    REGISTRY,
    distinct_objects,
    objects_of,
)
from tests.unit.operands.operand_cases import CASES as BUILT_IN

VERSIONS = [f"1.{minor}" for minor in range(30, 38)]
IN_CLUSTER = frozenset({"ClusterRole", "ClusterRoleBinding", "RuntimeClass"})
KINDS = IN_CLUSTER | {
    "ConfigMap",
    "DaemonSet",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
    "VerticalPodAutoscaler",
}
NAMES = (*CASES, *DRIVERS)


def named(one) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


@functools.cache
def every_object() -> list[dict[str, Any]]:
    """Return those of ClusterPolicies, of NVIDIADrivers and of built-in policies, each once."""
    texts = (
        json.dumps(object_)
        for settings in BUILT_IN.values()
        for object_ in build_operands(settings, ALL_KINDS_SERVED)
    )
    return [*distinct_objects(), *(json.loads(text) for text in dict.fromkeys(texts))]


def daemon_sets(*, of_policies: bool = False) -> list[dict[str, Any]]:
    objects = distinct_objects() if of_policies else every_object()
    return [object_ for object_ in objects if object_["kind"] == "DaemonSet"]


@pytest.mark.parametrize("place", range(len(VERSIONS)), ids=VERSIONS)
def test_every_version_of_kubernetes_takes_the_objects(place: int, *, is_long: bool):
    """Each object is checked against all versions in the long form, and otherwise against one in turn."""
    objects = [object_ for object_ in every_object() if object_["kind"] not in OPTIONAL_KINDS]
    for object_ in objects if is_long else objects[place :: len(VERSIONS)]:
        check_object(object_, VERSIONS[place])


def test_the_operator_of_prometheus_takes_the_monitors():
    definition = published_crd("servicemonitors.monitoring.coreos.com")
    monitors = [object_ for object_ in every_object() if object_["kind"] == "ServiceMonitor"]
    assert monitors
    assert [fault for monitor in monitors for fault in faults(monitor, definition)] == []


def states() -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Yield the objects of each state in each case: case, state, objects."""
    for name in NAMES:
        for state, objects in objects_of(name).items():
            yield name, state, objects
    for name, settings in BUILT_IN.items():
        for built_in in BUILT_IN_STATES:
            yield name, built_in.name, built_in.objects(settings, ALL_KINDS_SERVED)


def test_objects_are_told_by_their_state_and_lie_in_the_namespace():
    assert [
        (name, state, *named(document))
        for name, state, objects in states()
        for document in objects
        if document["kind"] not in KINDS
        or document["metadata"]["labels"][OPERAND_LABEL] != state
        or document["metadata"].get("namespace")
        != (None if document["kind"] in IN_CLUSTER else NAMESPACE)
    ] == []


def test_no_two_objects_have_one_name_and_no_two_daemon_sets_select_the_same_pods():
    twice: list[str] = []
    cases = [[item for of in objects_of(name).values() for item in of] for name in NAMES]
    cases += [build_operands(settings, ALL_KINDS_SERVED) for settings in BUILT_IN.values()]
    for objects in cases:
        keys = Counter(str(named(document)) for document in objects)
        keys.update(
            json.dumps([document["spec"]["selector"], pod_spec_of(document).get("nodeSelector")])
            for document in objects
            if document["kind"] == "DaemonSet"
        )
        twice += [key for key, count in keys.items() if count > 1]
    assert twice == []


def test_what_an_object_refers_to_is_in_its_state_or_named_by_the_spec():
    missing = []
    for name, state, objects in states():
        there = {named(document) for document in objects}
        missing += [
            (name, state, kind, other)
            for document in objects
            for kind, other in references(document)
            if (kind, other) not in there
            and not (kind == "ConfigMap" and other in NAMED_BY_SPEC | {"gfd-configs"})
        ]
    assert missing == []


def references(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if "roleRef" in one:
        yield one["roleRef"]["kind"], one["roleRef"]["name"]
        for subject in one["subjects"]:
            yield subject["kind"], subject["name"]
    if one["kind"] != "DaemonSet":
        return
    yield "ServiceAccount", pod_spec_of(one)["serviceAccountName"]
    for volume in pod_spec_of(one).get("volumes", ()):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]


def test_daemon_sets_select_their_own_pods_on_nodes_with_a_deploy_label():
    for set_ in daemon_sets(of_policies=True):
        labels = set_["spec"]["template"]["metadata"]["labels"]
        assert set_["spec"]["selector"]["matchLabels"].items() <= labels.items()
        gates = [
            key
            for key in pod_spec_of(set_)["nodeSelector"]
            if key.startswith("nvidia.com/gpu.deploy.")
        ]
        assert len(gates) == 1


def test_daemon_sets_run_on_their_nodes_whatever_taints_these_have():
    """A node that an autoscaler added is closed until its devices are in their pool, which need their driver first."""
    for set_ in daemon_sets():
        assert {"operator": "Exists"} in pod_spec_of(set_)["tolerations"]


def test_containers_run_images_of_the_policy_or_of_the_environment():
    for set_ in daemon_sets(of_policies=True):
        for container in containers_of(set_):
            assert container["image"].startswith(f"{REGISTRY}/")


def test_every_mount_has_a_volume_and_every_volume_a_mount():
    for set_ in daemon_sets():
        mounted = {
            mount["name"]
            for container in containers_of(set_)
            for mount in container.get("volumeMounts", ())
        }
        assert mounted == {volume["name"] for volume in pod_spec_of(set_).get("volumes", ())}


def test_variables_mounts_and_containers_have_one_name_each():
    for set_ in daemon_sets():
        containers = [container["name"] for container in containers_of(set_)]
        assert len(containers) == len(set(containers))
        for container in containers_of(set_):
            for names in (
                [variable["name"] for variable in container.get("env", ())],
                [mount["mountPath"] for mount in container.get("volumeMounts", ())],
            ):
                assert len(names) == len(set(names))


def test_roles_name_each_right_and_none_grants_rights():
    roles = [object_ for object_ in every_object() if object_["kind"] in {"Role", "ClusterRole"}]
    for rule in (rule for role in roles for rule in role["rules"]):
        assert rule["verbs"]
        assert all("*" not in "".join(rule[key]) for key in ("apiGroups", "resources", "verbs"))
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
        assert "rbac.authorization.k8s.io" not in rule["apiGroups"]
        assert "security.openshift.io" not in rule["apiGroups"]


def test_no_daemon_set_exists_without_a_node_with_a_gpu():
    kinds = {object_["kind"] for objects in objects_of("no-nodes").values() for object_ in objects}
    assert "ServiceAccount" in kinds
    assert "DaemonSet" not in kinds
