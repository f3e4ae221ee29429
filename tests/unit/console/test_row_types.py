"""The page's types of rows are those that `console.rows` has: `make console` writes them."""

from pathlib import Path

import msgspec
import pytest
from typescript.row_types import row_types

from console.rows import ConsoleChange, NodeRowState, PoolRow

COMMITTED = Path(__file__).resolve().parents[3] / "console" / "web" / "src" / "rows.ts"
TYPES = row_types()


def test_the_committed_types_are_those_of_the_rows():
    assert COMMITTED.read_text(encoding="utf-8") == TYPES


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("  readonly mode: string;", id="a field without a default is always sent"),
        pytest.param("  readonly largestFree?: number;", id="a default is left out"),
        pytest.param("  readonly numaNode?: number;", id="None is left out, and never sent"),
        pytest.param("  readonly fits?: Readonly<Record<number, number>>;", id="a dict"),
        pytest.param("  readonly remedies?: readonly string[];", id="a tuple"),
        pytest.param("  readonly pools?: Readonly<Record<string, PoolRow | null>>;", id="a change"),
        pytest.param("  readonly state: NodeRowState;", id="an enum"),
    ],
)
def test_types_say_what_is_sent(line: str):
    assert line in TYPES.splitlines()


def test_values_of_enums_are_those_that_are_sent():
    values = " | ".join(msgspec.json.encode(state).decode() for state in NodeRowState)
    assert f"export type NodeRowState = {values};" in TYPES


def test_every_name_on_the_wire_is_a_field_of_its_type():
    pool = PoolRow(mode="MIG", resource="r", strategy="s", phase="p", largest_free=1)
    change = ConsoleChange(at="t", pools={"training": pool, "gone": None})
    sent = msgspec.json.decode(msgspec.json.encode(change))
    assert sent["pools"]["gone"] is None
    for name in [*sent, *sent["pools"]["training"]]:
        assert f"  readonly {name}: " in TYPES or f"  readonly {name}?: " in TYPES
