"""Layouts of MIG instances: names, numbers, and products told apart by their ids."""

import re

import pytest
import yaml

from inventory.products import product_by_id
from operands.nvidia.devices.mig_layouts import PRODUCTS, build_layouts, layouts_text

LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
EACH_PRODUCT = pytest.mark.parametrize("name", PRODUCTS)


def compute_slices(instances) -> int:
    return sum(int(profile.partition("g.")[0]) * count for profile, count in instances.items())


def slices_of(name: str) -> int:
    return max(compute_slices({profile: 1}) for profile in PRODUCTS[name].instances)


def test_names_are_values_of_labels():
    assert all(LABEL_VALUE.fullmatch(name) for name in build_layouts())


def test_there_are_as_many_layouts_as_in_the_gpu_operator():
    layouts = build_layouts()
    assert len(layouts) == 81
    assert {f"all-{name}" for name in ("3g.95gb", "4g.95gb", "7g.189gb")} <= layouts.keys()


def test_layouts_without_instances_are_for_every_device():
    layouts = build_layouts()
    assert layouts["all-disabled"] == [{"devices": "all", "mig-enabled": False}]
    assert layouts["all-enabled"] == [{"devices": "all", "mig-enabled": True, "mig-devices": {}}]


def test_a_layout_has_as_many_instances_as_fit():
    assert build_layouts()["all-3g.71gb"] == [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"3g.71gb": 2}}
    ]
    assert build_layouts()["all-1g.5gb.me"] == [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb+me": 1}}
    ]


def test_a_profile_of_which_products_have_different_numbers_has_an_entry_for_each():
    small, large = build_layouts()["all-1g.10gb"]
    assert small["mig-devices"] == {"1g.10gb": 4}
    assert large["mig-devices"] == {"1g.10gb": 7}
    assert "0x20B010DE" in small["device-filter"]
    assert "0x233010DE" in large["device-filter"]


def test_no_two_entries_of_a_layout_are_for_one_device():
    for entries in build_layouts().values():
        filters = [device for entry in entries for device in entry.get("device-filter", ("all",))]
        assert len(filters) == len(set(filters))


@EACH_PRODUCT
def test_a_balanced_device_is_full_and_not_more(name: str):
    balanced = PRODUCTS[name].balanced
    assert len(balanced) >= 2
    assert compute_slices(balanced) == slices_of(name)


@EACH_PRODUCT
def test_instances_of_a_profile_fit_into_the_device(name: str):
    for profile, count in PRODUCTS[name].instances.items():
        assert count >= 1
        assert compute_slices({profile: count}) <= slices_of(name)


@EACH_PRODUCT
def test_ids_are_those_of_the_inventory_where_that_knows_them(name: str):
    for device in PRODUCTS[name].devices:
        product = product_by_id("10de", device.lower())
        family = product.removeprefix("NVIDIA-").partition("-")[0]
        assert not product or family in name


def test_the_file_is_the_layouts():
    assert yaml.safe_load(layouts_text()) == {"version": "v1", "mig-configs": build_layouts()}
