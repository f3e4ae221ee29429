"""Device selection: categories are ANDed, values ORed, `exclude` wins, unknown facts meet nothing."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.device_selector import DeviceSelector
from api.kinds.gpudevice import GPUDeviceStatus
from inventory.assignment.selector import (
    Category,
    Excluded,
    NotIncluded,
    canonical_product,
    mismatch,
    selector_accepts,
)

DEVICE: dict[str, Any] = {
    "inventoryID": "n1-0000:1A:00.0",
    "product": "NVIDIA A100-SXM4-80GB",
    "memoryMiB": 81920,
    "computeCapability": "8.0",
    "pci": {"vendor": "10de", "device": "20b2"},
    "mig": {"capable": True, "profiles": ["1g.10gb", "2g.20gb"]},
}
MEETS = {
    "inventoryIDs": ["x", "n1-0000:1a:00.0"],
    "products": ["T4", "nvidia-a100-sxm4-80gb"],
    "pciVendors": ["1002", "10DE"],
    "pciDevices": ["20B2"],
    "migCapable": True,
    "migProfiles": ["7g.80gb", "2g.20gb"],
    "minMemoryMiB": 81920,
    "computeCapability": "8.0",
}
FAILS = {
    "inventoryIDs": ["n2-0000:1a:00.0"],
    "products": ["A100-PCIE-40GB"],
    "pciVendors": ["1002"],
    "pciDevices": ["20b5"],
    "migCapable": False,
    "migProfiles": ["7g.80gb"],
    "minMemoryMiB": 81921,
    "computeCapability": "8.6",
}
CATEGORIES = list(MEETS)


def device(**changes: Any) -> GPUDeviceStatus:
    return msgspec.convert({**DEVICE, **changes}, GPUDeviceStatus)


def selector(**clauses: Any) -> DeviceSelector:
    return msgspec.convert(clauses, DeviceSelector)


@pytest.mark.parametrize("clauses", [{}, {"include": {}}, {"exclude": {}}])
def test_a_selector_that_says_nothing_takes_every_device(clauses):
    assert selector_accepts(selector(**clauses), device())


@pytest.mark.parametrize("category", CATEGORIES)
def test_one_value_of_a_category_is_enough(category):
    assert selector_accepts(selector(include={category: MEETS[category]}), device())


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_first_category_that_is_not_met_is_told(category):
    found = mismatch(selector(include={**MEETS, category: FAILS[category]}), device())

    assert isinstance(found, NotIncluded)
    assert found.check.category is Category(category)
    assert not found.check.is_met


def test_every_category_must_be_met():
    assert selector_accepts(selector(include=MEETS), device())


@pytest.mark.parametrize("category", [item for item in CATEGORIES if item != "migCapable"])
def test_what_is_not_known_of_a_device_meets_nothing(category):
    found = mismatch(selector(include={category: MEETS[category]}), GPUDeviceStatus())

    assert isinstance(found, NotIncluded)
    assert found.check.actual == ""


def test_exclude_wins_over_include():
    found = mismatch(selector(include=MEETS, exclude={"products": MEETS["products"]}), device())

    assert isinstance(found, Excluded)
    assert [check.category for check in found.checks] == [Category.PRODUCTS]


def test_exclude_takes_out_what_meets_all_its_categories():
    both = {"products": MEETS["products"], "pciVendors": FAILS["pciVendors"]}

    assert selector_accepts(selector(exclude=both), device())


@pytest.mark.parametrize(
    ("lowest", "actual", "expected"),
    [
        ("8.0", "8.6", True),
        ("8.6", "8.0", False),
        ("9.0", "10.0", True),
        ("10.0", "9.0", False),
        ("8.0", "unknown", False),
    ],
)
def test_compute_capabilities_are_compared_as_numbers(lowest, actual, expected):
    criteria = selector(include={"computeCapability": lowest})

    assert selector_accepts(criteria, device(computeCapability=actual)) is expected


@pytest.mark.parametrize(
    "spelling",
    [
        pytest.param("NVIDIA A100-SXM4-80GB", id="NVML"),
        pytest.param("NVIDIA-A100-SXM4-80GB", id="GFD label"),
        pytest.param("GA100 [A100 SXM4 80GB]", id="PCI table"),
        pytest.param("a100-sxm4-80gb", id="by hand"),
    ],
)
def test_a_product_has_one_canonical_name(spelling):
    assert canonical_product(spelling) == "a100-sxm4-80gb"


def test_products_that_differ_stay_different():
    assert canonical_product("NVIDIA A100-SXM4-40GB") != canonical_product("NVIDIA A100-SXM4-80GB")
    assert canonical_product("Tesla T4") != canonical_product("Tesla T40")


@given(st.text())
def test_a_canonical_name_is_its_own_canonical_name(name):
    once = canonical_product(name)
    if not once.startswith("nvidia-") and "[" not in once:
        assert canonical_product(once) == once


@given(st.dictionaries(st.sampled_from(CATEGORIES), st.booleans()))
def test_a_device_is_included_exactly_when_no_category_speaks_against_it(answers):
    include = {item: (MEETS if is_met else FAILS)[item] for item, is_met in answers.items()}

    assert selector_accepts(selector(include=include), device()) is all(answers.values())


@given(st.dictionaries(st.sampled_from(CATEGORIES), st.booleans()))
def test_a_device_is_excluded_exactly_when_some_category_speaks_and_none_against(answers):
    exclude = {item: (MEETS if is_met else FAILS)[item] for item, is_met in answers.items()}
    is_excluded = bool(answers) and all(answers.values())

    assert selector_accepts(selector(exclude=exclude), device()) is not is_excluded


def test_product_of_any_length_is_read_once():
    """In two million brackets, none of which closes, an expression looked for the end of each."""
    assert canonical_product("[" * 2_000_000) == ""


def test_version_without_end_is_none():
    criteria = {"include": {"computeCapability": "1" * 2_000_000 + ".0"}}
    assert selector_accepts(selector(**criteria), device())
