"""MIG configurations: the number of instances per device, and one configuration for equal nodes."""

import pytest

from api.names import NodeName
from manifests.node.mig_parted import PartedDevice, build_mig_configs, instances_of
from tests.unit.manifests.pool_objects import PARTED

A30, A100, A100_80, H100, H200, B200 = 24_576, 40_960, 81_920, 81_559, 143_771, 183_359


@pytest.mark.parametrize(
    ("profile", "memory_mib", "count"),
    [
        ("1g.5gb", A100, 7),
        ("1g.10gb", A100, 4),
        ("2g.10gb", A100, 3),
        ("3g.20gb", A100, 2),
        ("4g.20gb", A100, 1),
        ("7g.40gb", A100, 1),
        ("1g.10gb", A100_80, 7),
        ("1g.20gb", A100_80, 4),
        ("3g.40gb", H100, 2),
        ("7g.80gb", H100, 1),
        ("1g.18gb", H200, 7),
        ("1g.35gb", H200, 4),
        ("3g.71gb", H200, 2),
        ("7g.141gb", H200, 1),
        ("1g.23gb", B200, 7),
        ("2g.45gb", B200, 3),
        ("3g.90gb", B200, 2),
        ("1g.6gb", A30, 4),
        ("2g.12gb", A30, 2),
        ("4g.24gb", A30, 1),
        ("1g.5gb+me", A100, 1),
        ("7g.80gb", A100, 0),
        ("1g.5gb", 0, 0),
        ("0g.5gb", A100, 0),
        ("nonsense", A100, 0),
    ],
)
def test_a_device_makes_so_many_instances(profile: str, memory_mib: int, count: int):
    """As in NVIDIA's tables of supported profiles."""
    assert instances_of(profile, memory_mib) == count


def test_nodes_with_the_same_devices_share_a_configuration():
    config, names = build_mig_configs("parts", "1g.10gb", PARTED)
    assert names[NodeName("n2")] == names[NodeName("n3")] != names[NodeName("n1")]
    assert config["version"] == "v1"
    assert config["mig-configs"][names[NodeName("n1")]] == [
        {"devices": [3], "mig-enabled": True, "mig-devices": {"1g.10gb": 4}},
        {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
    ]
    assert set(config["mig-configs"]) == set(names.values())


def test_another_profile_has_another_name():
    _, before = build_mig_configs("parts", "1g.10gb", PARTED)
    _, after = build_mig_configs("parts", "2g.20gb", PARTED)
    assert before[NodeName("n1")] != after[NodeName("n1")]
    assert len(before[NodeName("n1")]) <= 63


def test_devices_that_cannot_make_the_profile_are_left_alone():
    devices = {NodeName("n1"): (PartedDevice(index=0, memory_mib=A100),)}
    assert build_mig_configs("parts", "7g.80gb", devices) == (
        {"version": "v1", "mig-configs": {}},
        {},
    )
