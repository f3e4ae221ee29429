"""Pods on devices that nobody knows: told once, on the pod, by the replica that leads."""

from dataclasses import dataclass, field

from structlog.testing import capture_logs

from kube.events import Event
from pool.catalog import Catalog
from pool.model import PodFacts, PodPhase
from reconciler.pods import PodFeed
from server.announcing import ReservationEvents
from tests.support.books import a_bound_pod, cards, some_books
from tests.support.builders import a_pod_facts, at


@dataclass
class Told:
    """What the feed told, and what the recorder was given."""

    pods: list[tuple[str, int]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __call__(self, pod: PodFacts, units: int) -> None:
        self.pods.append((pod.name, units))

    def emit(self, event: Event) -> None:
        self.events.append(event)


def a_feed(told: Told) -> PodFeed:
    return PodFeed(some_books(devices=cards(4)), lambda: at(0), told)


def test_a_pod_that_was_bound_past_us_is_told_once():
    feed = a_feed(told := Told())
    stray = a_bound_pod("stray", units=2)
    with capture_logs() as logs:
        feed.upsert(a_pod_facts("stray", 2))
        feed.upsert(stray)
        feed.upsert(stray)
        feed.replace_all([stray])
    assert told.pods == [("stray", 2)]
    (line,) = [log for log in logs if log["log_level"] == "warning"]
    assert (line["event"], line["pod"], line["node"], line["units"]) == (
        "pod runs on devices that nobody knows",
        "default/stray",
        "n1",
        2,
    )


def test_a_pod_found_so_at_the_start_is_told_too():
    feed = a_feed(told := Told())
    feed.replace_all([a_bound_pod("stray"), a_bound_pod("ours", "GPU-n1-0")])
    assert told.pods == [("stray", 1)]


def test_pods_with_their_devices_and_ended_ones_are_not_told():
    feed = a_feed(told := Told())
    feed.upsert(a_bound_pod("ours", "GPU-n1-0"))
    feed.upsert(a_bound_pod("over", phase=PodPhase.ENDED))
    assert told.pods == []


def test_the_warning_is_on_the_pod_and_only_from_the_leader():
    recorder = Told()
    announcing = ReservationEvents(recorder, Catalog())  # type: ignore[arg-type]  # its one method
    announcing.warn_unaccounted(a_bound_pod("stray"), 1)
    assert recorder.events == []
    announcing.is_leading = True
    announcing.warn_unaccounted(a_bound_pod("stray"), 1)
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
