"""Pods on devices that nobody knows, or that another pod has: told once, by the replica that leads."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from structlog.testing import capture_logs

from api.names import DEVICES_ANNOTATION, RESERVATION_ANNOTATION, PoolName, UnitId
from kube.events import Event
from pool.catalog import Catalog
from pool.facts import pod_facts
from pool.model import PodFacts, PodPhase
from reconciler.sinks.pods import PodSink
from server.events import ReservationEvents
from tests.support.allocation_state import a_bound_pod, some_allocation_state, some_devices
from tests.support.bound_pods import a_bound_pod as stored_pod
from tests.support.builders import a_pod_facts, at

WHOLE = "gpu.deckhouse.io/whole"


@dataclass
class Told:
    """What the feed told, and what the recorder was given."""

    pods: list[tuple[str, str, int]] = field(default_factory=list)
    doubles: list[tuple[str, str, list[str]]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def warn_unaccounted(self, pod: PodFacts, resource: str, units: int) -> None:
        self.pods.append((pod.name, resource, units))

    def warn_double(self, pod: PodFacts, other: PodFacts, units: Sequence[UnitId]) -> None:
        self.doubles.append((pod.name, other.name, list(units)))

    def emit(self, event: Event) -> None:
        self.events.append(event)


def a_sink(told: Told) -> PodSink:
    return PodSink(some_allocation_state(devices=some_devices(4)), lambda: at(0), told)


def test_a_pod_that_was_bound_past_us_is_told_once():
    sink = a_sink(told := Told())
    stray = a_bound_pod("stray", units=2)
    with capture_logs() as logs:
        sink.upsert(a_pod_facts("stray", 2))
        sink.upsert(stray)
        sink.upsert(stray)
        sink.replace_all([stray])
    assert told.pods == [("stray", WHOLE, 2)]
    (line,) = [log for log in logs if log["log_level"] == "warning"]
    assert (line["event"], line["pod"], line["node"], line["units"]) == (
        "pod runs on devices that nobody knows",
        "default/stray",
        "n1",
        2,
    )


def test_a_pod_found_so_at_the_start_is_told_too():
    sink = a_sink(told := Told())
    sink.replace_all([a_bound_pod("stray"), a_bound_pod("ours", "GPU-n1-0")])
    assert told.pods == [("stray", WHOLE, 1)]


def test_pods_with_their_devices_and_ended_ones_are_not_told():
    sink = a_sink(told := Told())
    sink.upsert(a_bound_pod("ours", "GPU-n1-0"))
    sink.upsert(a_bound_pod("over", phase=PodPhase.ENDED))
    assert told.pods == []


def test_the_warning_is_on_the_pod_and_only_from_the_leader():
    recorder = Told()
    announcing = ReservationEvents(recorder, Catalog())  # type: ignore[arg-type]  # its one method
    announcing.warn_unaccounted(a_bound_pod("stray"), WHOLE, 1)
    assert recorder.events == []
    announcing.is_leading = True
    announcing.warn_unaccounted(a_bound_pod("stray"), WHOLE, 1)
    (event,) = recorder.events
    assert (event.type, event.reason) == ("Warning", "GPUPodUnaccounted")
    about = event.regarding
    assert (about.kind, about.namespace, about.name, about.uid) == (
        "Pod",
        "default",
        "stray",
        "uid-stray",
    )
    assert event.note == (
        "nobody knows which devices stand for 1 of its gpu.deckhouse.io/whole: it was not bound by "
        "the GPU control plane. Until it ends, node n1 takes no pod of that resource"
    )


def test_a_pod_that_names_several_pools_is_told_for_each():
    sink = a_sink(told := Told())
    other = "gpu.deckhouse.io/other"
    sink.upsert(a_bound_pod("stray", astray=((other, 1), (WHOLE, 3))))
    assert told.pods == [("stray", other, 1), ("stray", WHOLE, 3)]


def test_two_pods_with_one_unit_are_told_once_on_each():
    sink = a_sink(told := Told())
    ours, thief = a_bound_pod("ours", "GPU-n1-0"), a_bound_pod("thief", "GPU-n1-0", node="n2")
    with capture_logs() as logs:
        sink.upsert(ours)
        sink.upsert(thief)
        sink.replace_all([thief, ours])
    assert told.doubles == [("thief", "ours", ["GPU-n1-0"]), ("ours", "thief", ["GPU-n1-0"])]
    (line,) = [log for log in logs if log["log_level"] == "error"]
    assert (line["pod"], line["other"]) == ("default/thief", "default/ours")


def test_a_unit_that_a_bound_pod_takes_later_is_told_too():
    sink = a_sink(told := Told())
    sink.upsert(a_bound_pod("a", "GPU-n1-0"))
    sink.upsert(a_bound_pod("b", "GPU-n1-1"))
    sink.upsert(a_bound_pod("b", "GPU-n1-0"))
    assert [names[:2] for names in told.doubles] == [("b", "a"), ("a", "b")]


@pytest.mark.parametrize("turned", [False, True], ids=["one way", "the other way"])
def test_a_list_that_shows_the_end_of_one_pod_and_the_next_on_its_unit_tells_of_no_double(turned):
    """A watch that was away shows both at once, in the order of their names."""
    sink = a_sink(told := Told())
    first, second = a_bound_pod("first", "GPU-n1-0"), a_bound_pod("second", "GPU-n1-0")
    sink.upsert(first)
    listed = [replace(first, phase=PodPhase.ENDED), second]
    sink.replace_all(listed[::-1] if turned else listed)
    assert told.doubles == []


def test_the_warning_of_a_double_names_the_other_pod_and_the_units():
    recorder = Told()
    announcing = ReservationEvents(recorder, Catalog())  # type: ignore[arg-type]  # its one method
    announcing.is_leading = True
    thief, ours = a_bound_pod("thief"), a_bound_pod("ours")
    announcing.warn_double(thief, ours, [UnitId("GPU-1"), UnitId("GPU-0")])
    (event,) = recorder.events
    assert (event.reason, event.regarding.name) == ("GPUUnitsHeldTwice", "thief")
    assert event.note == (
        "pod default/ours on node n1 has the same units: GPU-0, GPU-1. They stay taken until both "
        "pods are gone; delete one of them"
    )


def test_a_pod_that_comes_back_from_its_user_s_end_is_told_beside_its_successor():
    sink = a_sink(told := Told())
    sink.upsert(a_bound_pod("victim", "GPU-n1-0"))
    sink.upsert(a_bound_pod("victim", "GPU-n1-0", phase=PodPhase.ENDED))
    sink.upsert(a_bound_pod("thief", "GPU-n1-0"))
    assert told.doubles == []
    sink.upsert(a_bound_pod("victim", "GPU-n1-0"))
    sink.upsert(a_bound_pod("victim", "GPU-n1-0"))
    assert [names[:2] for names in told.doubles] == [("victim", "thief"), ("thief", "victim")]


NESTED = '{"id":"x","pool":"whole","x":' + "[" * 20_000 + "]" * 20_000 + "}"


def test_a_bound_pod_whose_annotations_are_nonsense_closes_its_node():
    pod = stored_pod()
    texts = {RESERVATION_ANNOTATION: NESTED, DEVICES_ANNOTATION: NESTED}
    odd = msgspec.structs.replace(pod.metadata, annotations=texts)
    facts = pod_facts(msgspec.structs.replace(pod, metadata=odd))
    assert facts is not None
    told = Told()
    allocation_state = some_allocation_state(devices=some_devices(4))
    PodSink(allocation_state, lambda: at(0), told).upsert(facts)
    assert told.pods == [("p", WHOLE, 1)]
    assert allocation_state.index.state(PoolName("whole")).capacity().available == 0


@pytest.mark.parametrize("units", [1, 3])
def test_a_bound_pod_that_the_projection_does_not_understand_closes_its_node(units: int):
    pod = stored_pod(main={"main": units})
    odd = msgspec.structs.replace(pod.metadata, annotations={RESERVATION_ANNOTATION: 5})
    facts = pod_facts(msgspec.structs.replace(pod, metadata=odd))
    assert facts is not None
    assert (facts.uid, facts.node, facts.phase) == ("uid-p", "n1", PodPhase.BOUND)
    assert facts.astray == ((WHOLE, 1),)
    allocation_state = some_allocation_state(devices=some_devices(4))
    PodSink(allocation_state, lambda: at(0)).upsert(facts)
    assert allocation_state.index.state(PoolName("whole")).capacity().available == 0


def test_a_pending_pod_that_the_projection_does_not_understand_is_nothing_at_all():
    pod = stored_pod()
    odd = msgspec.structs.replace(pod.metadata, annotations={RESERVATION_ANNOTATION: 5})
    spec = msgspec.structs.replace(pod.spec, node_name="")
    with pytest.raises(TypeError):
        pod_facts(msgspec.structs.replace(pod, metadata=odd, spec=spec))
