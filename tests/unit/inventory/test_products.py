"""One spelling of a product, any caller that names it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory import products
from inventory.assignment.selector import canonical_product


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (
            (
                "NVIDIA A100-SXM4-80GB",
                "NVIDIA-A100-SXM4-80GB",
                "GA100 [A100 SXM4 80GB]",
                "A100-SXM4-80GB",
            ),
            "NVIDIA-A100-SXM4-80GB",
        ),
        (("NVIDIA H200", "NVIDIA-H200", "GH100 [H200]"), "NVIDIA-H200"),
        (("Tesla T4", "Tesla-T4", "TU104GL [Tesla T4]"), "NVIDIA-Tesla-T4"),
        (
            ("NVIDIA GeForce RTX 3090", "NVIDIA-GeForce-RTX-3090", "GA102 [GeForce RTX 3090]"),
            "NVIDIA-GeForce-RTX-3090",
        ),
        (("NVIDIA GH200 480GB", "NVIDIA-GH200-480GB"), "NVIDIA-GH200-480GB"),
        (
            ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",),
            "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition",
        ),
        (("NVIDIA Graphics Device",), "NVIDIA-Graphics-Device"),
        (("Orin (nvgpu)",), "NVIDIA-Orin-nvgpu"),
        (("GRID A100-10C",), "NVIDIA-GRID-A100-10C"),
        (("NVIDIA L40S-48Q",), "NVIDIA-L40S-48Q"),
    ],
)
def test_three_spellings_are_shown_as_one(names: tuple[str, ...], want: str):
    """Lesson 2: label, NVML and the table of PCI ids name one product."""
    assert {products.display_product(name) for name in names} == {want}
    assert all(products.is_same_product(name, want) for name in names)


def test_a_device_of_another_vendor_is_not_called_nvidias():
    assert products.display_product("Instinct MI300X", vendor="1002") == "Instinct-MI300X"


@given(st.text(max_size=200))
def test_the_displayed_spelling_is_stable(name: str):
    current = products.display_product(name)
    assert products.display_product(current) == current
    assert len(current) <= 135


@pytest.mark.parametrize("name", ["", "[]", "®", "NVIDIA-", "  "])
def test_a_name_of_nothing_is_not_shown(name: str):
    assert products.display_product(name) == ""


@pytest.mark.parametrize(
    ("device", "want"), [("2335", "NVIDIA-H200"), ("20b2", "NVIDIA-A100-SXM4-80GB"), ("ffff", "")]
)
def test_the_table_knows_common_devices(device: str, want: str):
    assert products.product_by_id("10de", device) == want
    assert products.product_by_id("1002", device) == ""


@pytest.mark.parametrize(
    ("label", "want"),
    [
        ("NVIDIA-A30", ("NVIDIA-A30", True)),
        ("NVIDIA-A30-SHARED", ("NVIDIA-A30", True)),
        ("NVIDIA-A30-MIG-1g.6gb", ("NVIDIA-A30", False)),
        ("NVIDIA-A30-MIG-1g.6gb-SHARED", ("NVIDIA-A30", False)),
        ("Tesla-T4-SHARED", ("Tesla-T4", True)),
        ("NVIDIA-L40S-48Q", ("NVIDIA-L40S-48Q", True)),
        ("NVIDIA-Tesla-V100-SXM2-32GB-LS", ("NVIDIA-Tesla-V100-SXM2-32GB-LS", True)),
    ],
)
def test_a_label_names_the_device_whatever_is_made_of_it(label: str, want: tuple[str, bool]):
    assert products.product_of_label(label) == want


def test_a_selector_written_in_any_spelling_finds_the_device():
    current = products.display_product("NVIDIA A100-SXM4-80GB")
    for spelling in ("nvidia-a100-sxm4-80gb", "A100-SXM4-80GB", "GA100 [A100 SXM4 80GB]"):
        assert canonical_product(spelling) == canonical_product(current)
