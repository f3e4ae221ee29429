"""The oracle sees each of its rules about upgrades broken, and finds nothing where none is."""

import dataclasses

import pytest

from tests.fault.observations import Node, Observation, Pod, observed_object
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


class ObservedUpgrades:
    """Feeds an oracle observations, each a second and a version after the one before."""

    def __init__(self) -> None:
        self.oracle = Oracle()
        self.violations: list[str] = []
        self.at = 0.0
        self.observe(POLICY)
        for name in "abcd":
            self.mark(name, IN_SERVICE)
            self.run_driver(name)
        self.at += LATER

    def observe(self, subject, *, after: float = 1.0, is_gone: bool = False, is_exact: bool = True):
        self.at += after
        observation = Observation(
            at=self.at, version=round(self.at), is_gone=is_gone, subject=subject, is_exact=is_exact
        )
        self.violations += [
            item.rule for item in self.oracle.observe(observation) if item.rule in RULES
        ]

    def mark(self, name: str, marks: UpgradeMarks, **how) -> None:
        self.observe(Node(name=name, upgrade=marks), **how)

    def run_driver(self, name: str, version: str = "580.2", **how) -> None:
        self.observe(a_driver(name, version), **how)

    def delete_driver(self, name: str, **how) -> None:
        self.observe(dataclasses.replace(a_driver(name), is_deleted=True), **how)

    def unmet(self) -> list[str]:
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
def run() -> ObservedUpgrades:
    return ObservedUpgrades()


@pytest.mark.parametrize("is_gone", [False, True])
def test_daemon_set_that_is_deleted_beside_its_policy_is_found(run, is_gone):
    run.observe(DRIVERS)
    assert run.violations == []
    run.observe(dataclasses.replace(DRIVERS, is_deleted=not is_gone), is_gone=is_gone)
    assert run.violations == [upgrade_oracle.DRIVERS_DELETED]


def test_daemon_set_that_goes_with_its_policy_is_all_right(run):
    run.observe(DRIVERS)
    run.observe(POLICY, is_gone=True)
    run.observe(DRIVERS, is_gone=True)
    assert run.violations == []


@pytest.mark.parametrize("lateness", [0.0, LATER])
def test_node_that_is_given_back_long_after_its_driver_was_ready_is_found(run, lateness):
    unready = dataclasses.replace(a_driver("a"), is_ready=False)
    run.observe(unready)
    run.mark("a", EMPTIED, after=lateness)
    run.mark("a", IN_SERVICE)
    assert run.unmet() == ([upgrade_oracle.GIVEN_BACK_EARLY] if lateness else [])


def test_node_that_is_seen_to_be_given_back_before_its_driver_is_seen_ready_is_all_right(run):
    run.observe(dataclasses.replace(a_driver("a"), is_ready=False))
    run.mark("a", EMPTIED, after=LATER)
    run.at += 5
    run.mark("a", IN_SERVICE)
    assert run.unmet() == [upgrade_oracle.GIVEN_BACK_EARLY]
    run.observe(a_driver("a"), after=-3)
    assert run.unmet() == []


def test_upgrade_of_one_node_after_the_other_is_all_right(run):
    for name in "abcd":
        for marks in (CHOSEN, dataclasses.replace(CHOSEN, is_cordoned=True), EMPTIED):
            run.mark(name, marks)
        run.delete_driver(name)
        run.observe(a_driver(name), is_gone=True)
        run.observe(dataclasses.replace(a_driver(name), uid=f"new-{name}"))
        run.mark(name, dataclasses.replace(EMPTIED, state="uncordon-required"))
        run.mark(name, IN_SERVICE)
    assert (run.violations, run.unmet(), run.unfinished()) == ([], [], [])
    upgrades = run.oracle.upgrades
    assert (upgrades.begun, upgrades.most_away) == (4, 1)


# --- how many ----------------------------------------------------------------------------------------


def test_node_more_than_may_be_away_is_found(run):
    for name in "ab":
        run.mark(name, CHOSEN)
    assert run.violations == []
    run.mark("c", CHOSEN)
    assert run.violations == [upgrade_oracle.TOO_MANY_AWAY]
    assert run.oracle.upgrades.most_away == 3


@pytest.mark.parametrize(
    "closed",
    [
        pytest.param(UpgradeMarks(state=DONE, is_ready=False), id="not ready"),
        pytest.param(UpgradeMarks(state=DONE, is_cordoned=True, admin=CORDONED), id="cordoned"),
        pytest.param(UpgradeMarks(state=FAILED, is_cordoned=True), id="failed and cordoned"),
    ],
)
def test_node_that_is_away_for_long_counts_whatever_the_cause(run, closed):
    run.mark("a", closed)
    run.mark("b", CHOSEN, after=LATER)
    assert run.violations == []
    run.mark("c", CHOSEN)
    assert run.violations == [upgrade_oracle.TOO_MANY_AWAY]


def test_node_that_was_away_already_may_be_upgraded_all_the_same(run):
    cordoned = UpgradeMarks(state=DONE, is_cordoned=True, admin=CORDONED)
    for name in "abc":
        run.mark(name, cordoned)
    for name in "abc":
        run.mark(name, dataclasses.replace(cordoned, state="cordon-required"), after=LATER)
    assert run.violations == []


def test_node_that_was_away_a_moment_ago_may_be_taken_to_be_away_until_the_server_has_seen_it(
    run,
):
    for is_recorded in (False, True):
        run.mark("c", UpgradeMarks(state=DONE, is_ready=False))
        run.mark("c", IN_SERVICE)
        if is_recorded:
            run.oracle.upgrades.set_observed_until(run.at + 0.5)
        for name in "abc":
            run.mark(name, CHOSEN)
        assert run.violations == ([upgrade_oracle.TOO_MANY_AWAY] if is_recorded else [])
        for name in "abc":
            run.mark(name, IN_SERVICE)


def test_limit_that_was_lowered_a_moment_ago_may_not_be_known_yet(run):
    run.mark("a", CHOSEN)
    run.observe(dataclasses.replace(POLICY, max_unavailable=1))
    run.mark("b", CHOSEN)
    assert run.violations == []
    run.mark("b", IN_SERVICE)
    run.mark("b", CHOSEN, after=LATER)
    assert run.violations == [upgrade_oracle.TOO_MANY_AWAY]


def test_share_of_nodes_is_rounded_up():
    assert [Policy(name="p", max_unavailable="25%").most_away(total) for total in (4, 5)] == [1, 2]
    assert Policy(name="p", max_unavailable=3).most_away(4) == 3


def test_node_more_than_may_be_in_progress_is_found(run):
    run.observe(dataclasses.replace(POLICY, max_parallel=1))
    run.mark("a", CHOSEN, after=LATER)
    run.mark("a", EMPTIED)
    assert run.violations == []
    run.mark("b", CHOSEN)
    assert run.violations == [upgrade_oracle.TOO_MANY_AT_ONCE]


def test_failed_node_takes_no_place_of_those_in_progress(run):
    run.observe(dataclasses.replace(POLICY, max_parallel=1))
    run.mark("a", UpgradeMarks(state=FAILED, is_cordoned=True), after=LATER)
    run.mark("b", CHOSEN)
    assert run.violations == []


def test_order_that_a_gap_hides_is_not_judged(run):
    for name in "abc":
        run.mark(name, CHOSEN, is_exact=False)
    assert run.violations == []


# --- cordons, pods -----------------------------------------------------------------------------------


def test_node_that_an_admin_cordoned_and_that_is_uncordoned_by_another_is_found(run):
    run.mark("a", UpgradeMarks(state=DONE, is_cordoned=True, admin=CORDONED))
    run.mark("a", UpgradeMarks(state=DONE, admin=UNCORDONED))
    assert run.violations == []
    run.mark("a", UpgradeMarks(state=DONE, is_cordoned=True, admin=CORDONED))
    run.mark("a", UpgradeMarks(state=DONE, admin=CORDONED))
    assert run.violations == [upgrade_oracle.UNCORDONED_BY_US]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [upgrade_oracle.PAST_A_BUDGET], id="deleted by a client"),
        pytest.param({"disrupted": "EvictionByEvictionAPI"}, [], id="evicted"),
        pytest.param({"disrupted": "DeletionByPodGC"}, [], id="its node is gone"),
        pytest.param({"is_guarded": False}, [], id="without a budget"),
    ],
)
def test_guarded_pod_may_be_evicted_and_not_deleted(run, changes, expected):
    run.observe(a_pod(is_guarded=True))
    run.observe(a_pod(**({"is_guarded": True, "is_deleted": True} | changes)))
    assert run.violations == expected


def test_guarded_pods_may_go_once_the_run_ends_them(run):
    run.observe(a_pod(is_guarded=True))
    run.oracle.upgrades.release_guards()
    run.observe(a_pod(is_guarded=True, is_deleted=True))
    run.observe(a_pod(is_guarded=True), is_gone=True)
    assert run.violations == []


def test_pod_that_is_bound_to_a_node_withheld_for_long_is_found(run):
    run.mark("a", CHOSEN)
    run.observe(a_pod())
    assert run.violations == []
    run.observe(a_pod(uid="v", name="q"), after=LATER)
    assert run.violations == [upgrade_oracle.BOUND_TO_WITHHELD]


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
def test_driver_that_is_taken_from_a_node_in_service_is_found(run, marks):
    run.mark("a", marks)
    run.delete_driver("a", after=LATER)
    assert set(run.unmet()) == {upgrade_oracle.DRIVER_TAKEN_AWAY}


def test_driver_of_a_node_that_an_admin_uncordoned_in_the_middle_may_be_replaced(run):
    run.mark("a", dataclasses.replace(EMPTIED, is_cordoned=False, admin=UNCORDONED))
    run.delete_driver("a", after=LATER)
    assert run.unmet() == []


def test_driver_that_is_taken_from_under_a_pod_is_found(run):
    run.observe(a_pod())
    run.mark("a", EMPTIED)
    run.delete_driver("a", after=LATER)
    assert run.unmet() == [upgrade_oracle.DRIVER_TAKEN_AWAY]


def test_pod_whose_end_is_seen_after_that_of_the_driver_is_judged_by_versions(run):
    run.observe(a_pod())
    run.mark("a", EMPTIED)
    run.at += LATER
    deleted_at = run.at + 5
    for subject, version, is_gone in (
        (dataclasses.replace(a_driver("a"), is_deleted=True), deleted_at, False),
        (a_pod(), deleted_at - 1, True),
    ):
        observation = Observation(
            at=deleted_at, version=round(version), is_gone=is_gone, subject=subject
        )
        run.oracle.observe(observation)
    assert run.unmet() == []


def test_driver_of_a_node_that_was_gone_before_a_restore_goes_when_the_node_comes_back():
    run = ObservedUpgrades()
    run.oracle = run.oracle.restarted()
    run.observe(POLICY)
    run.run_driver("a")
    run.mark("a", IN_SERVICE)
    run.delete_driver("a")
    assert run.unmet() == []
    assert run.oracle.upgrades.begun == 0


def test_driver_of_a_node_that_was_created_again_goes_with_the_old_one(run):
    run.observe(Node(name="a", upgrade=IN_SERVICE), is_gone=True)
    run.mark("a", UpgradeMarks())
    run.delete_driver("a")
    assert run.unmet() == []


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
def test_node_whose_upgrade_has_not_ended_is_found(run, marks):
    run.mark("a", marks)
    assert run.unfinished(may_have_failed=True) == [upgrade_oracle.UPGRADES_END]


def test_failed_node_is_named_and_ends_nothing_for_good(run):
    run.mark("a", UpgradeMarks(state=FAILED))
    run.observe(dataclasses.replace(POLICY, upgrades={"a": FAILED}))
    assert run.unfinished(may_have_failed=True) == []
    assert run.unfinished() == [upgrade_oracle.UPGRADES_END]


def test_node_with_an_older_driver_is_found(run):
    run.run_driver("a", "580.1")
    assert run.unfinished() == [upgrade_oracle.UPGRADES_END]


def test_node_that_is_done_is_named_no_more(run):
    run.observe(dataclasses.replace(POLICY, upgrades={"a": REQUIRED}))
    assert run.unfinished() == [upgrade_oracle.UPGRADES_END]


# --- read from JSON ----------------------------------------------------------------------------------


def test_marks_of_a_node_are_read():
    node = observed_object(
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
    bare = observed_object("nodes", {"metadata": {"name": "b"}, "spec": {}})
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
    assert observed_object("policies", policy) == dataclasses.replace(
        POLICY, upgrades={"a": FAILED}
    )
    driver = {
        "metadata": {"name": "driver-a", "uid": "uid-a", "deletionTimestamp": "now"},
        "spec": {
            "nodeName": "a",
            "containers": [{"image": "registry.test/driver:580.2-ubuntu24.04"}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert observed_object("drivers", driver) == dataclasses.replace(a_driver("a"), is_deleted=True)
    unready = dataclasses.replace(a_driver("a"), is_deleted=True, is_ready=False)
    assert observed_object("drivers", driver | {"status": {}}) == unready
    owners = [{"kind": "ClusterPolicy", "name": "p"}]
    drivers = {"metadata": {"name": "nvidia-driver", "ownerReferences": owners}}
    assert observed_object("driversets", drivers) == DRIVERS
    limits = {"limits": {"gpu.deckhouse.io/pool": "1"}}
    ended = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    pod = {
        "metadata": {"name": "p", "uid": "u", "labels": {GUARDED: "true"}},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "resources": limits}]},
        "status": {"phase": "Running", "conditions": [ended]},
    }
    assert observed_object("pods", pod) == a_pod(is_guarded=True, disrupted="EvictionByEvictionAPI")
