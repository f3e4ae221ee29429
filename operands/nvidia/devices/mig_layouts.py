"""Layouts of MIG instances for all devices of a node, in mig-parted's form, from what each product supports.

`all-disabled` and `all-enabled` have no instances, `all-balanced` a mixture of sizes, and `all-<profile>` as many instances
of a profile as fit. The numbers are those of the MIG User Guide, "Supported MIG profiles"; names and devices are those of
NVIDIA's GPU Operator 26.7 (`assets/state-mig-manager/0400_configmap.yaml`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, final

import yaml

from api.mig.profile import label_form

LAYOUTS_KEY: Final = "config.yaml"
_VENDOR: Final = "10DE"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MigProduct:
    """Products with the same profiles."""

    devices: tuple[str, ...]
    """PCI device ids."""
    instances: Mapping[str, int]
    """Number of instances that fit, by profile; those of one compute slice first, and smaller memory before larger."""

    @property
    def balanced(self) -> dict[str, int]:
        """Two instances of one compute slice, and one each of two and of three, as far as the product has them."""
        plain = [
            instance for instance in self.instances if "+" not in instance and "-" not in instance
        ]
        found: dict[str, int] = {}
        for size, count in (("1g.", 2), ("2g.", 1), ("3g.", 1)):
            first = next((item for item in plain if item.startswith(size)), None)
            if first is not None:
                found[first] = count
        return found


def _seven_slices(gigabytes: tuple[int, int, int, int]) -> dict[str, int]:
    """Return the profiles of a product of seven compute slices, by the memory of one, two, four and eight eighths."""
    one, two, four, eight = gigabytes
    return {
        f"1g.{one}gb": 7,
        f"1g.{one}gb+me": 1,
        f"1g.{two}gb": 4,
        f"2g.{two}gb": 3,
        f"3g.{four}gb": 2,
        f"4g.{four}gb": 1,
        f"7g.{eight}gb": 1,
    }


PRODUCTS: Final[Mapping[str, MigProduct]] = {
    "A30": MigProduct(
        devices=("20B7",),
        instances={"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1},
    ),
    "A100 40GB, A800 40GB": MigProduct(
        devices=("20B0", "20B1", "20F1", "20F6"), instances=_seven_slices((5, 10, 20, 40))
    ),
    "A100 80GB, A800 80GB, H100 80GB, H800 80GB": MigProduct(
        devices=("20B2", "20B5", "20F3", "20F5", "2322", "2324", "2330", "2331"),
        instances=_seven_slices((10, 20, 40, 80)),
    ),
    "H100 NVL, H800 NVL": MigProduct(
        devices=("2321", "233A"), instances=_seven_slices((12, 24, 47, 94))
    ),
    "H100 96GB, H20, GH200 96GB": MigProduct(
        devices=("20B6", "2329", "233D", "2342"), instances=_seven_slices((12, 24, 48, 96))
    ),
    "H200, H200 NVL": MigProduct(
        devices=("2335", "233B"), instances=_seven_slices((18, 35, 71, 141))
    ),
    "GH200 144GB": MigProduct(devices=("2348",), instances=_seven_slices((18, 36, 72, 144))),
    "B200": MigProduct(devices=("2901",), instances=_seven_slices((23, 45, 90, 180))),
    "GB200": MigProduct(
        devices=("2941",),
        # Drivers differ in how much memory they report.
        instances=_seven_slices((23, 47, 93, 186)) | {"3g.95gb": 2, "4g.95gb": 1, "7g.189gb": 1},
    ),
    "B300": MigProduct(devices=("3182",), instances=_seven_slices((34, 67, 135, 269))),
    "GB300": MigProduct(devices=("31C2",), instances=_seven_slices((35, 70, 139, 278))),
    "RTX PRO 6000": MigProduct(
        devices=("2BB5",),
        instances={
            "1g.24gb": 4,
            "1g.24gb+me": 1,
            "1g.24gb+gfx": 4,
            "1g.24gb+me.all": 1,
            "1g.24gb-me": 4,
            "2g.48gb": 2,
            "2g.48gb+gfx": 2,
            "2g.48gb+me.all": 1,
            "2g.48gb-me": 2,
            "4g.96gb": 1,
            "4g.96gb+gfx": 1,
        },
    ),
}


@cache
def layouts_text() -> str:
    """Return the layouts as mig-parted's file."""
    return yaml.safe_dump(
        {"version": "v1", "mig-configs": build_layouts()}, sort_keys=False, width=100
    )


def build_layouts() -> dict[str, list[dict[str, Any]]]:
    """Return the layouts by name."""
    products = PRODUCTS.values()
    profiles = dict.fromkeys(profile for product in products for profile in product.instances)
    return {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "all-enabled": [_enabled({})],
        "all-balanced": [_enabled(product.balanced, product.devices) for product in products],
        **{_name(profile): _entries(profile) for profile in profiles},
    }


def _name(profile: str) -> str:
    """Return the name of a profile's layout, which is a label's value."""
    return f"all-{label_form(profile)}"


def _entries(profile: str) -> list[dict[str, Any]]:
    """Return one entry for all devices, or one for each number of instances that products have of the profile."""
    devices_by_count: dict[int, list[str]] = {}
    for item in PRODUCTS.values():
        if profile in item.instances:
            devices_by_count.setdefault(item.instances[profile], []).extend(item.devices)
    if len(devices_by_count) == 1:
        return [_enabled({profile: count}) for count in devices_by_count]
    return [_enabled({profile: count}, devices) for count, devices in devices_by_count.items()]


def _enabled(instances: Mapping[str, int], devices: Iterable[str] = ()) -> dict[str, Any]:
    """Return an entry for all devices of a node, or for those of the given ids."""
    only = [f"0x{device}{_VENDOR}" for device in devices]
    return {
        **({"device-filter": only} if only else {}),
        "devices": "all",
        "mig-enabled": True,
        "mig-devices": dict(instances),
    }
