"""docs/operations.md has every Event, and every condition of a node with the reasons that need an answer."""

from enum import Enum
from pathlib import Path

from telemetry import conditions
from telemetry.reasons import EventReason

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
GOOD = {conditions.AgentDegraded.AS_EXPECTED, conditions.InventoryIncomplete.COMPLETE}
EXPLAINED: list[type[Enum]] = [
    EventReason,
    conditions.InventoryCondition,
    conditions.InventoryIncomplete,
    conditions.ReadyForPooling,
    conditions.AgentDegraded,
]


def test_every_event_condition_and_reason_is_explained():
    names = [reason.value for enum in EXPLAINED for reason in enum if reason not in GOOD]
    assert names
    assert [name for name in names if f"`{name}`" not in PAGE] == []
