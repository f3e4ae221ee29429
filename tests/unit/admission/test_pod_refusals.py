"""Pods that cannot work are refused with a reason, the figures, and what to do."""

import json
from typing import Any

import pytest

from admission.webhooks import mutate_pod
from pool.model import DeviceFacts
from telemetry.reasons import RefusalReason
from tests.support.builders import a_device, a_node
from tests.support.reviews import AdmissionSetup, Reply, a_pod_object

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def an_admission_setup(**spec: Any) -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(**spec)
    setup.add_node(devices=2)
    return setup


def refused(
    setup: AdmissionSetup, pod: dict[str, Any], reason: RefusalReason, **review: Any
) -> Reply:
    reply = setup.ask(mutate_pod, pod, **review)
    assert not reply.allowed
    assert reply.answer.reason is reason
    assert reply.message.startswith(f"{reason.value}: ")
    assert len(setup.allocation_state.ledger) == 0
    return reply


@pytest.mark.parametrize("resource", ["gpu.deckhouse.io/whole", "gpu.deckhouse.io/another"])
def test_a_runtime_class_has_no_units(resource: str):
    """kube-scheduler counts the overhead of a RuntimeClass, and kubelet gives no device for it."""
    pod = a_pod_object(spec={"overhead": {"cpu": "250m", resource: "1"}})
    reply = refused(an_admission_setup(), pod, RefusalReason.BAD_QUANTITY)
    assert f"RuntimeClass names {resource}" in reply.message


def test_the_overhead_of_a_runtime_class_is_none_of_a_pool():
    pod = a_pod_object(spec={"overhead": {"cpu": "250m"}})
    assert an_admission_setup().ask(mutate_pod, pod).allowed


def test_a_pod_takes_units_of_one_pool():
    pod = a_pod_object()
    pod["spec"]["initContainers"] = [
        {"name": "i", "resources": {"requests": {"gpu.deckhouse.io/another": "1"}}}
    ]

    reply = refused(an_admission_setup(), pod, RefusalReason.MIXED_POOLS)

    assert "gpu.deckhouse.io/another, gpu.deckhouse.io/whole" in reply.message


@pytest.mark.parametrize("amount", ["1.0", "1e0", "1000m", "+1", "01", 1])
def test_every_spelling_of_a_whole_number_asks_for_as_many(amount):
    """HAMi#2558: units that are lost by their spelling."""
    setup = an_admission_setup()
    pod = a_pod_object(amount)
    annotations = setup.ask(mutate_pod, pod).applied_to(pod)["metadata"]["annotations"]
    assert json.loads(annotations["gpu.deckhouse.io/reservation"])["devices"] == {
        "main": ["GPU-n1-0"]
    }


@pytest.mark.parametrize("amount", ["1k", "1Ki"])
def test_units_in_thousands_are_more_than_any_node_has(amount):
    refused(an_admission_setup(), a_pod_object(amount), RefusalReason.EXCEEDS_CAPACITY)


@pytest.mark.parametrize("amount", ["0.5", " 1", "-1", "some", "1e99999999", "9" * 5000])
def test_units_are_whole_numbers(amount):
    reply = refused(an_admission_setup(), a_pod_object(amount), RefusalReason.BAD_QUANTITY)

    assert 'container "main"' in reply.message
    assert "gpu.deckhouse.io/whole" in reply.message


def test_a_resource_of_ours_that_no_pool_serves_is_refused_with_the_pools_that_the_pod_may_use():
    """Lesson 14."""
    setup = an_admission_setup()
    setup.callers_are_known = True
    setup.add_pool("secret", access={"namespaces": ["elsewhere"]})
    for number in range(7):
        setup.add_pool(f"p{number}")

    reply = refused(setup, a_pod_object(pool="a30"), RefusalReason.POOL_NOT_FOUND)

    assert reply.message == (
        "PoolNotFound: no GPU pool serves gpu.deckhouse.io/a30; the pod may use"
        " gpu.deckhouse.io/p0, gpu.deckhouse.io/p1, gpu.deckhouse.io/p2, gpu.deckhouse.io/p3,"
        " gpu.deckhouse.io/p4 and 3 more"
    )
    assert reply.code == 422


def test_without_any_pool_the_message_says_so():
    setup = AdmissionSetup(callers_are_known=True)
    reply = refused(setup, a_pod_object(), RefusalReason.POOL_NOT_FOUND)

    assert "there is no pool that it may use" in reply.message


def test_a_pool_is_found_by_its_resource_name():
    setup = AdmissionSetup()
    setup.add_pool("a100", resource={"name": "gpu.deckhouse.io/big"})
    setup.add_node(pool="a100")

    mutated = setup.ask(mutate_pod, a_pod_object(pool="big")).applied_to(a_pod_object(pool="big"))

    assert mutated["metadata"]["labels"]["gpu.deckhouse.io/pool"] == "a100"


def test_a_pool_that_is_being_deleted_takes_no_pods():
    setup = an_admission_setup()
    setup.terminate("whole")

    refused(setup, a_pod_object(), RefusalReason.POOL_TERMINATING)


def test_a_pod_that_names_its_node_is_refused():
    reply = refused(
        an_admission_setup(), a_pod_object(spec={"nodeName": "n1"}), RefusalReason.NODE_PRESET
    )

    assert "spec.nodeName is set to n1" in reply.message
    assert "nodeSelector" in reply.message


def test_a_pod_labelled_for_another_pool_is_refused():
    pod = a_pod_object(metadata={"labels": {"gpu.deckhouse.io/pool": "another"}})

    reply = refused(an_admission_setup(), pod, RefusalReason.CONFLICTING_SPEC)

    assert 'says "another", but the pod asks for pool whole' in reply.message


def test_a_copy_of_a_pod_of_another_pool_is_refused_with_all_that_has_to_go():
    there = AdmissionSetup()
    there.add_pool("another", resource={"name": "gpu.deckhouse.io/whole"})
    there.add_node(pool="another")
    copied = there.ask(mutate_pod, a_pod_object()).applied_to(a_pod_object())
    reply = refused(an_admission_setup(), copied, RefusalReason.CONFLICTING_SPEC)
    assert (
        "remove the label and pool.gpu.deckhouse.io/another in the required nodeAffinity"
        in reply.message
    )
    del copied["metadata"]["labels"], copied["spec"]["affinity"]
    assert an_admission_setup().ask(mutate_pod, copied).allowed


def test_a_node_selector_that_no_node_of_the_pool_can_meet_is_refused():
    pod = a_pod_object(spec={"nodeSelector": {"pool.gpu.deckhouse.io/whole": "whole"}})

    reply = refused(an_admission_setup(), pod, RefusalReason.CONFLICTING_SPEC)

    assert 'nodeSelector wants pool.gpu.deckhouse.io/whole to be "whole"' in reply.message


def test_a_node_selector_on_the_pools_nodes_is_fine():
    pod = a_pod_object(spec={"nodeSelector": {"pool.gpu.deckhouse.io/whole": ""}})
    setup = AdmissionSetup()
    setup.add_pool()
    setup.add_node(labels={"pool.gpu.deckhouse.io/whole": ""})

    assert setup.ask(mutate_pod, pod).allowed


def with_expressions(*alternatives: list[dict[str, Any]]) -> dict[str, Any]:
    terms = [{"matchExpressions": expressions} for expressions in alternatives]
    return a_pod_object(
        spec={"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
    )


NOT_THE_POOL = {"key": "pool.gpu.deckhouse.io/whole", "operator": "DoesNotExist"}
IN_ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


def test_an_affinity_that_shuts_out_the_pools_nodes_is_refused():
    reply = refused(
        an_admission_setup(),
        with_expressions([IN_ZONE, NOT_THE_POOL]),
        RefusalReason.CONFLICTING_SPEC,
    )

    assert "excludes nodes with the label pool.gpu.deckhouse.io/whole" in reply.message


def test_an_affinity_with_another_alternative_is_fine():
    assert an_admission_setup().ask(mutate_pod, with_expressions([NOT_THE_POOL], [IN_ZONE])).allowed


def test_more_units_than_any_node_has_are_refused_with_both_figures():
    reply = refused(an_admission_setup(), a_pod_object(3), RefusalReason.EXCEEDS_CAPACITY)

    assert "asks for 3 units of gpu.deckhouse.io/whole" in reply.message
    assert "largest node of pool whole has 2" in reply.message
    assert "ask for at most 2" in reply.message


def test_more_units_than_any_node_has_are_refused_behind_a_gate_too():
    pod = a_pod_object(3, spec={"schedulingGates": [{"name": "queue"}]})

    refused(an_admission_setup(), pod, RefusalReason.EXCEEDS_CAPACITY)


def test_a_pool_without_nodes_refuses_no_size():
    setup = AdmissionSetup()
    setup.add_pool()

    reply = setup.ask(mutate_pod, a_pod_object(100))

    assert reply.allowed
    assert reply.warnings == ["the pod waits: GPU pool whole has no devices yet"]


@pytest.mark.parametrize(("cut", "units"), [(0, 2), (3, 5), (6, 14)])
def test_pod_waits_while_the_devices_of_its_pool_are_being_cut(cut, units):
    """One instance after the other is there; what a node has in between is not what it will have."""
    setup = a_mig_setup(cut)  # and another device, with one instance so far
    setup.allocation_state.index.replace_device(a_mig_device(1, 1))

    reply = setup.ask(mutate_pod, a_pod_object(units))

    assert reply.allowed


def test_pod_waits_while_a_driver_has_not_told_its_devices():
    setup = an_admission_setup()
    setup.allocation_state.index.replace_device(a_device("n1", 0, uuid=""))

    reply = setup.ask(mutate_pod, a_pod_object(2))

    assert reply.allowed
    assert reply.warnings == ["the pod waits: GPU pool whole has 1 of 1 free, 2 wanted"]


def test_more_instances_than_devices_can_be_cut_into_are_refused():
    reply = refused(a_mig_setup(1), a_pod_object(8), RefusalReason.EXCEEDS_CAPACITY)

    assert "the largest node of pool whole can have 7" in reply.message
    assert "ask for at most 7" in reply.message


def test_profile_of_several_compute_slices_leaves_fewer_instances():
    setup = a_mig_setup(1, profile="3g.40gb")

    assert setup.ask(mutate_pod, a_pod_object(2)).allowed
    setup = a_mig_setup(1, profile="3g.40gb")
    refused(setup, a_pod_object(3), RefusalReason.EXCEEDS_CAPACITY)


def a_mig_device(index: int, cut: int, profile: str = "1g.10gb") -> DeviceFacts:
    instances = tuple((profile, f"MIG-{index}-{number}") for number in range(cut))
    return a_device("n1", index, mig_instances=instances)


def a_mig_setup(cut: int, profile: str = "1g.10gb") -> AdmissionSetup:
    """A node with one device, partitioned into so many instances so far."""
    setup = AdmissionSetup()
    setup.add_pool(allocation={"mode": "MIG", "migProfile": profile})
    setup.allocate("whole", mode="MIG", migProfile=profile)
    setup.allocation_state.index.replace_node(a_node("n1"))
    setup.allocation_state.index.replace_device(a_mig_device(0, cut, profile))
    return setup


def test_sidecars_count_beside_the_containers():
    """Lesson 19."""
    pod = a_pod_object(2)
    resources = {"limits": {"gpu.deckhouse.io/whole": "1"}}
    pod["spec"]["initContainers"] = [
        {"name": "proxy", "restartPolicy": "Always", "resources": resources}
    ]

    reply = refused(an_admission_setup(), pod, RefusalReason.EXCEEDS_CAPACITY)

    assert "asks for 3 units" in reply.message
