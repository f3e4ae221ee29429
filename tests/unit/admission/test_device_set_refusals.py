"""Pods whose devices no node can ever give together are refused at admission; others wait."""

from typing import Any

import pytest

from admission.webhooks import mutate_pod
from telemetry.reasons import RefusalReason
from tests.support.allocation_state import a_bound_pod
from tests.support.builders import a_device, a_node, at
from tests.support.reviews import AdmissionSetup, a_pod_object

SAME_DEVICE = {"mode": "TimeSlice", "slicesPerDevice": 50, "slicePlacement": "SameDevice"}
REQUIRED = {"deviceTopology": "Required"}


def a_setup(*numa: int | None, **spec: Any) -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(**spec)
    setup.allocation_state.index.replace_node(a_node())
    for index, node in enumerate(numa):
        setup.allocation_state.index.replace_device(a_device(index=index, numa_node=node))
    return setup


@pytest.mark.parametrize(
    ("units", "sizes"), [(51, "50 or 100"), (99, "50 or 100"), (120, "100 or 150")]
)
def test_slices_that_are_no_part_of_a_device_and_no_whole_devices_are_refused(units, sizes) -> None:
    reply = a_setup(0, 0, 0, allocation=SAME_DEVICE).ask(mutate_pod, a_pod_object(units))

    assert not reply.allowed
    assert reply.answer.reason is RefusalReason.BAD_QUANTITY
    assert f"container main asks for {units} units of gpu.deckhouse.io/whole" in reply.message
    assert reply.message.endswith(f"; ask for {sizes}")


def test_a_wrong_number_of_slices_is_refused_while_the_pool_has_no_devices() -> None:
    reply = a_setup(allocation=SAME_DEVICE).ask(mutate_pod, a_pod_object(51))

    assert reply.answer.reason is RefusalReason.BAD_QUANTITY


@pytest.mark.parametrize("units", [1, 23, 50, 100])
def test_parts_of_a_device_and_whole_devices_are_admitted(units: int) -> None:
    setup = a_setup(0, 0, allocation=SAME_DEVICE)

    assert setup.ask(mutate_pod, a_pod_object(units)).allowed
    (reservation,) = setup.allocation_state.ledger.all()
    assert reservation.has_units


def test_a_container_that_would_reuse_a_part_of_an_init_containers_devices_is_refused() -> None:
    pod = a_pod_object(23)
    pod["spec"]["initContainers"] = [
        {"name": "load", "resources": {"requests": {"gpu.deckhouse.io/whole": "100"}}}
    ]

    reply = a_setup(0, 0, allocation=SAME_DEVICE).ask(mutate_pod, pod)

    assert reply.answer.reason is RefusalReason.BAD_QUANTITY
    assert "container main asks for 23 units" in reply.message
    assert "let the init containers ask for as many, or for none" in reply.message


def test_more_devices_than_any_node_can_align_are_refused_where_that_is_required() -> None:
    setup = a_setup(0, 0, 1, 1, scheduling=REQUIRED)

    reply = setup.ask(mutate_pod, a_pod_object(3))

    assert reply.answer.reason is RefusalReason.EXCEEDS_CAPACITY
    assert "no node has more than 2 so; ask for at most 2" in reply.message
    assert setup.ask(mutate_pod, a_pod_object(2)).allowed


def test_a_pod_waits_for_an_aligned_set_that_is_taken() -> None:
    setup = a_setup(0, 0, 1, 1, scheduling=REQUIRED)
    for index in (0, 2):
        pod = a_bound_pod(f"b{index}", f"GPU-n1-{index}")
        setup.allocation_state.observe_pod(pod, at(0))

    reply = setup.ask(mutate_pod, a_pod_object(2))

    assert reply.allowed
    assert reply.warnings == [
        "the pod waits: no node of GPU pool whole that it may go to has 2 free on devices that it may have together"
    ]
    assert [item.has_units for item in setup.allocation_state.ledger.all()] == [False]


def test_a_node_whose_topology_is_unknown_may_align_them_once_it_is_reported() -> None:
    reply = a_setup(None, None, scheduling=REQUIRED).ask(mutate_pod, a_pod_object(2))

    assert reply.allowed


def test_without_nodes_an_aligned_demand_waits() -> None:
    assert a_setup(scheduling=REQUIRED).ask(mutate_pod, a_pod_object(2)).allowed
