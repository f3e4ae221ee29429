"""docs/operations.md has every Event, and every condition of a node with the reasons that need an answer."""

from enum import Enum
from pathlib import Path

import pytest

from telemetry.conditions import (
    AgentDegraded,
    InventoryCondition,
    InventoryIncomplete,
    ReadyForPooling,
)
from telemetry.reasons import EventReason

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
GOOD = {AgentDegraded.AS_EXPECTED, InventoryIncomplete.COMPLETE}
EXPLAINED: list[type[Enum]] = [
    EventReason,
    InventoryCondition,
    InventoryIncomplete,
    ReadyForPooling,
    AgentDegraded,
]


@pytest.mark.parametrize(
    "name", [one.value for enum in EXPLAINED for one in enum if one not in GOOD]
)
def test_every_event_condition_and_reason_is_explained(name: str):
    assert f"`{name}`" in PAGE
