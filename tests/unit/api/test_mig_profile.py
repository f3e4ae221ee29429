"""One grammar of MIG profiles for a pool's spec, what nodes report, and labels."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nvml.convert import PROFILE_ATTRIBUTES
from api.mig import profile as mig_profile
from inventory.discovery.labels import label_report
from operands.nvidia.devices.mig_layouts import PRODUCTS

RTX_PRO_6000 = [
    f"{size}{attribute}"
    for size in ("1g.24gb", "2g.48gb", "4g.96gb")
    for attribute in ("", "+gfx", "+me", "+me.all", "-me")
]
OF_NVML = sorted({f"1g.10gb{attribute}" for attribute in PROFILE_ATTRIBUTES.values()})
OF_PRODUCTS = sorted({name for product in PRODUCTS.values() for name in product.instances})


@pytest.mark.parametrize("profile", sorted({*RTX_PRO_6000, *OF_NVML, *OF_PRODUCTS}))
def test_a_profile_is_one_for_pools_nodes_and_labels(profile: str):
    assert re.search(mig_profile.MIG_PROFILE_PATTERN, profile)
    assert mig_profile.reported_profile(profile.upper()) == profile
    assert mig_profile.profile_in_label(mig_profile.label_form(profile)) == profile
    labels = {f"nvidia.com/mig-{mig_profile.label_form(profile)}.count": "4"}
    assert label_report(labels).common.mig_profiles == (profile,)


@pytest.mark.parametrize(
    "text",
    ["", "1g", "g.10gb", "1g.10gb+", "1g.10gb++me", "1g.10gb+me.", "1g.10GiB", "x1g.10gb", "all"],
)
def test_other_texts_are_no_profile(text: str):
    assert re.search(mig_profile.MIG_PROFILE_PATTERN, text) is None
    assert mig_profile.reported_profile(text) is None
    assert mig_profile.profile_in_label(mig_profile.label_form(text)) is None


def test_compute_instances_are_reported_and_no_pool_has_them():
    assert mig_profile.reported_profile("1c.2g.20gb") == "1c.2g.20gb"
    assert re.search(mig_profile.MIG_PROFILE_PATTERN, "1c.2g.20gb") is None


@pytest.mark.parametrize(
    ("profile", "slices"), [("3g.40gb", 3), ("1c.2g.20gb", 2), ("0g.1gb", 1), ("", None)]
)
def test_compute_slices_are_those_of_the_gpu_instance(profile: str, slices: int | None):
    assert mig_profile.compute_slices(profile) == slices


@given(st.text(alphabet="0123456789gbcme.+-\n", max_size=24))
def test_a_profile_of_a_pool_is_reported_under_its_name(text: str):
    if re.search(mig_profile.MIG_PROFILE_PATTERN, text) and not text.endswith("\n"):
        assert mig_profile.reported_profile(text) == text
        assert re.match(r"[A-Za-z0-9.-]{1,63}\Z", mig_profile.label_form(text))
