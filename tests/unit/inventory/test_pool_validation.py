"""What is thought of a pool: whether it may touch anything at all."""

from typing import Any

import pytest

from inventory.pools.validation import VALID_POOL, PoolFaultReason, layout_fault, validate_pool
from tests.support.assignment import a_device, a_gpupool


def objections(name: str = "a", **spec: Any) -> list[PoolFaultReason]:
    return [fault.reason for fault in validate_pool(a_gpupool(name, **spec), ()).misconfigured]


def test_a_plain_pool_is_sound():
    pool = a_gpupool()
    assert validate_pool(pool, [pool]) == VALID_POOL
    assert VALID_POOL.is_valid
    assert VALID_POOL.text == ""


@pytest.mark.parametrize(
    ("vendors", "is_supported"),
    [
        (["1002"], False),
        (["1002", "8086"], False),
        (["10de"], True),
        (["10DE"], True),
        (["1002", "10DE"], True),
        ([], True),
    ],
)
def test_only_devices_of_nvidia_are_supported(vendors, is_supported):
    """Lessons 18 and 16: the case of hex digits says nothing."""
    result = validate_pool(a_gpupool(deviceSelector={"include": {"pciVendors": vendors}}), ())
    assert (result.unsupported is None) is is_supported
    assert result.is_valid is is_supported
    if not is_supported:
        assert "10de" in result.text


def test_other_vendors_may_be_excluded():
    assert validate_pool(
        a_gpupool(deviceSelector={"exclude": {"pciVendors": ["1002"]}}), ()
    ).is_valid


def test_the_younger_of_two_pools_with_one_resource_is_misconfigured():
    """Lesson 7: two racing creates of one name end in one winner."""
    resource = {"name": "gpu.deckhouse.io/one"}
    older = a_gpupool("z", created=1, resource=resource)
    younger = a_gpupool("a", created=2, resource=resource)
    pools = [younger, older]

    assert validate_pool(older, pools) == VALID_POOL
    (fault,) = validate_pool(younger, pools).misconfigured
    assert fault.reason is PoolFaultReason.RESOURCE_NAME_TAKEN
    assert fault.text.startswith("gpu.deckhouse.io/one belongs to the older pool z: ")


def test_pools_of_one_second_are_ordered_by_name():
    resource = {"name": "gpu.deckhouse.io/one"}
    pools = [a_gpupool("b", resource=resource), a_gpupool("a", resource=resource)]
    assert [validate_pool(pool, pools).is_valid for pool in pools] == [False, True]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"allocation": {"mode": "MIG"}}, id="no profile"),
        pytest.param({"reservation": {"ttl": "1s"}}, id="too short"),
        pytest.param(
            {"scheduling": {"taints": [{"key": "a", "effect": "Sometimes"}]}}, id="no effect"
        ),
    ],
)
def test_a_spec_from_before_a_rule_is_validated_by_the_rule(spec):
    assert objections(**spec) == [PoolFaultReason.BAD_SPEC]


def test_a_name_that_no_resource_can_have_is_a_bad_spec():
    assert objections("x" * 60) == [PoolFaultReason.BAD_SPEC]


@pytest.mark.parametrize(
    ("layouts", "is_valid"),
    [
        pytest.param({"": 1, "T4 does not support MIG": 8}, True, id="one device can"),
        pytest.param({"T4 does not support MIG": 8}, False, id="none can"),
        pytest.param({}, True, id="unknown"),
    ],
)
def test_a_layout_that_no_device_can_hold_is_a_misconfiguration(layouts, is_valid):
    pool = a_gpupool(allocation={"mode": "MIG", "migProfile": "1g.10gb"})
    result = validate_pool(pool, [pool], layouts=layouts)
    assert result.is_valid is is_valid
    assert is_valid or "T4 does not support MIG" in result.text
    whole = a_gpupool()
    assert validate_pool(whole, [whole], layouts=layouts).is_valid


H100 = {
    "1g.10gb": 7,
    "1g.10gb+me": 1,
    "1g.20gb": 4,
    "2g.20gb": 3,
    "3g.40gb": 2,
    "4g.40gb": 1,
    "7g.80gb": 1,
}
ONE_LARGE = [{"profile": "3g.40gb", "count": 1}, {"profile": "1g.10gb"}]


@pytest.mark.parametrize(
    ("status", "allocation", "answer"),
    [
        ({"mig": {"capable": True, "profiles": ["1g.10gb", "2g.20gb"]}}, "1g.10gb", ""),
        ({"mig": {"capable": True, "profiles": ["2g.20gb"]}}, "1g.10gb", "has no profile 1g.10gb"),
        ({"mig": {"capable": True}}, "1g.10gb", None),
        ({"mig": {"capable": False}, "product": "T4"}, "1g.10gb", "T4 does not support MIG"),
        ({"mig": {"capable": False}, "product": ""}, "1g.10gb", None),
        ({"mig": {"capable": True, "capacities": H100}}, "1g.10gb", ""),
        ({"mig": {"capable": True, "capacities": H100}}, "3g.20gb", "it can hold is 2 of 3g.40gb"),
        ({"mig": {"capable": True, "capacities": H100}}, ONE_LARGE, ""),
        (
            {"mig": {"capable": True, "capacities": H100}},
            [*ONE_LARGE, {"profile": "4g.40gb", "count": 1}],
            "it can hold is 1 of 3g.40gb, 1 of 4g.40gb",
        ),
        (
            {"mig": {"capable": True, "capacities": H100}},
            [{"profile": "1g.10gb", "count": 7}, {"profile": "1g.10gb+me"}],
            "it can hold is 7 of 1g.10gb",
        ),
    ],
)
def test_a_device_holds_a_layout_or_names_the_nearest(status, allocation, answer):
    key = "migProfile" if isinstance(allocation, str) else "mig"
    pool = a_gpupool(allocation={"mode": "MIG", key: allocation})
    found = layout_fault(pool, a_device(**status))
    assert found == answer if not answer else answer in (found or "")


def test_all_faults_are_in_the_text():
    resource = {"name": "gpu.deckhouse.io/one"}
    older = a_gpupool("z", created=1, resource=resource)
    pool = a_gpupool(
        created=2,
        resource=resource,
        deviceSelector={"include": {"pciVendors": ["1002"]}},
        reservation={"ttl": "1s"},
    )
    text = validate_pool(pool, [pool, older]).text
    assert all(part in text for part in ("1002", "spec.reservation.ttl", "older pool z"))
