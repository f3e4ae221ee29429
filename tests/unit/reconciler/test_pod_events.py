"""Pods on devices that nobody knows, or that another pod has: reported once, by the replica that leads."""

import re
from dataclasses import replace

import msgspec
import pytest
from structlog.testing import capture_logs

from api.names import DEVICES_ANNOTATION, RESERVATION_ANNOTATION, PoolName
from pool.facts import pod_facts
from pool.model import PodPhase
from reconciler.sinks.pod import PodSink
from telemetry.reasons import EventReason
from tests.support.allocation_state import a_bound_pod, some_allocation_state, some_devices
from tests.support.bound_pods import a_bound_pod as stored_pod
from tests.support.builders import a_pod_facts, at
from tests.support.recorded_events import RecordedEvents

WHOLE = "gpu.deckhouse.io/whole"


class Reported(RecordedEvents):
    def notes(self, reason: EventReason) -> list[tuple[str, str]]:
        """Name of the pod, and note."""
        found = [event for event in self.events if event.reason == reason.value]
        return [(item.regarding.name, item.note) for item in found]

    @property
    def unaccounted(self) -> list[tuple[str, str]]:
        """Name of the pod, and its units."""
        notes = self.notes(EventReason.POD_UNACCOUNTED)
        return [(name, re.search(r"for (.*) are", note)[1]) for name, note in notes]  # type: ignore[index]

    @property
    def shared(self) -> list[tuple[str, str]]:
        """Name of the pod, and of the other one."""
        notes = self.notes(EventReason.UNITS_HELD_TWICE)
        return [(name, note.split()[1].removeprefix("default/")) for name, note in notes]


def a_sink(reported: Reported) -> PodSink:
    return PodSink(some_allocation_state(devices=some_devices(4)), lambda: at(0), reported)


def test_a_pod_that_was_bound_past_us_is_told_once():
    sink = a_sink(reported := Reported())
    stray = a_bound_pod("stray", units=2)
    with capture_logs() as logs:
        sink.upsert(a_pod_facts("stray", 2))
        sink.upsert(stray)
        sink.upsert(stray)
        sink.replace_all([stray])
    assert reported.unaccounted == [("stray", f"2 units of {WHOLE}")]
    (line,) = [log for log in logs if log["log_level"] == "warning"]
    assert (line["event"], line["pod"], line["node"], line["units"]) == (
        "pod runs on unknown devices",
        "default/stray",
        "n1",
        2,
    )


def test_a_pod_found_so_at_the_start_is_told_too():
    sink = a_sink(reported := Reported())
    sink.replace_all([a_bound_pod("stray"), a_bound_pod("ours", "GPU-n1-0")])
    assert reported.unaccounted == [("stray", f"1 unit of {WHOLE}")]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_finalizers_keep_with_its_units_is_told_once(phase: str):
    status = {"phase": phase, "containerStatuses": [{"state": {"running": {}}}]}
    pod = stored_pod("kept", assigned={"main": ("GPU-n1-0",)})
    replaced = msgspec.structs.replace
    kept = replaced(
        pod,
        status=msgspec.convert(status, type(pod.status)),
        metadata=replaced(
            pod.metadata,
            deletion_timestamp="2026-01-01T00:00:00Z",
            finalizers=["workflows.argoproj.io/status"],
        ),
    )
    sink = a_sink(reported := Reported())
    for facts in map(pod_facts, (pod, kept, kept)):
        assert facts is not None
        sink.upsert(facts)
    ((name, note),) = reported.notes(EventReason.UNITS_KEPT)
    assert name == "kept"
    assert "workflows.argoproj.io/status" in note
    ended = pod_facts(replaced(kept, status=replaced(kept.status, container_statuses=[])))
    assert ended is not None
    assert (ended.phase, ended.finalizers) == (PodPhase.ENDED, ())


def test_pods_with_their_devices_and_ended_ones_are_not_told():
    sink = a_sink(reported := Reported())
    sink.upsert(a_bound_pod("ours", "GPU-n1-0"))
    sink.upsert(a_bound_pod("over", phase=PodPhase.ENDED))
    assert reported.unaccounted == []


def test_the_warning_is_on_the_pod_and_only_from_the_leader():
    sink = a_sink(reported := Reported())
    reported.is_muted = True
    sink.upsert(a_bound_pod("seen-by-a-standby"))
    assert reported.events == []
    reported.is_muted = False
    sink.upsert(a_bound_pod("stray"))
    (event,) = reported.events
    assert (event.type, event.reason) == ("Warning", "GPUPodUnaccounted")
    about = event.regarding
    assert (about.kind, about.namespace, about.name, about.uid) == (
        "Pod",
        "default",
        "stray",
        "uid-stray",
    )
    assert event.note == (
        "devices for 1 unit of gpu.deckhouse.io/whole are unknown because the pod was not bound by"
        " gpu-control-plane; node n1 accepts no pods of this resource until it terminates"
    )


def test_a_pod_that_names_several_pools_is_told_for_each():
    sink = a_sink(reported := Reported())
    other = "gpu.deckhouse.io/other"
    sink.upsert(a_bound_pod("stray", inadmissible_units=((other, 1), (WHOLE, 3))))
    assert reported.unaccounted == [
        ("stray", f"1 unit of {other}"),
        ("stray", f"3 units of {WHOLE}"),
    ]


def test_two_pods_with_one_unit_are_told_once_on_each():
    sink = a_sink(reported := Reported())
    ours, thief = a_bound_pod("ours", "GPU-n1-0"), a_bound_pod("thief", "GPU-n1-0", node="n2")
    with capture_logs() as logs:
        sink.upsert(ours)
        sink.upsert(thief)
        sink.replace_all([thief, ours])
    assert reported.shared == [("thief", "ours"), ("ours", "thief")]
    (line,) = [log for log in logs if log["log_level"] == "error"]
    assert (line["pod"], line["other"]) == ("default/thief", "default/ours")


def test_a_unit_that_a_bound_pod_takes_later_is_told_too():
    sink = a_sink(reported := Reported())
    sink.upsert(a_bound_pod("a", "GPU-n1-0"))
    sink.upsert(a_bound_pod("b", "GPU-n1-1"))
    sink.upsert(a_bound_pod("b", "GPU-n1-0"))
    assert reported.shared == [("b", "a"), ("a", "b")]


@pytest.mark.parametrize("turned", [False, True], ids=["one way", "the other way"])
def test_a_list_that_shows_the_end_of_one_pod_and_the_next_on_its_unit_tells_of_no_double(turned):
    """A watch that was away shows both at once, in the order of their names."""
    sink = a_sink(reported := Reported())
    first, second = a_bound_pod("first", "GPU-n1-0"), a_bound_pod("second", "GPU-n1-0")
    sink.upsert(first)
    listed = [replace(first, phase=PodPhase.ENDED), second]
    sink.replace_all(listed[::-1] if turned else listed)
    assert reported.shared == []


def test_the_warning_of_a_double_names_the_other_pod_and_the_units():
    sink = a_sink(reported := Reported())
    sink.upsert(a_bound_pod("ours", "GPU-n1-1", "GPU-n1-0"))
    sink.upsert(a_bound_pod("thief", "GPU-n1-1", "GPU-n1-0"))
    assert reported.notes(EventReason.UNITS_HELD_TWICE)[0] == (
        "thief",
        "pod default/ours on node n1 has the same units: GPU-n1-0, GPU-n1-1; they stay in use until"
        " both pods are gone: delete one of them",
    )


def test_a_pod_that_comes_back_from_its_user_s_end_is_told_beside_its_successor():
    sink = a_sink(reported := Reported())
    sink.upsert(a_bound_pod("victim", "GPU-n1-0"))
    sink.upsert(a_bound_pod("victim", "GPU-n1-0", phase=PodPhase.ENDED))
    sink.upsert(a_bound_pod("thief", "GPU-n1-0"))
    assert reported.shared == []
    sink.upsert(a_bound_pod("victim", "GPU-n1-0"))
    sink.upsert(a_bound_pod("victim", "GPU-n1-0"))
    assert reported.shared == [("victim", "thief"), ("thief", "victim")]


NESTED = '{"id":"x","pool":"whole","x":' + "[" * 20_000 + "]" * 20_000 + "}"


def test_a_bound_pod_whose_annotations_are_nonsense_closes_its_node():
    pod = stored_pod()
    texts = {RESERVATION_ANNOTATION: NESTED, DEVICES_ANNOTATION: NESTED}
    odd = msgspec.structs.replace(pod.metadata, annotations=texts)
    facts = pod_facts(msgspec.structs.replace(pod, metadata=odd))
    assert facts is not None
    reported = Reported()
    allocation_state = some_allocation_state(devices=some_devices(4))
    PodSink(allocation_state, lambda: at(0), reported).upsert(facts)
    assert reported.unaccounted == [("p", f"1 unit of {WHOLE}")]
    assert allocation_state.index.state(PoolName("whole")).capacity().available == 0


@pytest.mark.parametrize("units", [1, 3])
def test_a_bound_pod_that_the_projection_does_not_understand_closes_its_node(units: int):
    pod = stored_pod(main={"main": units})
    odd = msgspec.structs.replace(pod.metadata, annotations={RESERVATION_ANNOTATION: 5})
    facts = pod_facts(msgspec.structs.replace(pod, metadata=odd))
    assert facts is not None
    assert (facts.uid, facts.node, facts.phase) == ("uid-p", "n1", PodPhase.BOUND)
    assert facts.inadmissible_units == ((WHOLE, 1),)
    allocation_state = some_allocation_state(devices=some_devices(4))
    PodSink(allocation_state, lambda: at(0)).upsert(facts)
    assert allocation_state.index.state(PoolName("whole")).capacity().available == 0


def test_a_pending_pod_that_the_projection_does_not_understand_is_nothing_at_all():
    pod = stored_pod()
    odd = msgspec.structs.replace(pod.metadata, annotations={RESERVATION_ANNOTATION: 5})
    spec = msgspec.structs.replace(pod.spec, node_name="")
    with pytest.raises(TypeError):
        pod_facts(msgspec.structs.replace(pod, metadata=odd, spec=spec))
