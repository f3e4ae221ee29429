"""What a device needs after an Xid, and what is said of each action."""

from pathlib import Path

import pytest

from inventory.health.recovery import CURES, ActionSource, RecoveryAction, action_of_xid

NONE, RESET, UNKNOWN = RecoveryAction.NONE, RecoveryAction.GPU_RESET, RecoveryAction.UNKNOWN
REBOOT = RecoveryAction.NODE_REBOOT


@pytest.mark.parametrize(
    ("code", "expected"),
    [(13, NONE), (63, NONE), (94, NONE), (48, RESET), (109, RESET), (119, RESET), (79, REBOOT)],
)
def test_the_catalog_counts_where_the_driver_has_no_action(code: int, expected: RecoveryAction):
    xid_action = action_of_xid(code)
    assert (xid_action.action, xid_action.source) == (expected, ActionSource.CATALOG)


@pytest.mark.parametrize("code", [0, 1, 61, 65_535])
def test_an_xid_that_no_table_knows_is_not_none(code: int):
    assert action_of_xid(code).action is UNKNOWN
    assert action_of_xid(code).source is ActionSource.UNLISTED


@pytest.mark.parametrize(
    ("code", "version", "reported", "expected"),
    [
        pytest.param(119, "570.1", NONE, NONE, id="the driver needs nothing"),
        pytest.param(31, "570.1", REBOOT, REBOOT, id="it needs more than the catalog says"),
        pytest.param(109, "565.57.01", NONE, RESET, id="it derives no action from that Xid yet"),
        pytest.param(109, "565.57.01", REBOOT, REBOOT, id="it needs something for another reason"),
        pytest.param(109, "", NONE, NONE, id="nobody knows its version"),
        pytest.param(999, "570.1", NONE, NONE, id="it knows an Xid that the catalog does not"),
        pytest.param(31, "570.1", UNKNOWN, UNKNOWN, id="it does not say it"),
    ],
)
def test_the_drivers_action_counts_more_than_the_catalog(
    code: int, version: str, reported: RecoveryAction, expected: RecoveryAction
):
    assert action_of_xid(code, reported=reported, driver_version=version).action is expected


@pytest.mark.parametrize("reported", [None, NONE, REBOOT])
def test_a_setting_counts_more_than_both(reported: RecoveryAction | None):
    xid_action = action_of_xid(94, reported=reported, actions={94: RESET})
    assert (xid_action.action, xid_action.source) == (RESET, ActionSource.SETTING)


def test_each_action_has_a_cure_and_a_row():
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    for action in RecoveryAction:
        assert CURES[action]
        if action is not NONE:
            assert f"\n| `{action.value}` | none | are left alone" in page
