"""Each change of a request counts once."""

from typing import Any

from api.names import PoolName
from reconciler.scaling.record import count_changes
from telemetry.metrics import REGISTRY
from tests.support.scale_requests import (
    RequestHistory,
    a_claim,
    a_requested_node,
    a_signal,
    true_since,
)

NAME = PoolName("counted")
REGISTERED = a_claim(launched=true_since(5), registered=true_since(60), node="n1")


class Counted:
    """Looks at a pool, and what they added to the metrics of a pool of another name."""

    def __init__(self) -> None:
        self.readings = RequestHistory()
        self._before = self._all()

    def observe(self, at_s: float, **objects: Any) -> None:
        recorded = self.readings.recorded
        observed = self.readings.observe(at_s, **objects)
        count_changes(NAME, observed, recorded)
        count_changes(NAME, observed, self.readings.recorded)  # a look that changes nothing

    def grown(self) -> dict[str, float]:
        found = self._all()
        return {
            key: found[key] - self._before.get(key, 0)
            for key in found
            if found[key] != self._before.get(key, 0)
        }

    def _all(self) -> dict[str, float]:
        results = {
            result: REGISTRY.get_sample_value(
                "gpu_scale_requests_total", {"pool": NAME, "result": result}
            )
            for result in ("ready", "failed", "cancelled")
        }
        provision = "gpu_nodeclaim_provision_duration_seconds"
        results["count"] = REGISTRY.get_sample_value(f"{provision}_count", {"pool": NAME})
        results["seconds"] = REGISTRY.get_sample_value(f"{provision}_sum", {"pool": NAME})
        return {key: value or 0 for key, value in results.items()}


def test_a_node_that_came_is_one_result_and_the_time_since_its_signal():
    counted = Counted()
    signals = [a_signal()]
    counted.observe(0, signals=signals)
    counted.observe(2, signals=signals, claims=[a_claim()])
    counted.observe(61, signals=signals, claims=[REGISTERED], nodes=[a_requested_node()])
    counted.observe(90, signals=signals, claims=[REGISTERED], nodes=[a_requested_node(units=8)])
    counted.observe(95, claims=[REGISTERED], nodes=[a_requested_node(units=8)])
    ordinary = a_requested_node(units=8, has_startup_taint=False)
    counted.observe(96, claims=[REGISTERED], nodes=[ordinary])
    assert counted.grown() == {"ready": 1, "count": 1, "seconds": 90}


def test_a_failure_is_one_result():
    counted = Counted()
    counted.observe(1, signals=[a_signal()], claims=[a_claim()])
    counted.observe(3, signals=[a_signal()], deleted=[a_claim()])
    counted.observe(5, signals=[a_signal()])
    counted.observe(7)
    assert counted.grown() == {"failed": 1}


def test_a_signal_that_was_withdrawn_is_one_result():
    counted = Counted()
    counted.observe(1, signals=[a_signal()])
    counted.observe(3)
    counted.observe(5)
    assert counted.grown() == {"cancelled": 1}
