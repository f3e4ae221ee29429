"""Reservations as pods' annotations show them."""

import datetime as dt
import json

from api.names import RESERVATION_ANNOTATION
from tests.support import cluster_objects
from tests.support.console_feed import NOW, ConsoleFeed
from tests.support.plugin_cluster import CREATED, labelled


def a_pod(*, id_: str | None = None, number: int = 0, for_s: float = 60) -> cluster_objects.Object:
    pod = labelled(cluster_objects.a_pod_object("a", 1), pool="whole")
    if id_ is not None:
        note = {
            "id": id_,
            "pool": "whole",
            "node": "n1",
            "devices": {"main": [cluster_objects.uuid_of("n1", number)]},
            "expiresAt": (NOW + dt.timedelta(seconds=for_s)).isoformat(),
        }
        pod["metadata"]["annotations"] = {RESERVATION_ANNOTATION: json.dumps(note)}
    return pod


def reservations(feed: ConsoleFeed) -> dict[str, tuple[str, str]]:
    feed.flush()
    rows = feed.section("reservations")
    holders = {
        name: row.holders for name, row in feed.section("devices").items() if row.look == "reserved"
    }
    assert all(holder == ("ml-team/a",) for holder in holders.values())
    return {
        key: (device, row.expires) for (key, row), device in zip(rows.items(), holders, strict=True)
    }


def test_a_reservation_that_is_noted_later_is_known():
    feed = ConsoleFeed([*cluster_objects.two_nodes(), a_pod()])
    assert reservations(feed) == {}
    feed.put(a_pod(id_="r1"))
    assert reservations(feed) == {"r1": ("n1-0", "2026-11-23T23:01:00Z")}
    assert not feed.section("waiting")


def test_a_reservation_that_is_extended_ends_later():
    feed = ConsoleFeed([*cluster_objects.two_nodes(), a_pod(id_="r1")])
    feed.clock.passed_s += 50
    feed.put(a_pod(id_="r1", for_s=100))
    assert reservations(feed) == {"r1": ("n1-0", "2026-11-23T23:01:40Z")}
    feed.clock.passed_s += 30
    assert set(reservations(feed)) == {"r1"}
    assert not feed.section("ended")


def test_another_reservation_of_a_pod_takes_the_place_of_the_first():
    feed = ConsoleFeed([*cluster_objects.two_nodes(), a_pod(id_="r1")])
    feed.put(a_pod(id_="r2", number=1))
    assert reservations(feed) == {"r2": ("n1-1", "2026-11-23T23:01:00Z")}
    assert feed.section("ended")["r1"].end == "released"


def test_a_reservation_whose_note_is_removed_is_gone():
    feed = ConsoleFeed([*cluster_objects.two_nodes(), a_pod(id_="r1")])
    feed.put(a_pod())
    assert reservations(feed) == {}
    assert set(feed.section("waiting")) == {"ml-team/a"}


def test_a_reservation_that_had_expired_is_known_again_once_it_is_renewed():
    feed = ConsoleFeed([*cluster_objects.two_nodes(), a_pod(id_="r1")])
    feed.clock.passed_s += 70
    assert reservations(feed) == {}
    feed.put(a_pod(id_="r1", for_s=100))
    assert set(reservations(feed)) == {"r1"}


def test_an_event_that_repeats_what_is_known_changes_nothing():
    feed = ConsoleFeed([*cluster_objects.two_nodes(), a_pod(id_="r1")])
    feed.put(a_pod(id_="r1"))
    assert not feed.rows.is_behind
    assert set(reservations(feed)) == {"r1"}
    assert not feed.section("ended")


def test_reservations_of_a_pool_that_is_being_deleted_are_released():
    feed = ConsoleFeed([*cluster_objects.two_nodes(), a_pod(id_="r1")])
    pool = cluster_objects.a_pool_object()
    pool["metadata"]["deletionTimestamp"] = CREATED
    feed.put(pool)
    assert reservations(feed) == {}
    assert feed.section("ended")["r1"].end == "released"


def test_reservations_on_a_node_that_is_gone_are_released():
    feed = ConsoleFeed([*cluster_objects.two_nodes(), a_pod(id_="r1")])
    feed.remove(cluster_objects.a_node_object("n1"))
    assert reservations(feed) == {}
    assert set(feed.section("waiting")) == {"ml-team/a"}


def test_a_list_takes_over_what_the_watch_missed():
    feed = ConsoleFeed([*cluster_objects.two_nodes(), a_pod(id_="r1")])
    feed.list_pods([])
    assert reservations(feed) == {}
    feed.list_pods([a_pod(id_="r2", number=2)])
    assert set(reservations(feed)) == {"r2"}
