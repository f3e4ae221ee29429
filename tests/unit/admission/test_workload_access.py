"""A member of a pool's groups has workloads there, by whatever controllers make the pods; nobody else has."""

import datetime as dt
import tracemalloc

import msgspec
import pytest

from admission.workload_rules import BUILT_IN_RULES, WorkloadRules
from api.names import ACCESS_ANNOTATION
from api.workload_kinds import WorkloadKind
from telemetry.reasons import RefusalReason
from tests.support.workloads import (
    NON_MEMBERS,
    Cluster,
    Json,
    a_template,
    a_workload,
    annotated,
    changed,
    controlled_by,
    note_of,
    noted,
    template_of,
)

DIRECT = ("StatefulSet", "ReplicaSet", "DaemonSet", "Job")
BENEATH = {"Deployment": "ReplicaSet", "CronJob": "Job"}


def a_stored(cluster: Cluster, kind: str = "Deployment") -> tuple[Json, Json]:
    """Return a member's workload, and the object whose controller makes its pods."""
    workload = cluster.write(a_workload(kind))
    beneath = BENEATH.get(kind)
    return workload, workload if beneath is None else cluster.make(workload, beneath)


@pytest.mark.parametrize("kind", [*DIRECT, *BENEATH])
def test_pods_of_a_members_workload_are_admitted(kind):
    cluster = Cluster()
    _, owner = a_stored(cluster, kind)

    assert cluster.ask_pod(owner).allowed


@pytest.mark.parametrize("kind", [*DIRECT, *BENEATH])
def test_workload_of_anybody_else_is_refused(kind):
    reply = Cluster().ask(a_workload(kind), groups=NON_MEMBERS, user="bob")

    assert (reply.answer.reason, reply.code) == (RefusalReason.ACCESS_DENIED, 403)
    assert f"pool whole is not open to {kind} team-a/train" in reply.message
    assert "written by bob" in reply.message


@pytest.mark.parametrize(
    "access",
    [
        pytest.param({"groups": ["researchers"], "namespaces": ["team-a"]}, id="its namespace"),
        pytest.param(
            {"groups": ["researchers"], "serviceAccounts": ["team-a/default"]}, id="account"
        ),
        pytest.param({"namespaces": ["team-b"]}, id="no group: pods are judged"),
    ],
)
def test_template_that_needs_no_group_is_left_to_admission_of_its_pods(access):
    cluster = Cluster(**access)
    workload = a_workload()

    assert cluster.ask(workload, groups=NON_MEMBERS).patch == []
    assert note_of(cluster.write(annotated(workload, "forged"), groups=NON_MEMBERS)) is None


def test_template_without_a_pool_loses_the_annotation_that_somebody_put_there():
    cluster = Cluster()
    stored = cluster.write(a_workload())
    without = annotated(a_workload(template=a_template(None)), note_of(stored))

    assert note_of(cluster.write(without, old=stored, groups=NON_MEMBERS)) is None


def test_pods_that_a_limit_range_has_ask_for_a_pool_inherit_nothing_by_a_copy():
    """The template names no pool, so nobody but the annotation says that it concerns one."""
    cluster = Cluster()
    note = note_of(cluster.write(a_workload()))
    plain = annotated(a_workload("ReplicaSet", "mine", template=a_template(None)), note)

    stored = cluster.write(plain, groups=NON_MEMBERS)
    template_of(stored)["spec"] = a_template()["spec"]

    assert "no member of its groups wrote the template" in cluster.ask_pod(stored).message


def test_template_with_two_pools_is_refused_on_the_object():
    cluster = Cluster()
    template = a_template()
    template["spec"]["containers"] += a_template("other")["spec"]["containers"]

    assert cluster.ask(a_workload(template=template)).answer.reason is RefusalReason.MIXED_POOLS


def test_signature_says_who_wrote_what_and_until_when():
    cluster = Cluster()
    note = noted(note_of(cluster.write(a_workload())))

    assert {key: note[key] for key in ("pool", "group", "kind", "name", "user", "groups")} == {
        "pool": "whole",
        "group": "apps",
        "kind": "Deployment",
        "name": "train",
        "user": "alice",
        "groups": ["researchers"],
    }
    since, until = (dt.datetime.fromisoformat(note[key]) for key in ("since", "until"))
    assert (since, until - since) == (cluster.setup.now.utc, dt.timedelta(days=90))


def test_generated_name_is_signed_as_far_as_it_is_known():
    cluster = Cluster()
    job = a_workload("Job", metadata={"name": "", "generateName": "train-"})
    stored = cluster.write(job)
    stored["metadata"]["name"] = "train-x7k2p"

    assert cluster.ask_pod(stored).allowed
    stored["metadata"]["name"] = "other-x7k2p"
    assert "a copy of that of Job train-*" in cluster.ask_pod(stored).message


def test_pod_of_a_user_inherits_nothing_whatever_it_says_of_its_controller():
    cluster = Cluster()
    _, owner = a_stored(cluster)

    reply = cluster.ask_pod(owner, user="bob", groups=NON_MEMBERS)

    assert reply.answer.reason is RefusalReason.ACCESS_DENIED


def test_controller_of_a_kind_whose_templates_are_not_admitted_makes_no_pods():
    cluster = Cluster()
    workload, _ = a_stored(cluster)
    copy = annotated(a_workload("ReplicationController"), note_of(workload))
    account = "system:kube-controller-manager"

    reply = cluster.ask_pod(copy, user=account)

    assert "no controller reference leads to an object of a kind" in reply.message


def test_pod_of_a_controller_without_a_signature_says_what_to_do():
    reply = Cluster().ask_pod(a_workload("Job"))

    assert "no member of its groups wrote the template of Job train" in reply.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pool", "other"),
        ("name", "other"),
        ("kind", "Job"),
        ("uid", "other"),
        ("user", "root"),
        ("groups", ["admins"]),
        ("until", "2099-01-01T00:00:00Z"),
        ("seal", "forged"),
    ],
)
def test_edited_annotation_is_worthless(key, value):
    cluster = Cluster()
    _, owner = a_stored(cluster)
    text = msgspec.json.encode({**noted(note_of(owner)), key: value}).decode()

    reply = cluster.ask_pod(annotated(owner, text))

    assert "is not of this control plane" in reply.message


def test_annotation_of_another_cluster_or_namespace_is_worthless():
    cluster = Cluster()
    _, owner = a_stored(cluster)
    assert "of another namespace" in cluster.ask_pod(owner, namespace="team-b").message

    cluster.setup.key = b"a key of another cluster"
    assert "is not of this control plane" in cluster.ask_pod(owner).message


def test_copy_under_another_object_is_worthless():
    cluster = Cluster()
    workload, _ = a_stored(cluster)
    other = annotated(a_workload(name="other", metadata={"uid": "uid-x"}), note_of(workload))

    _, reply = cluster.ask_beneath(other, "ReplicaSet")

    assert "is a copy of that of Deployment train" in reply.message


def test_signature_of_a_stored_object_is_for_its_uid():
    cluster = Cluster()
    stored = cluster.write(a_workload())
    again = cluster.write(changed(stored), old=stored)
    replica_set = cluster.make(again, "ReplicaSet")
    assert cluster.ask_pod(replica_set).allowed

    namesake = {**again, "metadata": {**again["metadata"], "uid": "uid-y"}}
    _, reply = cluster.ask_beneath(namesake, "ReplicaSet")
    assert "is a copy" in reply.message


def test_object_of_a_controller_without_a_reference_is_refused():
    cluster = Cluster()
    workload, _ = a_stored(cluster)

    _, reply = cluster.ask_beneath(workload, "ReplicaSet", references=[])

    assert "no controller reference" in reply.message


def test_access_ends():
    cluster = Cluster()
    _, owner = a_stored(cluster)
    cluster.advance(days=90, seconds=-1)
    assert cluster.ask_pod(owner).allowed

    cluster.advance(seconds=1)
    reply = cluster.ask_pod(owner)

    assert "the access that alice gave Deployment train ended at" in reply.message
    assert "kubectl rollout restart" in reply.message


def test_group_that_the_pool_closes_to_ends_access_at_once():
    cluster = Cluster()
    _, owner = a_stored(cluster)
    cluster.setup.add_pool(access={"groups": ["others"]})

    assert "the groups of alice, who wrote Deployment train" in cluster.ask_pod(owner).message


def test_nobody_else_changes_a_members_template():
    cluster = Cluster()
    stored = cluster.write(a_workload())

    reply = cluster.ask(changed(stored), old=stored, groups=NON_MEMBERS, user="bob")

    assert reply.answer.reason is RefusalReason.ACCESS_DENIED
    assert "have a member of its groups write the template" in reply.message


def test_anybody_may_take_the_pool_out_of_a_template():
    cluster = Cluster()
    stored = cluster.write(a_workload())
    other = a_workload(template=a_template(None))

    assert cluster.ask(other, old=stored, groups=NON_MEMBERS).allowed


@pytest.mark.parametrize("groups", [("researchers",), NON_MEMBERS])
@pytest.mark.parametrize("note", [None, "forged"])
def test_annotation_alone_changes_nothing(groups, note):
    cluster = Cluster()
    stored = cluster.write(a_workload())
    cluster.advance(days=1)

    assert cluster.write(annotated(stored, note), old=stored, groups=groups) == stored


def test_same_template_written_again_rolls_nothing_out_before_half_of_the_time():
    cluster = Cluster()
    stored = cluster.write(a_workload())
    cluster.advance(days=45, seconds=-1)
    assert cluster.ask(stored, old=stored).patch == []

    cluster.advance(seconds=1)
    renewed = cluster.write(stored, old=stored)

    assert noted(note_of(renewed))["since"] > noted(note_of(stored))["since"]
    assert cluster.ask(stored, old=stored, groups=NON_MEMBERS).patch == []


def test_member_who_writes_an_older_template_again_has_it_signed():
    cluster = Cluster()
    older = a_workload(metadata={"uid": "uid-old"})

    assert note_of(cluster.write(older, old=older)) is not None


@pytest.mark.parametrize("days", [0, 60])
def test_template_that_cannot_change_is_left_alone(days):
    cluster = Cluster()
    job = cluster.write(a_workload("Job"))
    _, replica_set = a_stored(cluster)
    cluster.advance(days=days)

    assert cluster.ask(job, old=job).patch == []
    assert cluster.ask(replica_set, old=replica_set).patch == []


def test_controllers_templates_are_never_changed():
    """A Deployment whose ReplicaSets differ from it makes others without end."""
    cluster = Cluster(groups=["researchers", "system:serviceaccounts"])

    _, reply = cluster.ask_beneath(a_workload(), "ReplicaSet")

    assert reply.patch == []


def test_controller_may_change_what_it_did_not_make():
    """Queueing controllers write node selectors into suspended Jobs."""
    cluster = Cluster()
    job = cluster.write(a_workload("Job"))

    reply = cluster.ask(
        changed(job),
        old=job,
        user="system:serviceaccount:kube-system:job-controller",
        groups=NON_MEMBERS,
    )

    assert reply.patch == []


def test_template_without_metadata_gets_it():
    cluster = Cluster()
    template = a_template()
    del template["metadata"]

    assert note_of(cluster.write(a_workload(template=template))) is not None


def test_controller_reference_counts_and_no_other():
    cluster = Cluster()
    _, owner = a_stored(cluster)
    references = [{**controlled_by(owner)[0], "controller": False}]

    _, reply = cluster.ask_beneath(owner, "ReplicaSet", references=references)

    assert "no controller reference" in reply.message


def test_starting_server_refuses_for_a_moment():
    cluster = Cluster()
    cluster.setup.is_ready = False

    assert cluster.ask(a_workload()).answer.reason is RefusalReason.NOT_READY


def test_unread_annotations_are_kept():
    cluster = Cluster()
    template = a_template()
    template["metadata"]["annotations"] = {"a": "b"}
    stored = cluster.write(a_workload(template=template))

    assert template_of(stored)["metadata"]["annotations"].keys() == {"a", ACCESS_ANNOTATION}


RAY_CLUSTER = WorkloadKind(
    group="ray.io",
    kind="RayCluster",
    resource="rayclusters",
    templates=("spec.headGroupSpec.template", "spec.workerGroupSpecs.*.template"),
)
NOTEBOOK = WorkloadKind(
    group="kubeflow.org", kind="Notebook", resource="notebooks", is_annotated=True
)
NOTEBOOK_CONTROLLER = "system:serviceaccount:kubeflow:notebook-controller"


def with_kinds(cluster: Cluster) -> None:
    kinds = (*BUILT_IN_RULES.kinds.values(), RAY_CLUSTER, NOTEBOOK)
    cluster.setup.workloads = WorkloadRules(
        kinds={kind.key: kind for kind in kinds},
        controllers=BUILT_IN_RULES.controllers | {NOTEBOOK_CONTROLLER},
    )


def test_every_template_of_another_kind_is_signed():
    cluster = Cluster()
    with_kinds(cluster)
    workers = [{"template": a_template(None)}, {"template": a_template()}]
    spec = {"headGroupSpec": {"template": a_template()}, "workerGroupSpecs": workers}
    ray = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": spec}
    ray["metadata"] = {"name": "ray", "namespace": "team-a"}

    stored = cluster.write(ray)["spec"]

    assert ACCESS_ANNOTATION in stored["headGroupSpec"]["template"]["metadata"]["annotations"]
    plain, signed = (item["template"]["metadata"] for item in stored["workerGroupSpecs"])
    assert "annotations" not in plain
    assert noted(signed["annotations"][ACCESS_ANNOTATION])["kind"] == "RayCluster"
    assert not cluster.ask(ray, groups=NON_MEMBERS).allowed


def test_object_whose_annotations_pods_have_is_signed_itself():
    cluster = Cluster()
    with_kinds(cluster)
    notebook = a_workload(metadata={"annotations": {"a": "b"}})
    notebook |= {"apiVersion": "kubeflow.org/v1", "kind": "Notebook"}
    stored = cluster.write(notebook)
    note = stored["metadata"]["annotations"][ACCESS_ANNOTATION]

    beneath = annotated(a_workload("StatefulSet"), note)
    beneath["metadata"]["ownerReferences"] = controlled_by(stored)
    assert cluster.ask(beneath, user=NOTEBOOK_CONTROLLER, groups=NON_MEMBERS).patch == []
    assert cluster.ask_pod({**beneath, "metadata": {**beneath["metadata"], "uid": "u"}}).allowed
    forged = {**stored, "metadata": {**stored["metadata"], "annotations": {ACCESS_ANNOTATION: "x"}}}
    restored = cluster.ask(forged, old=stored, groups=NON_MEMBERS).applied_to(forged)
    assert restored["metadata"]["annotations"] == {ACCESS_ANNOTATION: note}


def test_kind_that_nobody_named_is_no_kind_of_this_path():
    reply = Cluster().ask({**a_workload(), "kind": "Notebook"})

    assert reply.answer.status == 400
    assert b"workloads.kinds does not name" in reply.answer.body


@pytest.mark.parametrize("templates", ["many", [1]])
def test_object_that_is_no_workload_is_refused_as_it_is(templates):
    cluster = Cluster()
    with_kinds(cluster)
    ray = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray"}}
    ray["spec"] = {"workerGroupSpecs": templates}

    assert cluster.ask(ray).answer.reason is RefusalReason.MALFORMED_REQUEST


def test_object_with_too_many_templates_is_refused():
    cluster = Cluster()
    with_kinds(cluster)
    ray = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray"}}
    workers = [{"template": a_template()}] * 64
    ray["spec"] = {"headGroupSpec": workers[0], "workerGroupSpecs": workers}

    assert "65 pod templates, at most 64" in cluster.ask(ray).message


def test_kind_that_is_named_later_has_no_copies_that_were_stored_before():
    """Nobody judged its templates then, so a pod's controller must be one that the signed object can have."""
    cluster = Cluster()
    workload, _ = a_stored(cluster)
    notebook = annotated(a_workload(name="mine", metadata={"uid": "u"}), note_of(workload))
    notebook |= {"apiVersion": "kubeflow.org/v1", "kind": "Notebook"}
    with_kinds(cluster)

    reply = cluster.ask_pod(notebook, user=NOTEBOOK_CONTROLLER)

    assert "is a copy of that of Deployment train" in reply.message


@pytest.mark.parametrize(("kind", "name"), [("Job", "train-1"), ("ReplicaSet", "other-1")])
def test_objects_that_no_deployment_makes_inherit_nothing_of_it(kind, name):
    """Stored while the webhooks were not installed."""
    cluster = Cluster()
    workload, _ = a_stored(cluster)

    reply = cluster.ask_pod(annotated(a_workload(kind, name), note_of(workload)))

    assert "is a copy of that of Deployment train" in reply.message


def test_object_above_with_a_generated_name_has_objects_beneath_it():
    cluster = Cluster()
    workload = a_workload(metadata={"name": "", "generateName": "train-"})
    stored = cluster.write(workload)
    stored["metadata"]["name"] = "train-x7k2p"

    assert cluster.ask_pod(cluster.make(stored, "ReplicaSet")).allowed


def test_fields_that_are_compared_are_not_decoded():
    """A template's metadata has fields of any size that nobody reads."""
    cluster = Cluster()
    workload = a_workload()
    template_of(workload)["metadata"]["managedFields"] = [[]] * 100_000
    stored = cluster.write(workload)
    tracemalloc.start()

    cluster.ask(stored, old=stored)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20


def test_list_that_is_too_long_is_refused_before_its_members_are_read():
    cluster = Cluster()
    with_kinds(cluster)
    ray = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray"}}
    ray["spec"] = {"workerGroupSpecs": [{}] * 65}

    assert "65 members, at most 64" in cluster.ask(ray).message
