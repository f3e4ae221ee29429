"""The scheduling gate of pods that wait for units of a pool that scales."""

from typing import Any

import pytest
from hypothesis import given

from admission.webhooks import mutate_pod, validate_pod
from pool.model import PodPhase
from tests.support.builders import a_node, a_pod_facts, at
from tests.support.reviews import AdmissionSetup, Reply, a_pod_object, stored
from tests.support.strategies import CAPACITY, QUEUE, pod_objects

SHAPES = {"shapes": [{"name": "two", "devices": 2}, {"name": "four", "devices": 4}]}
STARTUP_TAINT = {"key": "gpu.deckhouse.io/agent-not-ready", "effect": "NoSchedule"}
EVERYTHING = [{"operator": "Exists"}]


def a_setup(devices: int = 0, *, autoscaling: Any = SHAPES, **spec: Any) -> AdmissionSetup:
    setup = AdmissionSetup()
    setup.add_pool(**({} if autoscaling is None else {"autoscaling": autoscaling}), **spec)
    if devices:
        setup.add_node(devices=devices)
    return setup


def admit(setup: AdmissionSetup, units: int = 1, **spec: Any) -> Reply:
    return setup.ask(mutate_pod, a_pod_object(units, spec=spec))


def gates(reply: Reply, **spec: Any) -> list[Any]:
    """The gates of a pod with this spec once it has passed."""
    pod = reply.applied_to(a_pod_object(spec=spec))
    found = pod["spec"].get("schedulingGates")
    return found or []


def observed(
    setup: AdmissionSetup, name: str, phase: PodPhase = PodPhase.PENDING, **facts: Any
) -> None:
    setup.allocation_state.observe_pod(a_pod_facts(name, phase=phase, **facts), setup.now)


def test_a_pod_that_fits_gets_units_and_no_gate() -> None:
    reply = admit(a_setup(devices=1))
    assert gates(reply) == []
    assert reply.warnings == []


def test_a_pod_that_fits_nowhere_gets_the_gate_and_no_units() -> None:
    """Weak points 13 and 16: neither kube-scheduler nor Karpenter sees the pod before it has units, so that nothing has
    to be tried again, and no node is kept for a pod that cannot be bound."""
    setup = a_setup(devices=1)
    reply = admit(setup, 2)
    assert gates(reply) == [CAPACITY]
    (reservation,) = setup.allocation_state.ledger.all()
    assert not reservation.has_units
    assert reply.warnings == [
        "the pod waits: GPU pool whole has 1 of 1 free, 2 wanted; Events of the pod say which node comes"
    ]


def test_the_gated_pod_is_as_admission_made_it_for_validation() -> None:
    setup = a_setup()
    pod = admit(setup).applied_to(a_pod_object())
    assert setup.ask(validate_pod, stored(pod)).allowed


@pytest.mark.parametrize(
    "autoscaling",
    [
        pytest.param(None, id="no autoscaling"),
        pytest.param({**SHAPES, "backend": "none"}, id="no backend"),
    ],
)
def test_a_pool_that_does_not_scale_gates_no_pod(autoscaling: Any) -> None:
    reply = admit(a_setup(autoscaling=autoscaling))
    assert gates(reply) == []
    assert reply.warnings == ["the pod waits: GPU pool whole has no devices yet"]


def test_a_repeated_call_leaves_the_gate() -> None:
    setup = a_setup()
    once = admit(setup).applied_to(a_pod_object())
    setup.add_node(devices=1)
    again = setup.ask(mutate_pod, once)
    assert again.patch == []


def test_a_dry_run_shows_the_gate_and_reserves_nothing() -> None:
    setup = a_setup()
    reply = setup.ask(mutate_pod, a_pod_object(), dryRun=True)
    assert gates(reply) == [CAPACITY]
    assert len(setup.allocation_state.ledger) == 0


def test_a_replica_that_does_not_lead_gates_by_its_caches() -> None:
    setup = a_setup()
    setup.may_reserve = False
    assert gates(admit(setup)) == [CAPACITY]


def test_a_pod_with_gates_of_others_gets_none_of_ours() -> None:
    """Weak point 18: no node is asked for, for a pod that a queue or a quota has not admitted."""
    spec: dict[str, Any] = {"schedulingGates": [QUEUE]}
    setup = a_setup()
    assert gates(admit(setup, **spec), **spec) == [QUEUE]


@pytest.mark.parametrize(
    ("devices", "autoscaling", "given", "want"),
    [
        pytest.param(1, SHAPES, [CAPACITY], [], id="fits"),
        pytest.param(0, None, [CAPACITY], [], id="pool does not scale"),
        pytest.param(0, SHAPES, [CAPACITY], [CAPACITY], id="waits"),
        pytest.param(1, SHAPES, [CAPACITY, QUEUE], [QUEUE], id="queued"),
    ],
)
def test_a_copied_pod_keeps_our_gate_only_where_something_removes_it(
    devices: int, autoscaling: Any, given: Any, want: Any
) -> None:
    spec = {"schedulingGates": given}
    assert gates(admit(a_setup(devices, autoscaling=autoscaling), **spec), **spec) == want


def test_a_pod_behind_waiting_pods_is_gated_too() -> None:
    setup = a_setup(devices=1)
    observed(setup, "ahead", awaits_capacity=True)
    reply = admit(setup)
    assert gates(reply) == [CAPACITY]
    assert "pods ahead of it" in reply.warnings[0]


def test_a_pod_whose_units_may_come_free_within_moments_is_not_gated() -> None:
    """They are reserved for a pod that the API server has not stored yet."""
    setup = a_setup(devices=1)
    assert gates(admit(setup)) == []
    assert gates(admit(setup)) == []


@pytest.mark.parametrize(
    ("policy", "priority", "want"),
    [
        pytest.param("PreemptLowerPriority", 1000, [], id="may evict it"),
        pytest.param("Never", 1000, [CAPACITY], id="evicts none"),
        pytest.param("PreemptLowerPriority", 0, [CAPACITY], id="not above it"),
    ],
)
def test_a_pod_that_could_preempt_others_is_left_to_kube_scheduler(
    policy: str, priority: int, want: Any
) -> None:
    """Weak point 18: preemption comes first, and only kube-scheduler preempts."""
    setup = a_setup(devices=1)
    devices = {"c0": ("GPU-n1-0",)}
    observed(setup, "running", PodPhase.BOUND, node="n1", devices=devices)
    spec: dict[str, Any] = {"priority": priority, "preemptionPolicy": policy}
    assert gates(admit(setup, **spec)) == want


def test_priorities_count_for_as_long_as_pods_run() -> None:
    setup = a_setup()
    observed(setup, "low", PodPhase.BOUND, node="n1")
    observed(setup, "low", PodPhase.ENDED, node="n1")
    observed(setup, "gone", PodPhase.BOUND, node="n1")
    observed(setup, "gone", PodPhase.BOUND, node="n1")
    reader = setup.allocation_state.reader
    assert reader.pods.could_preempt("gpu.deckhouse.io/whole", 1)
    setup.allocation_state.discard_pod(a_pod_facts("gone").uid)
    assert not reader.pods.could_preempt("gpu.deckhouse.io/whole", 1)


def test_a_pod_that_a_quota_rejects_afterwards_is_no_demand() -> None:
    """Weak point 18: pods count once the API server has stored them, and admission creates nothing."""
    setup = a_setup()
    admit(setup)
    assert setup.allocation_state.reader.pods.waiting_count("gpu.deckhouse.io/whole") == 0
    setup.allocation_state.expire(at(3600))
    assert len(setup.allocation_state.ledger) == 0


def test_a_pod_that_is_too_large_to_compare_is_not_gated() -> None:
    setup = a_setup(devices=1)
    for number in range(200):
        setup.add_node(f"m{number}", devices=1)
    many = [
        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}]} for _ in range(900)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": many}}
    reply = admit(setup, affinity={"nodeAffinity": required})
    assert (
        "schedulingGates"
        not in reply.applied_to(a_pod_object(spec={"affinity": {"nodeAffinity": required}}))["spec"]
    )


@pytest.mark.parametrize("tolerations", [[], EVERYTHING])
def test_units_of_a_node_with_the_startup_taint_are_for_the_pods_that_it_came_for(
    tolerations: Any,
) -> None:
    """Weak point 7, at admission: whatever a pod tolerates."""
    setup = a_setup(devices=2)
    setup.allocation_state.index.replace_node(a_node("n1", is_starting=True))
    assert gates(admit(setup, tolerations=tolerations)) == [CAPACITY]


@pytest.mark.parametrize(
    ("devices", "units", "is_denied"),
    [
        pytest.param(0, 4, False, id="the largest shape"),
        pytest.param(0, 5, True, id="above the shapes, no node yet"),
        pytest.param(2, 4, False, id="above the nodes, not the shapes"),
        pytest.param(2, 5, True, id="above both"),
        pytest.param(8, 5, False, id="a node of another origin"),
        pytest.param(8, 9, True, id="above that, too"),
    ],
)
def test_what_no_node_and_no_shape_has_is_denied(devices: int, units: int, is_denied: bool) -> None:
    reply = admit(a_setup(devices), units)
    assert reply.allowed is not is_denied


def test_the_denial_names_the_shapes() -> None:
    assert admit(a_setup(), 5).message == (
        "ExceedsCapacity: the pod asks for 5 units of gpu.deckhouse.io/whole, but the largest node that pool whole has or may get"
        " (spec.autoscaling.shapes) has 4, and the units of a pod come from one node; ask for at most 4"
    )


def test_a_gated_pod_is_otherwise_as_the_user_wrote_it() -> None:
    setup = a_setup()
    pod = a_pod_object(spec={"priority": 7, "preemptionPolicy": "Never"})
    after = setup.ask(mutate_pod, pod).applied_to(pod)
    assert after["spec"]["priority"] == 7
    assert after["spec"]["containers"] == pod["spec"]["containers"]
    assert after["metadata"]["labels"] == {"gpu.deckhouse.io/pool": "whole"}


@given(pod=pod_objects())
def test_answers_of_a_pool_that_does_not_scale_are_the_same_in_each_byte(
    pod: dict[str, Any],
) -> None:
    def answer(autoscaling: Any) -> bytes:
        setup = a_setup(devices=1, autoscaling=autoscaling)
        return setup.ask(mutate_pod, pod).answer.body

    assert answer(None) == answer({**SHAPES, "backend": "none"})
