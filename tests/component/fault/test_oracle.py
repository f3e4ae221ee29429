"""The oracle finds what is planted, and nothing else."""

import json

import pytest

from tests.fault.observations import Device, Node, Observation, Pod, Pool
from tests.fault.oracle import Oracle
from tests.fault.upgrades.upgrade_oracle import LATENESS_S


class ReportedCluster:
    """Feeds an oracle observations, a second apart, and keeps the violations."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self.violations: list[str] = []
        self.at = 0.0
        self.observe(Pool(name="a", reported=_figures(total=2, available=2)))
        self.observe(Node(name="n", offers={"a": 2}))
        for number in (0, 1):
            self.observe(a_device(number))

    def observe(self, subject, *, is_gone: bool = False, after: float = 1.0) -> None:
        self.at += after
        observation = Observation(
            at=self.at, version=round(self.at), is_gone=is_gone, subject=subject
        )
        self.violations += [violation.rule for violation in self.oracle.observe(observation)]

    def expectations(self) -> list[str]:
        return [violation.rule for violation in self.oracle.expectations()]


def _figures(**figures: int) -> dict[str, int]:
    return dict.fromkeys(("total", "reserved", "used", "available", "unhealthy"), 0) | figures


def a_device(number: int, **changes) -> Device:
    given = {"node": "n", "uuid": f"GPU-{number}", "pool": "a", "reported": (1, 0, 0)} | changes
    return Device(name=f"n-{number}", **{"assigned": given["pool"], **given})


def a_pod(name: str, devices=None, **changes) -> Pod:
    given = {"uid": f"uid-of-{name}", "pool": "a", "asked": {"c": 1}} | changes
    if devices is not None:
        given |= {"node": changes.get("node", "n"), "devices": json.dumps(devices)}
    return Pod(name=name, **given)


BOUND_TWICE = "no unit is given to two live pods"
WRONGLY_BOUND = "a pod is bound with what it asked for"
ELSEWHERE = "a unit is of a device of the pod's node and pool"
WAITS = "every pod that fits is bound in the end"
WRONG_POOL = "a pool's status shows what is"
WRONG_DEVICE = "a device's status shows what is"


@pytest.fixture
def cluster() -> ReportedCluster:
    return ReportedCluster()


def test_nothing_is_wrong_with_two_pods_on_two_devices(cluster):
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}))
    cluster.observe(a_pod("q", {"c": ["GPU-1"]}))
    for number in (0, 1):
        cluster.observe(a_device(number, reported=(1, 0, 1)))
    cluster.observe(Pool(name="a", reported=_figures(total=2, used=2)))
    assert (cluster.violations, cluster.expectations()) == ([], [])


def test_unit_of_two_live_pods_is_found(cluster):
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}))
    cluster.observe(a_pod("q", {"c": ["GPU-0"]}))
    assert cluster.violations == [BOUND_TWICE]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_unit_of_a_pod_that_ended_may_be_given_again(cluster, phase):
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}))
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}, phase=phase))
    cluster.observe(a_pod("q", {"c": ["GPU-0"]}))
    assert cluster.violations == []


def test_unit_of_a_pod_that_is_gone_may_be_given_again(cluster):
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}))
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}), is_gone=True)
    cluster.observe(a_pod("q", {"c": ["GPU-0"]}))
    assert cluster.violations == []


def test_unit_of_a_pod_that_is_only_being_deleted_is_still_its_own(cluster):
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}))
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}, is_deleted=True))
    cluster.observe(a_pod("q", {"c": ["GPU-0"]}))
    assert cluster.violations == [BOUND_TWICE]


def test_two_booking_that_ended_before_the_end_is_found_all_the_same(cluster):
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}))
    cluster.observe(a_pod("q", {"c": ["GPU-0"]}))
    cluster.observe(a_pod("q", {"c": ["GPU-0"]}), is_gone=True)
    assert cluster.violations == [BOUND_TWICE]


@pytest.mark.parametrize(
    ("devices", "asked"),
    [
        pytest.param("", {"c": 1}, id="none"),
        pytest.param('{"c": [', {"c": 1}, id="broken"),
        pytest.param('{"c": ["GPU-0"]}', {"c": 2}, id="too few"),
        pytest.param('{"c": ["GPU-0", "GPU-1"]}', {"c": 1}, id="too many"),
        pytest.param('{"d": ["GPU-0"]}', {"c": 1}, id="of another container"),
        pytest.param('{"c": ["GPU-0", "GPU-0"]}', {"c": 2}, id="one twice"),
        pytest.param('{"c": ["GPU-0"], "d": ["GPU-0"]}', {"c": 1, "d": 1}, id="shared"),
    ],
)
def test_devices_that_are_not_what_was_asked_for_are_found(cluster, devices, asked):
    cluster.observe(a_pod("p", node="n", devices=None, asked=asked))
    cluster.violations.clear()
    cluster.observe(Pod(name="q", uid="q", pool="a", asked=asked, node="n", devices=devices))
    assert WRONGLY_BOUND in cluster.violations


def test_init_container_may_have_the_unit_of_the_main_one(cluster):
    devices = {"i": ["GPU-0"], "c": ["GPU-0"]}
    cluster.observe(a_pod("p", devices, asked_first={"i": 1}))
    assert cluster.violations == []


def test_devices_of_a_bound_pod_that_change_are_found(cluster):
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}))
    cluster.observe(a_pod("p", {"c": ["GPU-1"]}))
    assert "a bound pod keeps its devices" in cluster.violations


def test_unit_of_another_node_is_found(cluster):
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}, node="m"))
    assert cluster.violations == [ELSEWHERE]


def test_unit_of_another_pool_is_found(cluster):
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}, pool="b"))
    assert cluster.violations == [ELSEWHERE]


def test_unit_that_left_a_moment_ago_may_be_given_and_later_not(cluster):
    cluster.observe(a_device(0, uuid="GPU-9"))
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}))
    assert cluster.violations == []
    cluster.observe(a_device(1, uuid="GPU-8"))
    cluster.observe(a_pod("q", {"c": ["GPU-1"]}), after=LATENESS_S + 1)
    assert cluster.violations == [ELSEWHERE]


def test_pod_that_fits_and_waits_is_found(cluster):
    cluster.observe(a_pod("p"))
    assert cluster.expectations() == [WAITS]


@pytest.mark.parametrize(
    "obstacle",
    [
        pytest.param([a_pod("p", asked={"c": 3})], id="asks for more than a node has"),
        pytest.param([a_pod("p", is_gated=True)], id="gated"),
        pytest.param([a_pod("p", is_deleted=True)], id="being deleted"),
        pytest.param([a_pod("p"), Node(name="n", offers={"a": 0})], id="kubelet offers none"),
        pytest.param([a_pod("p", pool="b")], id="no such pool"),
    ],
)
def test_pod_that_does_not_fit_may_wait(cluster, obstacle):
    for item in obstacle:
        cluster.observe(item)
    assert WAITS not in cluster.expectations()


def test_device_that_is_meant_for_another_pool_is_no_place_for_a_pod(cluster):
    cluster.observe(a_pod("p"))
    assert WAITS in cluster.expectations()
    for number in (0, 1):
        cluster.observe(a_device(number, assigned="b"))
    assert WAITS not in cluster.expectations()


def test_pod_that_fits_no_usable_device_may_wait(cluster):
    cluster.observe(a_pod("p"))
    cluster.observe(a_device(0, is_faulty=True))
    cluster.observe(a_device(1, is_faulty=True))
    assert WAITS not in cluster.expectations()
    cluster.observe(a_device(1))
    assert WAITS in cluster.expectations()
    cluster.observe(Node(name="n", is_open=False, offers={"a": 2}))
    assert WAITS not in cluster.expectations()


@pytest.mark.parametrize("figure", ["total", "reserved", "used", "available", "unhealthy"])
def test_figure_of_a_pool_that_is_not_what_is_counted_is_found(cluster, figure):
    reported = _figures(total=2, available=2)
    cluster.observe(Pool(name="a", reported=reported | {figure: reported[figure] + 1}))
    assert cluster.expectations() == [WRONG_POOL]


def test_free_units_of_unusable_devices_are_counted_as_unhealthy(cluster):
    cluster.observe(a_device(0, is_faulty=True))
    cluster.observe(Pool(name="a", reported=_figures(total=2, available=1, unhealthy=1)))
    assert cluster.expectations() == []


@pytest.mark.parametrize("reported", [(0, 0, 0), (1, 1, 0), (1, 0, 1)])
def test_units_of_a_device_that_are_not_what_is_counted_are_found(cluster, reported):
    cluster.observe(a_device(0, reported=reported))
    assert cluster.expectations() == [WRONG_DEVICE]


def test_device_cut_again_under_a_pod_counts_as_taken_whole():
    cluster = ReportedCluster()
    cluster.observe(a_pod("p", {"c": ["GPU-0"]}))
    cluster.observe(Pool(name="a", slices=4, reported=_figures(total=8, used=4, available=4)))
    cluster.observe(a_device(0, reported=(4, 0, 4)))
    cluster.observe(a_device(1, reported=(4, 0, 0)))
    assert cluster.expectations() == []
