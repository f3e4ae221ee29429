"""The parameters of an upgrade policy: defaults, percentages, and what is no number."""

from typing import Any

import pytest

from api.kinds.nvidia.upgrade_policy import (
    ClusterUpgradePolicy,
    Drain,
    DriverUpgradePolicy,
    PodDeletion,
    WaitForCompletion,
)
from api.meta import LabelSelector
from api.names import PoolName
from operands.upgrade.parameters import (
    AwaitedPods,
    EvictionLimits,
    NodeLimit,
    UpgradeParameters,
    read_parameters,
)

PATH = "spec.driver.upgradePolicy"


def parameters_of(**fields: Any) -> UpgradeParameters:
    return read_parameters(ClusterUpgradePolicy(**fields), path=PATH)


def test_defaults_are_the_kinds_own():
    cluster = parameters_of()
    assert (cluster.auto_upgrade, cluster.max_parallel) == (False, 1)
    assert cluster.max_unavailable == NodeLimit(25, is_percentage=True)
    assert (cluster.pod_deletion, cluster.drain, cluster.awaited) == (None, None, AwaitedPods())
    driver = read_parameters(DriverUpgradePolicy(), path="spec.upgradePolicy")
    assert driver.auto_upgrade
    assert driver.pod_deletion == EvictionLimits(limit_s=300)
    assert driver.drain is None
    for parameters in (cluster, driver):
        assert (parameters.faults, parameters.notes) == ((), ())


def test_every_field_is_read():
    parameters = read_parameters(
        ClusterUpgradePolicy(
            auto_upgrade=True,
            max_parallel_upgrades=7,
            max_unavailable=3,
            pod_deletion=PodDeletion(force=True, timeout_seconds=10, delete_empty_dir=True),
            wait_for_completion=WaitForCompletion(pod_selector="app=train", timeout_seconds=20),
            drain=Drain(enable=True, force=True, pod_selector="!keep", timeout_seconds=30),
        ),
        path=PATH,
        pools=frozenset({PoolName("a100")}),
        has_validator=False,
    )
    assert (parameters.max_parallel, parameters.max_unavailable) == (7, NodeLimit(3))
    assert parameters.pod_deletion == EvictionLimits(force=True, delete_empty_dir=True, limit_s=10)
    assert parameters.awaited.selector is not None
    assert parameters.awaited.selector.matches({"app": "train"})
    assert parameters.awaited.pools == {PoolName("a100")}
    assert parameters.awaited.limit_s == 20
    assert parameters.drain is not None
    assert parameters.drain.selector is not None
    assert not parameters.drain.selector.matches({"keep": ""})
    assert (
        parameters.drain.force,
        parameters.drain.delete_empty_dir,
        parameters.drain.limit_s,
    ) == (
        True,
        False,
        30,
    )
    assert not parameters.has_validator


@pytest.mark.parametrize(
    ("given", "total", "expected"),
    [
        ("25%", 0, 0),
        ("25%", 1, 1),
        ("25%", 4, 1),
        ("25%", 5, 2),
        ("25%", 200, 50),
        ("1%", 1000, 10),
        ("1%", 1001, 11),
        ("100%", 7, 7),
        ("+10%", 10, 1),
        ("010%", 10, 1),
        ("0%", 200, 0),
        (0, 200, 0),
        (5, 200, 5),
        (500, 200, 200),
    ],
)
def test_a_percentage_is_rounded_up_and_no_more_than_all_nodes(given, total, expected):
    parameters = parameters_of(max_unavailable=given)
    assert parameters.max_unavailable.of(total) == expected
    assert (parameters.faults, parameters.notes) == ((), ())


@pytest.mark.parametrize(
    ("given", "used", "note"),
    [
        (-1, NodeLimit(0), "-1 counts as 0"),
        ("-5%", NodeLimit(0, is_percentage=True), "-5% counts as 0%"),
        ("200%", NodeLimit(100, is_percentage=True), "200% counts as 100%"),
    ],
)
def test_a_number_of_nodes_that_is_impossible_counts_as_the_nearest_one(given, used, note):
    parameters = parameters_of(max_unavailable=given)
    assert parameters.max_unavailable == used
    assert [str(item) for item in parameters.notes] == [f"{PATH}.maxUnavailable: {note}"]
    assert parameters.faults == ()


@pytest.mark.parametrize(
    "given",
    ["", "%", "7", "many", "5.5%", " 5%", "5 %", "1e2%", "\u0665%", "99999999999%", "x" * 999],
)
def test_a_number_of_nodes_that_is_none_is_a_fault(given):
    parameters = parameters_of(max_unavailable=given)
    (fault,) = parameters.faults
    assert fault.path == f"{PATH}.maxUnavailable"
    assert "neither a number nor a percentage such as 25%" in fault.text
    assert len(fault.text) < 200


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"max_parallel_upgrades": -1}, "maxParallelUpgrades"),
        ({"pod_deletion": PodDeletion(timeout_seconds=-1)}, "podDeletion.timeoutSeconds"),
        ({"drain": Drain(enable=True, timeout_seconds=-1)}, "drain.timeoutSeconds"),
        ({"drain": Drain(enable=True, pod_selector="a=b=c")}, "drain.podSelector"),
        (
            {"wait_for_completion": WaitForCompletion(timeout_seconds=-9)},
            "waitForCompletion.timeoutSeconds",
        ),
        (
            {"wait_for_completion": WaitForCompletion(pod_selector="a in b")},
            "waitForCompletion.podSelector",
        ),
    ],
)
def test_a_field_that_cannot_be_read_is_a_fault_with_its_path(fields, path):
    assert [fault.path for fault in parameters_of(**fields).faults] == [f"{PATH}.{path}"]


def test_an_empty_selector_waits_for_no_pod_and_drains_all():
    parameters = parameters_of(
        wait_for_completion=WaitForCompletion(pod_selector=" "), drain=Drain(enable=True)
    )
    assert not parameters.awaited.is_any
    assert parameters.drain == EvictionLimits(limit_s=300)
    assert parameters_of().awaited.selector != LabelSelector()


def test_a_drain_that_is_not_enabled_is_none():
    assert parameters_of(drain=Drain(enable=False, pod_selector="a=b=c")).drain is None


def test_a_time_limit_beyond_ten_years_counts_as_ten_years():
    parameters = parameters_of(pod_deletion=PodDeletion(timeout_seconds=10**18))
    assert parameters.pod_deletion == EvictionLimits(limit_s=10 * 365 * 86_400)
