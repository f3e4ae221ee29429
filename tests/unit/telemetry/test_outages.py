"""An API server that is away: one line at once, one in ten seconds, and none of another fact is lost."""

import kube.errors
from telemetry.logs import OUTAGE_CAUSES, OUTAGE_EVENT, OUTAGE_EVERY_S, Outages


def a_record(cause: str = "Unreachable", event: str = "list or watch failed", **more: object):
    return {"event": event, "cause": cause, "error": "refused", **more}


def test_the_first_record_becomes_the_line():
    assert Outages().summary(a_record(resource="pods", retry_in_s=0.3), 0.0) == {
        "event": OUTAGE_EVENT,
        "cause": "Unreachable",
        "error": "refused",
        "during": "list or watch failed",
    }


def test_those_of_the_next_ten_seconds_are_counted():
    outages = Outages()
    lines = [outages.summary(a_record(event=f"task {number}"), number) for number in range(25)]
    reported = {number: line for number, line in enumerate(lines) if line is not None}
    assert list(reported) == [0, 10, 20]
    assert "left_out" not in reported[0]
    assert [reported[at]["left_out"] for at in (10, 20)] == [9, 9]
    assert reported[20]["during"] == "task 20"


def test_each_cause_is_counted_by_itself():
    outages = Outages()
    assert outages.summary(a_record("Unreachable"), 0.0)
    assert outages.summary(a_record("TimedOut"), 0.0)
    assert not outages.summary(a_record("TimedOut"), OUTAGE_EVERY_S - 0.1)


def test_an_outage_after_a_quiet_time_is_told_at_once():
    outages = Outages()
    outages.summary(a_record(), 0.0)
    line = outages.summary(a_record(), 3600.0)
    assert line is not None
    assert line["left_out"] == 0


def test_refusals_are_lines_of_their_own():
    outages = Outages()
    record = a_record("Forbidden", resource="pods")
    assert [outages.summary(record, 0.0) for _ in range(3)] == [record] * 3


def test_the_causes_are_errors_of_the_client():
    for cause in OUTAGE_CAUSES:
        assert issubclass(getattr(kube.errors, cause), kube.errors.Unreachable)
