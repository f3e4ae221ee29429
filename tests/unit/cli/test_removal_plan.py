"""What an uninstall does to what it finds: which steps, in which order, and when it refuses."""

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.annotations import ReservationNote
from api.foreign.core import NodeTaint
from api.names import NodeName
from cli.uninstall.own_kinds import RemovalStage, own_kinds
from cli.uninstall.removal_plan import (
    HOLDER,
    FoundLease,
    FoundNode,
    FoundObject,
    RemovalAction,
    RemovalPlan,
    RemovalSurvey,
    left_texts,
    plan_removal,
    pods_in_use,
    refusal_text,
    server_elsewhere,
)
from kube.resources import (
    CERTIFICATES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    GPU_DEVICES,
    GPU_POOLS,
    LEASES,
    NAMESPACES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Resource,
)
from pool.model import NodeFacts, PodPhase
from tests.support.builders import a_pod_facts

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def an_object(resource: Resource, name: str = "x", **changes: Any) -> FoundObject:
    return FoundObject(resource=resource, name=name, uid=f"uid-{name}", **changes)


def found(
    stage: RemovalStage | None = None, *objects: FoundObject, **changes: Any
) -> RemovalSurvey:
    by_stage = {} if stage is None else {stage: objects}
    return RemovalSurvey(objects_by_stage=by_stage, **changes)


def a_node(
    labels: dict[str, str],
    *,
    annotations: dict[str, str] | None = None,
    taints: tuple[NodeTaint, ...] = (),
    written: frozenset[str] = frozenset(),
    owns_cordon: bool = False,
) -> FoundNode:
    annotations = annotations or {}
    facts = NodeFacts(
        name=NodeName("n1"),
        labels=labels,
        taints=taints,
        pool_taints=annotations.get("gpu.deckhouse.io/pool-taints", ""),
        deploy_labels=annotations.get("gpu.deckhouse.io/deploy-labels", ""),
        upgrade_enabled=annotations.get("nvidia.com/gpu-driver-upgrade-enabled", ""),
        resource_version="7",
    )
    return FoundNode(
        facts=facts,
        annotations=tuple(annotations),
        written_labels=written,
        owns_cordon=owns_cordon,
    )


def texts(plan: RemovalPlan) -> list[str]:
    return [step.text for step in plan.steps]


def test_nothing_found_is_nothing_to_do():
    assert plan_removal(found()).steps == ()


def rows() -> list[tuple[RemovalStage, Resource]]:
    return [(kind.stage, kind.resource) for kind in own_kinds()]


@pytest.mark.parametrize(
    "stage", [RemovalStage.VALIDATION, RemovalStage.POLICIES, RemovalStage.APPLIED]
)
def test_binding_of_a_policy_goes_before_the_policy(stage: RemovalStage):
    table = rows()
    binding = table.index((stage, VALIDATING_ADMISSION_POLICY_BINDINGS))
    assert binding < table.index((stage, VALIDATING_ADMISSION_POLICIES))


def test_rights_go_after_what_uses_them_and_a_binding_before_its_role():
    kinds = [resource for stage, resource in rows() if stage is RemovalStage.APPLIED]
    order = [DEPLOYMENTS, CERTIFICATES, SERVICES, SECRETS, SERVICE_ACCOUNTS, CLUSTER_ROLE_BINDINGS]
    assert sorted(order, key=kinds.index) == order
    assert kinds.index(SERVICES) < kinds.index(ROLE_BINDINGS) < kinds.index(ROLES)
    assert kinds.index(CLUSTER_ROLE_BINDINGS) < kinds.index(CLUSTER_ROLES)


def test_the_table_is_in_the_order_of_the_stages():
    stages = [stage for stage, _ in rows()]
    assert stages == sorted(stages, key=list(RemovalStage).index)


@given(st.permutations(list(RemovalStage)))
def test_order_of_stages_does_not_depend_on_the_order_of_finding(order: list[RemovalStage]):
    objects = {stage: (an_object(SERVICES, stage.name.lower()),) for stage in order}
    plan = plan_removal(RemovalSurvey(objects_by_stage=objects))
    stages = [step.stage for step in plan.steps]
    assert stages == [item for item in RemovalStage if item in set(stages)]
    assert set(stages) == set(RemovalStage) - {RemovalStage.FINALIZERS, RemovalStage.DEFINITIONS}


def test_definitions_wait_until_their_objects_are_gone():
    definition = an_object(CUSTOM_RESOURCE_DEFINITIONS, "gpudevices.gpu.deckhouse.io")
    objects: dict[RemovalStage, tuple[FoundObject, ...]] = {
        RemovalStage.OBJECTS: (an_object(GPU_DEVICES),),
        RemovalStage.DEFINITIONS: (definition,),
    }
    assert texts(plan_removal(RemovalSurvey(objects_by_stage=objects))) == ["delete GPUDevice x"]
    objects[RemovalStage.OBJECTS] = ()
    (step,) = plan_removal(RemovalSurvey(objects_by_stage=objects)).steps
    assert step.target == definition


def test_object_that_is_going_is_awaited():
    being_deleted = an_object(NAMESPACES, is_being_deleted=True)
    plan = plan_removal(found(RemovalStage.NAMESPACE, being_deleted))
    assert (plan.steps, plan.being_deleted) == ((), (being_deleted,))


def test_only_our_finalizers_are_removed_from_the_list_that_was_read():
    pool = an_object(
        GPU_POOLS, finalizers=("a.com/b", "gpu.deckhouse.io/pool"), resource_version="5"
    )
    (step,) = plan_removal(found(RemovalStage.FINALIZERS, pool)).steps
    assert step.body == {"metadata": {"resourceVersion": "5", "finalizers": ["a.com/b"]}}


def test_lease_is_held_and_deployments_scaled_before_agents_go():
    objects = {
        RemovalStage.STATE: (
            an_object(LEASES, "gpu-control-plane"),
            an_object(LEASES, "gpu-scheduler"),
        ),
        RemovalStage.AGENTS: (an_object(SERVICES, "agent"),),
    }
    running = (an_object(DEPLOYMENTS, "server"),)
    plan = plan_removal(
        RemovalSurvey(
            objects_by_stage=objects, running_deployments=running, lease=FoundLease(holder="leader")
        )
    )
    assert texts(plan)[:3] == [
        "hold Lease gpu-control-plane",
        "scale to 0 Deployment server",
        "delete Service agent",
    ]


def test_lease_that_is_held_already_is_not_taken_again():
    lease = an_object(LEASES, "gpu-control-plane")
    plan = plan_removal(found(RemovalStage.STATE, lease, lease=FoundLease(holder=HOLDER)))
    assert texts(plan) == ["delete Lease gpu-control-plane"]


def test_lease_and_namespace_stay_for_a_server_that_outlives_the_removal():
    objects = {
        RemovalStage.STATE: (an_object(LEASES, "gpu-control-plane"),),
        RemovalStage.NAMESPACE: (an_object(NAMESPACES),),
    }
    plan = plan_removal(
        RemovalSurvey(objects_by_stage=objects, lease=FoundLease(holder=HOLDER)), keeps_lease=True
    )
    assert plan.steps == ()


@pytest.mark.parametrize(
    ("lease", "deployments", "expected"),
    [
        pytest.param(None, (), "", id="no Lease"),
        pytest.param(FoundLease(holder="x"), (), "", id="never renewed"),
        pytest.param(
            FoundLease(holder="x", valid_until=NOW + dt.timedelta(seconds=1)), (), "x", id="leads"
        ),
        pytest.param(FoundLease(holder="x", valid_until=NOW), (), "", id="run out"),
        pytest.param(
            FoundLease(holder="x", valid_until=NOW + dt.timedelta(seconds=1)),
            (an_object(DEPLOYMENTS),),
            "",
            id="of a Deployment",
        ),
        pytest.param(
            FoundLease(holder=HOLDER, valid_until=NOW + dt.timedelta(seconds=1)), (), "", id="ours"
        ),
    ],
)
def test_server_elsewhere_is_a_live_holder_without_a_deployment(lease, deployments, expected):
    assert server_elsewhere(found(lease=lease, running_deployments=deployments), NOW) == expected


def test_node_loses_what_the_control_plane_wrote_and_nothing_else():
    theirs = NodeTaint(key="a.com/t", effect="NoSchedule")
    ours = NodeTaint(key="b.com/t", effect="NoExecute")
    node = a_node(
        {
            "pool.gpu.deckhouse.io/training": "",
            "gpu.deckhouse.io/present": "true",
            "gpu.deckhouse.io/enabled": "false",
            "notgpu.deckhouse.io/x": "",
        },
        annotations={"gpu.deckhouse.io/pool-taints": "b.com/t:NoExecute", "a.com/n": ""},
        taints=(theirs, ours),
        written=frozenset({"gpu.deckhouse.io/present"}),
    )
    (step,) = plan_removal(found(nodes=(node,))).steps
    assert step.action is RemovalAction.PATCH
    assert step.body == {
        "metadata": {
            "labels": {"gpu.deckhouse.io/present": None, "pool.gpu.deckhouse.io/training": None},
            "annotations": {"gpu.deckhouse.io/pool-taints": None},
            "resourceVersion": "7",
        },
        "spec": {"taints": [theirs]},
    }


def test_node_loses_the_labels_of_operands_that_are_recorded_as_ours():
    """gpu-operator#1391: labels stayed on the nodes after an uninstall."""
    deploy = "nvidia.com/gpu.deploy."
    record = f"{deploy}driver,{deploy}dcgm,{deploy}client,nvidia.com/gpu-driver-upgrade-enabled"
    node = a_node(
        {
            f"{deploy}driver": "paused-for-driver-upgrade",
            f"{deploy}dcgm": "false",
            f"{deploy}client": "true",
            f"{deploy}mig-manager": "true",
        },
        annotations={
            "gpu.deckhouse.io/deploy-labels": record,
            "nvidia.com/gpu-driver-upgrade-enabled": "true",
        },
    )
    (step,) = plan_removal(found(nodes=(node,))).steps
    assert step.body == {
        "metadata": {
            "labels": {f"{deploy}client": None, f"{deploy}driver": None},
            "annotations": {
                "gpu.deckhouse.io/deploy-labels": None,
                "nvidia.com/gpu-driver-upgrade-enabled": None,
            },
        }
    }


def test_node_in_the_middle_of_a_driver_upgrade_is_uncordoned_unless_another_client_cordoned_it():
    """The state label, and NVIDIA's annotations beside it, are another operator's where there is no record of ours."""
    state = {"nvidia.com/gpu-driver-upgrade-state": "validation-required"}
    ours, start = "gpu.deckhouse.io/driver-upgrade", "nvidia.com/gpu-driver-upgrade"
    notes = {
        ours: "{}",
        "gpu.deckhouse.io/units-withheld-by": "driver-upgrade",
        f"{start}-validation-start-time": "1",
        f"{start}.node-initial-state.unschedulable": "true",
    }
    node = a_node(state, annotations=notes, owns_cordon=True)
    (step,) = plan_removal(found(nodes=(node,))).steps
    assert step.body == {
        "metadata": {
            "labels": dict.fromkeys(state),
            "annotations": dict.fromkeys(sorted(notes)),
            "resourceVersion": "7",
        },
        "spec": {"unschedulable": None},
    }
    (step,) = plan_removal(found(nodes=(a_node(state, annotations=notes),))).steps
    assert step.body is not None
    assert "spec" not in step.body
    del notes[ours], notes["gpu.deckhouse.io/units-withheld-by"]
    assert plan_removal(found(nodes=(a_node(state, annotations=notes),))).steps == ()
    alone = a_node({}, owns_cordon=True)
    (step,) = plan_removal(found(nodes=(alone,))).steps
    assert step.body == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"unschedulable": None},
    }


def test_node_with_labels_of_the_operator_only_is_not_written():
    assert plan_removal(found(nodes=(a_node({"gpu.deckhouse.io/enabled": "false"}),))).steps == ()


def test_objects_of_helm_stay_and_are_counted_by_release():
    objects = (an_object(SERVICES, "a", helm_release="gpu"), an_object(SERVICES, "b"))
    seen = found(RemovalStage.APPLIED, *objects)
    assert texts(plan_removal(seen)) == ["delete Service b"]
    assert "1 objects of the Helm release gpu: helm uninstall deletes them" in left_texts(seen)


def test_policies_and_webhooks_of_helm_go_all_the_same():
    policy = an_object(VALIDATING_ADMISSION_POLICIES, helm_release="gpu")
    assert texts(plan_removal(found(RemovalStage.VALIDATION, policy))) == [
        "delete ValidatingAdmissionPolicy x"
    ]


def test_pods_are_in_use_while_bound_or_reserved():
    def note(**changes: Any) -> ReservationNote:
        return ReservationNote(id="r", pool="whole", **changes)

    later = NOW + dt.timedelta(seconds=1)
    bound = a_pod_facts("bound", phase=PodPhase.BOUND, node=NodeName("n1"))
    reserved = a_pod_facts("reserved", reservation=note(node="n1", expires_at=later))
    committed = a_pod_facts("committed", reservation=note(node="n1"))
    others = [
        a_pod_facts("ended", phase=PodPhase.ENDED, node=NodeName("n1")),
        a_pod_facts("expired", reservation=note(node="n1", expires_at=NOW)),
        a_pod_facts("waits", reservation=note()),
        a_pod_facts("alone"),
    ]
    assert pods_in_use([bound, *others, reserved, committed], NOW) == [bound, reserved, committed]


def test_refusal_names_five_pods_and_counts_the_others():
    pods = [a_pod_facts(f"p{n}", phase=PodPhase.BOUND, node=NodeName("n1")) for n in range(7)]
    text = refusal_text(pods, ())
    assert text.startswith(
        "7 pods use units of pools: default/p0 (1 unit of gpu.deckhouse.io/whole, on n1)"
    )
    assert text.endswith("and 2 more. Delete them, or let them run on with --force")
    assert "p5" not in text


def test_a_pod_that_uses_units_and_mounts_a_kernel_cache_is_refused_for_both():
    pod = a_pod_facts("serve", phase=PodPhase.BOUND, node=NodeName("n1"))
    assert refusal_text([pod], ["default/serve"]) == (
        "1 pod uses units of pools: default/serve (1 unit of gpu.deckhouse.io/whole, on n1); 1 pod mounts kernel"
        " caches, which kubelet cannot unmount without a node agent: default/serve."
        " Delete it, or let it run on with --force"
    )
    assert refusal_text([], ()) == ""


def test_a_node_that_was_added_and_one_that_was_kept_are_the_autoscalers_again():
    startup = NodeTaint(key="gpu.deckhouse.io/agent-not-ready", effect="NoSchedule")
    other = NodeTaint(key="example.com/other", effect="NoSchedule")
    kept = {"karpenter.sh/do-not-disrupt": "true", "gpu.deckhouse.io/keep-until": "x"}
    (step,) = plan_removal(
        found(nodes=(a_node({}, annotations=kept, taints=(startup, other)),))
    ).steps
    assert step.body == {
        "metadata": {"annotations": dict.fromkeys(sorted(kept)), "resourceVersion": "7"},
        "spec": {"taints": [other]},
    }


def test_what_somebody_else_keeps_stays_kept():
    theirs = a_node({}, annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert plan_removal(found(nodes=(theirs,))).steps == ()


def test_requests_for_nodes_go_once_no_server_makes_them_again():
    plan = plan_removal(
        RemovalSurvey(
            objects_by_stage={
                RemovalStage.AGENTS: (an_object(SERVICES),),
                RemovalStage.SIGNALS: (an_object(PODS, "scale-x"),),
                RemovalStage.VALIDATION: (an_object(VALIDATING_ADMISSION_POLICIES),),
            }
        )
    )
    assert [step.stage for step in plan.steps] == [
        RemovalStage.VALIDATION,
        RemovalStage.SIGNALS,
        RemovalStage.AGENTS,
    ]
