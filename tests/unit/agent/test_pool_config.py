"""The units of a node, from the pool's file."""

import gzip
import os
from pathlib import Path

import msgspec
import pytest

from agent.errors import BadPoolConfigError
from agent.plugin.advertised import AdvertisedUnits, Unit, advertised_units
from agent.plugin.pool_config import ConfigFile, read_config
from api.kinds.gpupool import SlicePlacement
from api.nodefiles.poolconfig import CONFIG_KEY, PACKED_CONFIG_KEY, ConfiguredDevice, PoolConfig

SMALL = PoolConfig(
    version="v1",
    pool="small",
    resource="gpu.deckhouse.io/small",
    slices=2,
    nodes={
        "n1": [
            ConfiguredDevice(uuid="GPU-2", numa_node=1),
            ConfiguredDevice(uuid="GPU-1", is_withheld=True),
        ],
        "n2": [ConfiguredDevice(uuid="GPU-3")],
    },
)


def test_a_node_offers_its_devices_by_id():
    units = (
        Unit(id="GPU-1::0", device="GPU-1", is_healthy=False),
        Unit(id="GPU-1::1", device="GPU-1", is_healthy=False),
        Unit(id="GPU-2::0", device="GPU-2", numa_node=1),
        Unit(id="GPU-2::1", device="GPU-2", numa_node=1),
    )
    assert advertised_units(SMALL, "n1") == [
        AdvertisedUnits("small", "gpu.deckhouse.io/small", units)
    ]


def test_a_pool_of_several_profiles_offers_a_resource_for_each():
    mixed = {"gpu.deckhouse.io/small.3g.40gb": ["MIG-1"], "gpu.deckhouse.io/small.1g.10gb": []}
    device = ConfiguredDevice(uuid="GPU-1", instances=[], parts=mixed)
    config = msgspec.structs.replace(SMALL, slices=1, nodes={"n1": [device]})
    assert advertised_units(config, "n1") == [
        AdvertisedUnits("small", resource, tuple(Unit(id=id_, device="GPU-1") for id_ in ids))
        for resource, ids in mixed.items()
    ]
    assert config.units_of(device) == ()  # to a reader that knows no parts


def test_the_placement_of_slices_is_that_of_the_pool():
    fractions = msgspec.structs.replace(SMALL, slice_placement="SameDevice")
    for config, placement in (
        (fractions, SlicePlacement.SAME_DEVICE),
        (SMALL, SlicePlacement.DISTINCT_DEVICES),
    ):
        (advertised,) = advertised_units(config, "n1")
        assert advertised.slice_placement is placement


def test_a_file_of_the_next_version_is_read_as_far_as_it_is_known(tmp_path: Path):
    newer = msgspec.to_builtins(msgspec.structs.replace(SMALL, slices=150)) | {
        "slicePlacement": "Scattered",
        "unheardOf": {"x": 1},
    }
    path = tmp_path / CONFIG_KEY
    path.write_bytes(msgspec.json.encode(newer))
    (found,) = advertised_units(read_config(path), "n1")
    assert len(found.units) == 300
    assert found.slice_placement is SlicePlacement.DISTINCT_DEVICES


def test_a_node_without_a_device_offers_the_resource_without_units():
    assert advertised_units(SMALL, "n3") == [AdvertisedUnits("small", "gpu.deckhouse.io/small", ())]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(b"", "is not a pool configuration", id="empty"),
        pytest.param(b"{", "is not a pool configuration", id="cut short"),
        pytest.param(b'{"version":"v9"}', "'v9'", id="a version that is not known"),
        pytest.param(
            b'{"version":"v1","pool":"p","resource":"r/p","nodes":{"n1":[{"uuid":""}]}}',
            "nodes",
            id="a device without a UUID",
        ),
        pytest.param(
            b'{"version":"v1","pool":"p","resource":"r/p","slices":0}', "slices", id="no slices"
        ),
        pytest.param(
            b'{"version":"v1","pool":"p","resource":"r/p","slices":1001}',
            "slices",
            id="more slices than any version offers",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_named(tmp_path: Path, content: bytes, complaint: str):
    path = tmp_path / CONFIG_KEY
    path.write_bytes(content)
    with pytest.raises(BadPoolConfigError, match=complaint) as bad:
        read_config(path)
    assert str(path) in str(bad.value)


def test_a_packed_file_that_is_cut_short_is_named(tmp_path: Path):
    packed = gzip.compress(msgspec.json.encode(SMALL))
    (tmp_path / PACKED_CONFIG_KEY).write_bytes(packed[:-20])
    with pytest.raises(BadPoolConfigError, match="cannot be read"):
        read_config(tmp_path / CONFIG_KEY)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(BadPoolConfigError, match="cannot be read"):
        read_config(tmp_path / CONFIG_KEY)


def test_a_file_is_read_when_it_changed_and_a_bad_one_once(tmp_path: Path):
    path = tmp_path / CONFIG_KEY
    file = ConfigFile(path)
    with pytest.raises(BadPoolConfigError):
        file.read_if_changed()
    assert file.read_if_changed() is None
    path.write_bytes(msgspec.json.encode(SMALL))
    assert file.read_if_changed() == SMALL
    assert file.read_if_changed() is None
    os.utime(path, (1, 1))
    assert file.read_if_changed() == SMALL


def test_a_directory_stands_for_the_file_in_it(tmp_path: Path):
    (tmp_path / CONFIG_KEY).write_bytes(msgspec.json.encode(SMALL))
    assert ConfigFile(tmp_path).read_if_changed() == SMALL


def test_fields_of_a_newer_writer_are_ignored():
    content = msgspec.json.encode({**msgspec.to_builtins(SMALL), "hints": {}})
    assert msgspec.json.decode(content, type=PoolConfig) == SMALL
