"""A look through NVML: what it shows of devices, of the devices that it does not reach, and of old drivers."""

from pathlib import Path

from agent.driver.port import DriverDevice, DriverInstance, DriverLink, LinkType, Profile
from tests.component.agent.nvml_node import nvml_node
from tests.support.nvml.library import a_device

FIRST, SECOND, THIRD = (a_device(number) for number in range(3))


async def test_device_is_read_in_full(tmp_path: Path) -> None:
    device = a_device(3, address="00000000:3B:00.0", temperature=55, ecc=2, remap_failed=True)
    async with nvml_node(tmp_path, device) as node:
        node.nvml.run_process(device.uuid, 100)
        node.nvml.set(device.uuid, graphics_processes="100,101", mps_processes="102")
        snapshot = await node.driver.read()
    assert (snapshot.driver_version, snapshot.cuda_version) == ("570.86.15", "12.8")
    assert snapshot.devices == (
        DriverDevice(
            address="0000:3b:00.0",
            uuid=device.uuid,
            minor=3,
            product="NVIDIA H100 80GB HBM3",
            memory_mib=81559,
            compute_capability="9.0",
            power_limit_watts=650,
            max_power_limit_watts=700,
            is_mig_capable=True,
            profiles=(
                Profile(name="1g.10gb", capacity=7),
                Profile(name="2g.20gb", capacity=3),
                Profile(name="3g.40gb", capacity=2),
                Profile(name="4g.40gb", capacity=1),
                Profile(name="7g.80gb", capacity=1),
                Profile(name="1g.10gb+me", capacity=1),
                Profile(name="1g.20gb", capacity=4),
            ),
            processes=3,
            temperature_celsius=55,
            shutdown_temperature_celsius=95,
            uncorrectable_errors=2,
            is_row_remap_failed=True,
        ),
    )


async def test_instances_and_their_processes_are_read(tmp_path: Path) -> None:
    device = a_device(0, is_mig_enabled=True)
    async with nvml_node(tmp_path, device) as node:
        node.nvml.set(
            device.uuid,
            **{
                "gi.1": "2 0",
                "ci.1.0": "3 MIG-whole",
                "gi.7": "0 4",
                "gi.8": "2 5",
                "ci.8.0": "1 MIG-part",
                "ci.8.1": "2 MIG-rest",
                "busy.8": "7,8",
            },
        )
        found = await node.device(device.uuid)
    assert found.is_mig_enabled
    assert found.instances == (
        DriverInstance(gpu_instance=1, profile="3g.40gb", uuid="MIG-whole", compute_instance=0),
        DriverInstance(gpu_instance=7, profile="1g.10gb"),
        DriverInstance(gpu_instance=8, profile="1c.3g.40gb", uuid="MIG-part", compute_instance=0),
    )
    assert found.processes == 2


async def test_mode_that_waits_for_a_reset_is_reported(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        node.nvml.set(FIRST.uuid, **{"mig.pending": 1})
        found = await node.device(FIRST.uuid)
    assert (found.is_mig_enabled, found.is_mig_pending) == (False, True)


async def test_links_are_counted_and_devices_come_by_address(tmp_path: Path) -> None:
    first = a_device(
        0, nvlinks=("0000:11:00.0", "inactive", "0000:11:00.0"), topology={1: 50, 2: 30}
    )
    second = a_device(1, nvlinks=("0000:10:00.0", "0000:10:00.0", "inactive"))
    third = a_device(2, address="00000000:02:00.0", topology={1: 10})
    async with nvml_node(tmp_path, first, second, third) as node:
        devices = (await node.driver.read()).devices
    assert [device.address for device in devices] == [
        "0000:02:00.0",
        "0000:10:00.0",
        "0000:11:00.0",
    ]
    assert [device.links for device in devices] == [
        (DriverLink("0000:10:00.0", LinkType.PHB), DriverLink("0000:11:00.0", LinkType.PIX)),
        (DriverLink("0000:02:00.0", LinkType.PHB), DriverLink("0000:11:00.0", LinkType.NVLINK, 2)),
        (DriverLink("0000:02:00.0", LinkType.PIX), DriverLink("0000:10:00.0", LinkType.NVLINK, 2)),
    ]


async def test_devices_at_nvswitches_are_linked(tmp_path: Path) -> None:
    devices = [a_device(number, nvlinks=("switch",) * 18, topology={0: 50}) for number in range(2)]
    async with nvml_node(tmp_path, *devices) as node:
        found = await node.device(devices[1].uuid)
    assert found.links == (DriverLink("0000:10:00.0", LinkType.NVLINK, 18),)


async def test_plain_device_has_no_value_for_unsupported_facts(tmp_path: Path) -> None:
    device = a_device(
        0,
        is_mig_capable=False,
        ecc=None,
        remap_failed=None,
        power_watts=None,
        max_power_watts=None,
        shutdown_temperature=None,
        temperature=None,
    )
    async with nvml_node(tmp_path, device) as node:
        node.nvml.set(device.uuid, name=None, memory=None, capability=None, minor=None)
        found = await node.device(device.uuid)
    assert found == DriverDevice(address="0000:10:00.0", uuid=device.uuid, minor=-1, product="")


async def test_old_driver_lacks_functions_and_devices_are_read(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST, SECOND, defines=("OLD_DRIVER",)) as node:
        snapshot = await node.driver.read()
    assert [device.uuid for device in snapshot.devices] == [FIRST.uuid, SECOND.uuid]
    assert snapshot.devices[0].memory_mib == 81559
    assert not snapshot.devices[0].is_mig_capable


async def test_lost_device_is_known_by_name_and_spoils_nothing(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST, SECOND, THIRD) as node:
        before = (await node.driver.read()).devices
        node.nvml.lose(SECOND.uuid)
        after = (await node.driver.read()).devices
        assert after[1] == DriverDevice(
            address="0000:11:00.0", uuid=SECOND.uuid, minor=1, product="", is_lost=True
        )
        assert (after[0], after[2]) == (before[0], before[2])
        node.nvml.find(SECOND.uuid)
        assert (await node.driver.read()).devices == before


async def test_device_that_is_lost_halfway_is_lost(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST, SECOND) as node:
        node.nvml.fail("nvmlDeviceGetName", 15, skip=1)
        devices = (await node.driver.read()).devices
    assert [device.is_lost for device in devices] == [False, True]


async def test_device_that_was_lost_before_the_first_look_is_not_guessed(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST, SECOND) as node:
        node.nvml.lose(FIRST.uuid)
        assert [device.uuid for device in (await node.driver.read()).devices] == [SECOND.uuid]


async def test_one_unknown_field_costs_that_field(tmp_path: Path) -> None:
    async with nvml_node(tmp_path, FIRST) as node:
        node.nvml.fail("nvmlDeviceGetTemperature", 999, times=-1)
        found = await node.device(FIRST.uuid)
    assert (found.temperature_celsius, found.memory_mib) == (None, 81559)
