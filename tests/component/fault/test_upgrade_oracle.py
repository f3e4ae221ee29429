"""The oracle sees each of its rules about upgrades broken, and finds nothing where none is."""

import dataclasses

import pytest

from tests.fault.observations import Node, Observation, Pod, thing_of
from tests.fault.oracle import Oracle
from tests.fault.upgrades import upgrade_oracle
from tests.fault.upgrades.upgrade_observations import (
    CORDONED,
    DEVICE_LABEL,
    DONE,
    FAILED,
    GUARDED,
    REQUIRED,
    UNCORDONED,
    DriverPod,
    DriverSet,
    Policy,
    UpgradeMarks,
)

RULES = frozenset(
    {
        upgrade_oracle.BOUND_TO_WITHHELD,
        upgrade_oracle.DRIVER_TAKEN_AWAY,
        upgrade_oracle.DRIVERS_DELETED,
        upgrade_oracle.GIVEN_BACK_EARLY,
        upgrade_oracle.PAST_A_BUDGET,
        upgrade_oracle.TOO_MANY_AT_ONCE,
        upgrade_oracle.TOO_MANY_AWAY,
        upgrade_oracle.UNCORDONED_BY_US,
        upgrade_oracle.UPGRADES_END,
    }
)
LATER = upgrade_oracle.LATENESS_S + 1
POLICY = Policy(name="p", version="580.2", max_parallel=0, max_unavailable="50%")
DRIVERS = DriverSet(name="nvidia-driver", owner="p")
IN_SERVICE = UpgradeMarks(state=DONE)
CHOSEN = UpgradeMarks(state="cordon-required", is_withheld=True)
EMPTIED = UpgradeMarks(state="pod-restart-required", is_withheld=True, is_cordoned=True)


class Story:
    """Shows an oracle what happens, each sight a second and a version after the one before."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self.seen: list[str] = []
        self.at = 0.0
        self.show(POLICY)
        for name in "abcd":
            self.mark(name, IN_SERVICE)
            self.drive(name)
        self.at += LATER

    def show(self, thing, *, after: float = 1.0, is_gone: bool = False, is_exact: bool = True):
        self.at += after
        observation = Observation(
            at=self.at, version=round(self.at), is_gone=is_gone, thing=thing, is_exact=is_exact
        )
        self.seen += [item.rule for item in self.oracle.see(observation) if item.rule in RULES]

    def mark(self, name: str, marks: UpgradeMarks, **how) -> None:
        self.show(Node(name=name, upgrade=marks), **how)

    def drive(self, name: str, version: str = "580.2", **how) -> None:
        self.show(a_driver(name, version), **how)

    def take_driver(self, name: str, **how) -> None:
        self.show(dataclasses.replace(a_driver(name), is_deleted=True), **how)

    def in_the_end(self) -> list[str]:
        return [
            expectation.rule
            for expectation in self.oracle.expectations()
            if expectation.rule in RULES
        ]

    def unfinished(self, *, may_have_failed: bool = False) -> list[str]:
        found = self.oracle.unfinished_upgrades(may_have_failed=may_have_failed)
        return [item.rule for item in found]


def a_driver(node: str, version: str = "580.2") -> DriverPod:
    return DriverPod(name=f"driver-{node}", uid=f"uid-{node}", node=node, version=version)


def a_pod(node: str = "a", **changes) -> Pod:
    given = {"name": "p", "uid": "u", "pool": "pool", "asked": {"c": 1}, "phase": "Running"}
    return Pod(node=node, **(given | changes))


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.mark.parametrize("is_gone", [False, True])
def test_daemon_set_that_is_deleted_beside_its_policy_is_found(story, is_gone):
    story.show(DRIVERS)
    assert story.seen == []
    story.show(dataclasses.replace(DRIVERS, is_deleted=not is_gone), is_gone=is_gone)
    assert story.seen == [upgrade_oracle.DRIVERS_DELETED]


def test_daemon_set_that_goes_with_its_policy_is_all_right(story):
    story.show(DRIVERS)
    story.show(POLICY, is_gone=True)
    story.show(DRIVERS, is_gone=True)
    assert story.seen == []


@pytest.mark.parametrize("lateness", [0.0, LATER])
def test_node_that_is_given_back_long_after_its_driver_was_ready_is_found(story, lateness):
    unready = dataclasses.replace(a_driver("a"), is_ready=False)
    story.show(unready)
    story.mark("a", EMPTIED, after=lateness)
    story.mark("a", IN_SERVICE)
    assert story.in_the_end() == ([upgrade_oracle.GIVEN_BACK_EARLY] if lateness else [])


def test_node_that_is_seen_to_be_given_back_before_its_driver_is_seen_ready_is_all_right(story):
    story.show(dataclasses.replace(a_driver("a"), is_ready=False))
    story.mark("a", EMPTIED, after=LATER)
    story.at += 5
    story.mark("a", IN_SERVICE)
    assert story.in_the_end() == [upgrade_oracle.GIVEN_BACK_EARLY]
    story.show(a_driver("a"), after=-3)
    assert story.in_the_end() == []


def test_upgrade_of_one_node_after_the_other_is_all_right(story):
    for name in "abcd":
        for marks in (CHOSEN, dataclasses.replace(CHOSEN, is_cordoned=True), EMPTIED):
            story.mark(name, marks)
        story.take_driver(name)
        story.show(a_driver(name), is_gone=True)
        story.show(dataclasses.replace(a_driver(name), uid=f"new-{name}"))
        story.mark(name, dataclasses.replace(EMPTIED, state="uncordon-required"))
        story.mark(name, IN_SERVICE)
    assert (story.seen, story.in_the_end(), story.unfinished()) == ([], [], [])
    upgrades = story.oracle.upgrades
    assert (upgrades.begun, upgrades.most_away) == (4, 1)


# --- how many ----------------------------------------------------------------------------------------


def test_node_more_than_may_be_away_is_found(story):
    for name in "ab":
        story.mark(name, CHOSEN)
    assert story.seen == []
    story.mark("c", CHOSEN)
    assert story.seen == [upgrade_oracle.TOO_MANY_AWAY]
    assert story.oracle.upgrades.most_away == 3


@pytest.mark.parametrize(
    "closed",
    [
        pytest.param(UpgradeMarks(state=DONE, is_ready=False), id="not ready"),
        pytest.param(UpgradeMarks(state=DONE, is_cordoned=True, admin=CORDONED), id="cordoned"),
        pytest.param(UpgradeMarks(state=FAILED, is_cordoned=True), id="failed and cordoned"),
    ],
)
def test_node_that_is_away_for_long_counts_whatever_the_cause(story, closed):
    story.mark("a", closed)
    story.mark("b", CHOSEN, after=LATER)
    assert story.seen == []
    story.mark("c", CHOSEN)
    assert story.seen == [upgrade_oracle.TOO_MANY_AWAY]


def test_node_that_was_away_already_may_be_upgraded_all_the_same(story):
    cordoned = UpgradeMarks(state=DONE, is_cordoned=True, admin=CORDONED)
    for name in "abc":
        story.mark(name, cordoned)
    for name in "abc":
        story.mark(name, dataclasses.replace(cordoned, state="cordon-required"), after=LATER)
    assert story.seen == []


def test_node_that_was_away_a_moment_ago_may_be_taken_to_be_away_until_the_server_has_seen_it(
    story,
):
    for is_recorded in (False, True):
        story.mark("c", UpgradeMarks(state=DONE, is_ready=False))
        story.mark("c", IN_SERVICE)
        if is_recorded:
            story.oracle.upgrades.set_observed_until(story.at + 0.5)
        for name in "abc":
            story.mark(name, CHOSEN)
        assert story.seen == ([upgrade_oracle.TOO_MANY_AWAY] if is_recorded else [])
        for name in "abc":
            story.mark(name, IN_SERVICE)


def test_limit_that_was_lowered_a_moment_ago_may_not_be_known_yet(story):
    story.mark("a", CHOSEN)
    story.show(dataclasses.replace(POLICY, max_unavailable=1))
    story.mark("b", CHOSEN)
    assert story.seen == []
    story.mark("b", IN_SERVICE)
    story.mark("b", CHOSEN, after=LATER)
    assert story.seen == [upgrade_oracle.TOO_MANY_AWAY]


def test_share_of_nodes_is_rounded_up():
    assert [Policy(name="p", max_unavailable="25%").most_away(total) for total in (4, 5)] == [1, 2]
    assert Policy(name="p", max_unavailable=3).most_away(4) == 3


def test_node_more_than_may_be_in_progress_is_found(story):
    story.show(dataclasses.replace(POLICY, max_parallel=1))
    story.mark("a", CHOSEN, after=LATER)
    story.mark("a", EMPTIED)
    assert story.seen == []
    story.mark("b", CHOSEN)
    assert story.seen == [upgrade_oracle.TOO_MANY_AT_ONCE]


def test_failed_node_takes_no_place_of_those_in_progress(story):
    story.show(dataclasses.replace(POLICY, max_parallel=1))
    story.mark("a", UpgradeMarks(state=FAILED, is_cordoned=True), after=LATER)
    story.mark("b", CHOSEN)
    assert story.seen == []


def test_order_that_a_gap_hides_is_not_judged(story):
    for name in "abc":
        story.mark(name, CHOSEN, is_exact=False)
    assert story.seen == []


# --- cordons, pods -----------------------------------------------------------------------------------


def test_node_that_an_admin_cordoned_and_that_is_uncordoned_by_another_is_found(story):
    story.mark("a", UpgradeMarks(state=DONE, is_cordoned=True, admin=CORDONED))
    story.mark("a", UpgradeMarks(state=DONE, admin=UNCORDONED))
    assert story.seen == []
    story.mark("a", UpgradeMarks(state=DONE, is_cordoned=True, admin=CORDONED))
    story.mark("a", UpgradeMarks(state=DONE, admin=CORDONED))
    assert story.seen == [upgrade_oracle.UNCORDONED_BY_US]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [upgrade_oracle.PAST_A_BUDGET], id="deleted by a client"),
        pytest.param({"disrupted": "EvictionByEvictionAPI"}, [], id="evicted"),
        pytest.param({"disrupted": "DeletionByPodGC"}, [], id="its node is gone"),
        pytest.param({"is_guarded": False}, [], id="without a budget"),
    ],
)
def test_guarded_pod_may_be_evicted_and_not_deleted(story, changes, expected):
    story.show(a_pod(is_guarded=True))
    story.show(a_pod(**({"is_guarded": True, "is_deleted": True} | changes)))
    assert story.seen == expected


def test_guarded_pods_may_go_once_the_run_ends_them(story):
    story.show(a_pod(is_guarded=True))
    story.oracle.upgrades.release_guards()
    story.show(a_pod(is_guarded=True, is_deleted=True))
    story.show(a_pod(is_guarded=True), is_gone=True)
    assert story.seen == []


def test_pod_that_is_bound_to_a_node_withheld_for_long_is_found(story):
    story.mark("a", CHOSEN)
    story.show(a_pod())
    assert story.seen == []
    story.show(a_pod(uid="v", name="q"), after=LATER)
    assert story.seen == [upgrade_oracle.BOUND_TO_WITHHELD]


# --- driver pods -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "marks",
    [
        pytest.param(IN_SERVICE, id="in service"),
        pytest.param(UpgradeMarks(state=REQUIRED), id="waiting for its turn"),
        pytest.param(dataclasses.replace(EMPTIED, state=FAILED), id="failed"),
        pytest.param(dataclasses.replace(EMPTIED, is_cordoned=False), id="not cordoned"),
    ],
)
def test_driver_that_is_taken_from_a_node_in_service_is_found(story, marks):
    story.mark("a", marks)
    story.take_driver("a", after=LATER)
    assert set(story.in_the_end()) == {upgrade_oracle.DRIVER_TAKEN_AWAY}


def test_driver_of_a_node_that_an_admin_uncordoned_in_the_middle_may_be_replaced(story):
    story.mark("a", dataclasses.replace(EMPTIED, is_cordoned=False, admin=UNCORDONED))
    story.take_driver("a", after=LATER)
    assert story.in_the_end() == []


def test_driver_that_is_taken_from_under_a_pod_is_found(story):
    story.show(a_pod())
    story.mark("a", EMPTIED)
    story.take_driver("a", after=LATER)
    assert story.in_the_end() == [upgrade_oracle.DRIVER_TAKEN_AWAY]


def test_pod_whose_end_is_seen_after_that_of_the_driver_is_judged_by_versions(story):
    story.show(a_pod())
    story.mark("a", EMPTIED)
    story.at += LATER
    deleted_at = story.at + 5
    for thing, version, is_gone in (
        (dataclasses.replace(a_driver("a"), is_deleted=True), deleted_at, False),
        (a_pod(), deleted_at - 1, True),
    ):
        observation = Observation(
            at=deleted_at, version=round(version), is_gone=is_gone, thing=thing
        )
        story.oracle.see(observation)
    assert story.in_the_end() == []


def test_driver_of_a_node_that_was_gone_before_a_restore_goes_when_the_node_comes_back():
    story = Story()
    story.oracle = story.oracle.restarted()
    story.show(POLICY)
    story.drive("a")
    story.mark("a", IN_SERVICE)
    story.take_driver("a")
    assert story.in_the_end() == []
    assert story.oracle.upgrades.begun == 0


def test_driver_of_a_node_that_was_created_again_goes_with_the_old_one(story):
    story.show(Node(name="a", upgrade=IN_SERVICE), is_gone=True)
    story.mark("a", UpgradeMarks())
    story.take_driver("a")
    assert story.in_the_end() == []


# --- in the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "marks",
    [
        pytest.param(UpgradeMarks(state=REQUIRED), id="waits"),
        pytest.param(EMPTIED, id="in progress"),
        pytest.param(UpgradeMarks(), id="not looked at"),
        pytest.param(UpgradeMarks(state=DONE, is_withheld=True), id="withheld"),
        pytest.param(UpgradeMarks(state=DONE, is_cordoned=True), id="cordoned"),
        pytest.param(UpgradeMarks(state=FAILED), id="failed and not named"),
    ],
)
def test_node_whose_upgrade_has_not_ended_is_found(story, marks):
    story.mark("a", marks)
    assert story.unfinished(may_have_failed=True) == [upgrade_oracle.UPGRADES_END]


def test_failed_node_is_named_and_ends_nothing_for_good(story):
    story.mark("a", UpgradeMarks(state=FAILED))
    story.show(dataclasses.replace(POLICY, upgrades={"a": FAILED}))
    assert story.unfinished(may_have_failed=True) == []
    assert story.unfinished() == [upgrade_oracle.UPGRADES_END]


def test_node_with_an_older_driver_is_found(story):
    story.drive("a", "580.1")
    assert story.unfinished() == [upgrade_oracle.UPGRADES_END]


def test_node_that_is_done_is_named_no_more(story):
    story.show(dataclasses.replace(POLICY, upgrades={"a": REQUIRED}))
    assert story.unfinished() == [upgrade_oracle.UPGRADES_END]


# --- read from JSON ----------------------------------------------------------------------------------


def test_marks_of_a_node_are_read():
    node = thing_of(
        "nodes",
        {
            "metadata": {
                "name": "a",
                "labels": {
                    DEVICE_LABEL: "true",
                    "nvidia.com/gpu-driver-upgrade-state": "drain-required",
                },
                "annotations": {
                    "gpu.deckhouse.io/units-withheld-by": "driver-upgrade",
                    "example.test/admin": CORDONED,
                },
            },
            "spec": {"unschedulable": True},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        },
    )
    assert isinstance(node, Node)
    assert not node.is_open
    assert node.upgrade == UpgradeMarks(
        state="drain-required", is_cordoned=True, is_withheld=True, admin=CORDONED
    )
    bare = thing_of("nodes", {"metadata": {"name": "b"}, "spec": {}})
    assert isinstance(bare, Node)
    assert bare.upgrade is None


def test_policy_driver_pod_and_guarded_pod_are_read():
    policy = {
        "metadata": {"name": "p"},
        "spec": {
            "driver": {
                "version": "580.2",
                "upgradePolicy": {"maxParallelUpgrades": 0, "maxUnavailable": "50%"},
            }
        },
        "status": {"upgrade": [{"node": "a", "state": FAILED}]},
    }
    assert thing_of("policies", policy) == dataclasses.replace(POLICY, upgrades={"a": FAILED})
    driver = {
        "metadata": {"name": "driver-a", "uid": "uid-a", "deletionTimestamp": "now"},
        "spec": {
            "nodeName": "a",
            "containers": [{"image": "registry.test/driver:580.2-ubuntu24.04"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert thing_of("drivers", driver) == dataclasses.replace(a_driver("a"), is_deleted=True)
    unready = dataclasses.replace(a_driver("a"), is_deleted=True, is_ready=False)
    assert thing_of("drivers", driver | {"status": {}}) == unready
    owners = [{"kind": "ClusterPolicy", "name": "p"}]
    drivers = {"metadata": {"name": "nvidia-driver", "ownerReferences": owners}}
    assert thing_of("driversets", drivers) == DRIVERS
    limits = {"limits": {"gpu.deckhouse.io/pool": "1"}}
    ended = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    pod = {
        "metadata": {"name": "p", "uid": "u", "labels": {GUARDED: "true"}},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "resources": limits}]},
        "status": {"phase": "Running", "conditions": [ended]},
    }
    assert thing_of("pods", pod) == a_pod(is_guarded=True, disrupted="EvictionByEvictionAPI")
