"""NVML's values in our words."""

import pytest

from agent.driver.port import DriverLink, LinkType
from agent.nvml.convert import address_of, cuda_version_of, links_between, profile_name, watts_of

GIB = 1 << 30


@pytest.mark.parametrize(
    ("bus_id", "expected"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("47505500:00:00.0", "47505500:00:00.0"),
        ("", None),
        ("3B:00.0", None),
        ("nonsense", None),
    ],
)
def test_address_is_spelt_as_the_kernel_does(bus_id: str, expected: str | None) -> None:
    assert address_of(bus_id) == expected


def test_versions_and_watts() -> None:
    assert (cuda_version_of(12080), cuda_version_of(13010)) == ("12.8", "13.1")
    assert (watts_of(699_600), watts_of(None)) == (700, None)


@pytest.mark.parametrize(
    ("number", "slices", "memory_mib", "device_mib", "expected"),
    [
        pytest.param(0, 1, 4864, 40960, "1g.5gb", id="A100 of 40 GB"),
        pytest.param(4, 7, 40192, 40960, "7g.40gb", id="all of it"),
        pytest.param(0, 1, 9856, 81559, "1g.10gb", id="H100 of 80 GB"),
        pytest.param(7, 1, 9856, 81559, "1g.10gb+me", id="with media engines"),
        pytest.param(9, 1, 19968, 81559, "1g.20gb", id="twice the memory"),
        pytest.param(2, 3, 40448, 81559, "3g.40gb", id="H100, three slices"),
        pytest.param(0, 1, 16384, 143771, "1g.18gb", id="H200"),
        pytest.param(2, 3, 71424, 143771, "3g.71gb", id="H200, three slices"),
    ],
)
def test_profile_has_the_name_of_nvidias_tools(
    number: int, slices: int, memory_mib: int, device_mib: int, expected: str
) -> None:
    name = profile_name(number, slices=slices, memory_mib=memory_mib, device_bytes=device_mib << 20)
    assert name == expected


def test_nvlink_wins_over_pcie_and_is_counted() -> None:
    links = links_between(
        "a", to_devices={"a": {"b": 4}}, to_switches={}, levels={"b": 50, "c": 50, "d": 10}
    )
    assert links == (
        DriverLink("b", LinkType.NVLINK, 4),
        DriverLink("c", LinkType.SYS),
        DriverLink("d", LinkType.PIX),
    )


def test_devices_at_switches_reach_each_other_by_the_fewer_links() -> None:
    links = links_between(
        "a", to_devices={}, to_switches={"a": 18, "b": 17, "c": 0}, levels={"b": 50, "c": 30}
    )
    assert links == (DriverLink("b", LinkType.NVLINK, 17), DriverLink("c", LinkType.PHB))


def test_an_unreported_connection_is_no_link() -> None:
    assert links_between("a", to_devices={}, to_switches={}, levels={"b": -1, "c": 7}) == ()
