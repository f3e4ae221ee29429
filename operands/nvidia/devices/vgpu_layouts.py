"""Layouts of virtual GPUs for all devices of a node, in the form of NVIDIA's vGPU device manager, from what products support.

A layout is called like a type of virtual GPU, and has as many of it as a device holds. `default` has two on each device,
or one where no half of the product is a type. Sizes and numbers are those of the vGPU User Guide 20, "Virtual GPU Types",
in the names of NVIDIA's GPU Operator 26.7 (`assets/state-vgpu-device-manager/0500_configmap.yaml`).
Layouts of other types are in a ConfigMap that the spec names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, final

import yaml

LAYOUTS_KEY: Final = "config.yaml"
_VENDOR: Final = "10DE"
_MOST_SHARES: Final = 32
"""Virtual GPUs that take turns on a device."""
_WORKSTATION: Final = "Q"
_COMPUTE: Final = "C"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuProduct:
    """A product: its memory in gigabytes, and into which types it is divided."""

    devices: tuple[str, ...]
    """PCI device ids."""
    gigabytes: int
    workstation: tuple[int, ...] = ()
    """Gigabytes of its types with graphics."""
    compute: tuple[int, ...]
    """Gigabytes of its types without."""
    instances: Mapping[str, int] | None = None
    """Number of its types that are MIG instances."""
    fewer: Mapping[str, int] | None = None
    """Numbers of types of which there are fewer than its memory holds."""

    def types(self) -> Iterator[tuple[str, int]]:
        """Yield what stands after the product in the name of each type, and how many of it a device holds."""
        for letter, sizes in ((_WORKSTATION, self.workstation), (_COMPUTE, self.compute)):
            for size in sizes:
                number = min(self.gigabytes // size, _MOST_SHARES)
                kind = f"{size}{letter}"
                yield kind, (self.fewer or {}).get(kind, number)
        yield from (self.instances or {}).items()

    def default_type(self) -> tuple[str, int]:
        letter, sizes = (
            (_WORKSTATION, self.workstation) if self.workstation else (_COMPUTE, self.compute)
        )
        half = self.gigabytes // 2
        return (f"{half}{letter}", 2) if half in sizes else (f"{max(sizes)}{letter}", 1)


_SIZES: Final = {
    16: (1, 2, 4, 8, 16),
    24: (1, 2, 3, 4, 6, 8, 12, 24),
    32: (1, 2, 4, 8, 16, 32),
    48: (1, 2, 3, 4, 6, 8, 12, 16, 24, 48),
}
_COMPUTE_FROM: Final = 4


def _graphics(gigabytes: int, *devices: str, fewer: Mapping[str, int] | None = None) -> VgpuProduct:
    """Return a product with the usual types for its memory."""
    sizes = _SIZES[gigabytes]
    return VgpuProduct(
        devices=devices,
        gigabytes=gigabytes,
        workstation=sizes,
        compute=tuple(size for size in sizes if size >= _COMPUTE_FROM),
        fewer=fewer,
    )


def _sliced(
    eighths: tuple[int, int, int, int],
    compute: tuple[int, ...],
    *devices: str,
    fewer: Mapping[str, int] | None = None,
) -> VgpuProduct:
    """Return a product of seven compute slices, by the memory of one, two, four and eight eighths."""
    one, two, four, eight = eighths
    return VgpuProduct(
        devices=devices,
        gigabytes=eight,
        compute=(*compute, eight),
        instances={
            f"1-{one}C": 7,
            f"1-{one}CME": 1,
            f"1-{two}C": 4,
            f"2-{two}C": 3,
            f"3-{four}C": 2,
            f"4-{four}C": 1,
            f"7-{eight}C": 1,
        },
        fewer=fewer,
    )


def _instances(gigabytes: int, sizes: Mapping[int, tuple[int, ...]], *ends: str) -> dict[str, int]:
    """Return types that share MIG instances, by the compute slices of these, and what their names end with."""
    return {
        f"{slices}-{size}{letter}{end}": gigabytes // size
        for end in ends
        for slices, of_slices in sizes.items()
        for size in of_slices
        for letter in (_WORKSTATION, _COMPUTE)
        if letter == _WORKSTATION or size >= _COMPUTE_OF_INSTANCES_FROM
    }


_COMPUTE_OF_INSTANCES_FROM: Final = 8
_GRAPHICS: Final = "GFX"
_AMPERE_40: Final = ((5, 10, 20, 40), (4, 5, 8, 10, 20))
_AMPERE_80: Final = ((10, 20, 40, 80), (4, 8, 10, 16, 20, 40))
_HOPPER_80: Final = ((10, 20, 40, 80), (4, 5, 8, 10, 16, 20, 40))
_HOPPER_94: Final = ((12, 24, 47, 94), (4, 6, 11, 15, 23, 47))
_HOPPER_141: Final = ((18, 35, 71, 141), (4, 7, 8, 14, 17, 28, 35, 70))
_FEWER_OF_141: Final = {"8C": 16}

PRODUCTS: Final[Mapping[str, VgpuProduct]] = {
    "V100": _graphics(16, "1DB4"),
    "V100D": _graphics(32, "1DB6"),
    "V100DX": _graphics(32, "1DB5"),
    "V100L": _graphics(16, "1DB3"),
    "V100S": _graphics(32, "1DF6"),
    "V100X": _graphics(16, "1DB1"),
    "T4": _graphics(16, "1EB8"),
    "RTX6000P": _graphics(24, "1E78"),
    "RTX8000P": _graphics(48, "1E78", fewer={"4C": 8}),
    "A2": _graphics(16, "25B6"),
    "A10": _graphics(24, "2236"),
    "A16": _graphics(16, "25B6"),
    "A30": VgpuProduct(
        devices=("20B7", "20B9"),
        gigabytes=24,
        compute=(4, 6, 8, 12, 24),
        instances={"1-6C": 4, "1-6CME": 1, "2-12C": 2, "2-12CME": 1, "4-24C": 1},
    ),
    "A40": _graphics(48, "2235"),
    "A100": _sliced(*_AMPERE_40, "20F1"),
    "A100X": _sliced(*_AMPERE_40, "20B0"),
    "A100D": _sliced(*_AMPERE_80, "20B5", "20B8"),
    "A100DX": _sliced(*_AMPERE_80, "20B2"),
    "A800": _sliced(*_AMPERE_40, "20F6"),
    "A800D": _sliced(*_AMPERE_80, "20F5", "20FD"),
    "A800DX": _sliced(*_AMPERE_80, "20F3"),
    "RTXA5000": _graphics(24, "2231"),
    "RTXA5500": _graphics(24, "2233"),
    "RTXA6000": _graphics(48, "2230"),
    "L2": _graphics(24, "27B6"),
    "L4": _graphics(24, "27B8"),
    "L20": _graphics(48, "26BA"),
    "L40": _graphics(48, "26B5"),
    "L40S": _graphics(48, "26B9"),
    "RTX5000-Ada": _graphics(32, "26B2"),
    "RTX5880-Ada": _graphics(48, "26B3"),
    "RTX6000-Ada": _graphics(48, "26B1"),
    "H20": _sliced((12, 24, 48, 96), (4, 6, 8, 12, 16, 24, 32, 48), "2329"),
    "H20X": _sliced(*_HOPPER_141, "232C", fewer=_FEWER_OF_141),
    "H100": _sliced(*_HOPPER_80, "2331"),
    "H100L": _sliced(*_HOPPER_94, "2321"),
    "H100XL": _sliced(*_HOPPER_94, "2339"),
    "H100XM": _sliced(*_HOPPER_80, "2330", "2336"),
    "H100XS": _sliced((8, 16, 32, 64), (4, 8, 16, 32), "2337"),
    "H200": _sliced(*_HOPPER_141, "233B", fewer=_FEWER_OF_141),
    "H200X": _sliced(*_HOPPER_141, "2335", fewer=_FEWER_OF_141),
    "H800": _sliced(*_HOPPER_80, "2322"),
    "H800L": _sliced(*_HOPPER_94, "233A"),
    "H800XM": _sliced(*_HOPPER_80, "2324"),
    "GH200": _sliced((12, 24, 48, 96), (), "2342"),
    "GH200L": _sliced((18, 36, 72, 144), (), "2348"),
    "B200X": _sliced((23, 45, 90, 180), (), "2901"),
    "B300X": _sliced((34, 67, 135, 269), (), "3182"),
    "GB200": _sliced((24, 47, 95, 189), (), "2941"),
    # Another product with types of the same name, of which the larger one gives the numbers.
    "DC 32GB": VgpuProduct(
        devices=("2C3A",),
        gigabytes=32,
        workstation=(16,),
        compute=(),
        instances=_instances(32, {1: (16,), 2: (8, 32)}, ""),
    ),
    "DC": VgpuProduct(
        devices=("2BB5",),
        gigabytes=96,
        workstation=(3, 4, 6, 8, 12, 16, 24, 32, 48, 96),
        compute=(8, 12, 16, 24, 32, 48, 96),
        instances=_instances(
            96,
            {1: (2, 3, 4, 6, 8, 12, 24), 2: (12, 16, 24, 48), 4: (24, 32, 48, 96)},
            "",
            _GRAPHICS,
        ),
    ),
    "6000D": VgpuProduct(
        devices=("2BB9",),
        gigabytes=84,
        workstation=(84,),
        compute=(84,),
        instances=_instances(84, {1: (42,), 2: (84,)}, "", _GRAPHICS),
    ),
}
"""Products by the name that is the start of their types, up to a space."""


@cache
def layouts_text() -> str:
    """Return the layouts as the content of a ConfigMap's key."""
    content = {"version": "v1", "vgpu-configs": {**_layouts_of_types(), "default": _default()}}
    return yaml.safe_dump(content, sort_keys=False)


def _layouts_of_types() -> dict[str, object]:
    return {
        name: [{"devices": "all", "vgpu-devices": {name: number}}]
        for product in PRODUCTS
        for kind, number in PRODUCTS[product].types()
        for name in (_type_name(product, kind),)
    }


def _type_name(product: str, kind: str) -> str:
    return f"{product.partition(' ')[0]}-{kind}"


def _default() -> list[dict[str, object]]:
    return [
        {
            "device-filter": f"0x{device}{_VENDOR}",
            "devices": "all",
            "vgpu-devices": {_type_name(name, kind): number},
        }
        for name, product in PRODUCTS.items()
        for kind, number in (product.default_type(),)
        for device in product.devices
    ]
