"""What a device needs, by NVML's field 230."""

from pathlib import Path

import pytest

from agent.driver.port import EventKind
from inventory.health.recovery import RecoveryAction
from tests.component.agent.nvml_node import NvmlNode, nvml_node
from tests.support.nvml.library import a_device

RECOVERY_ACTION_EVENT = 32768
FIRST, OTHER = a_device(0, recovery_action=0), a_device(1)
UNKNOWN = RecoveryAction.UNKNOWN


async def actions(node: NvmlNode) -> list[RecoveryAction | None]:
    """Return those of a snapshot, which are those of an event, too."""
    devices = (await node.driver.read()).devices
    assert await node.driver.recovery_actions() == {
        device.uuid: device.recovery_action for device in devices if not device.is_lost
    }
    return [device.recovery_action for device in devices]


async def test_each_action_of_the_binding_is_known_and_a_later_one_is_not_none(tmp_path: Path):
    async with nvml_node(tmp_path, FIRST, OTHER) as node:
        found = []
        for number in range(9):
            node.nvml.ask_for(FIRST.uuid, number)
            found.append(await actions(node))
    nvmls = [action for action in RecoveryAction if action.name != "CHECK_COOLING"][:8]
    assert found == [[action, None] for action in (*nvmls, UNKNOWN)]


@pytest.mark.parametrize("code", [3, 15, 999])
async def test_a_field_that_fails_has_no_action(tmp_path: Path, code: int):
    async with nvml_node(tmp_path, FIRST, OTHER) as node:
        assert await actions(node) == [RecoveryAction.NONE, None]
        node.nvml.fail("nvmlDeviceGetFieldValues", code, times=-1)
        assert await actions(node) == [None, None]
        node.nvml.heal()
        assert await actions(node) == [RecoveryAction.NONE, None]


async def test_a_change_of_the_action_is_an_event(tmp_path: Path):
    device = a_device(0, events=RECOVERY_ACTION_EVENT, recovery_action=0)
    async with nvml_node(tmp_path, device) as node:
        await node.listen()
        node.nvml.emit(device.uuid, RECOVERY_ACTION_EVENT, 1)
        event = await node.event()
    assert (event.uuid, event.kind) == (device.uuid, EventKind.RECOVERY_ACTION)
