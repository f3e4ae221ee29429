"""One setting leaves all operands of a node to another operator."""

import time
from typing import TYPE_CHECKING

from tests.cluster.environment import polling
from tests.cluster.node.operands.switches import DAEMON_SETS, GONE_WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.node.operands.operand_pods import OperandPods
    from tests.cluster.node.operands.switches import SwitchedSystem


async def test_operands_that_are_left_to_others_go_and_the_node_stays_ready(
    operands: "OperandPods",
    installed_with_operands: "SwitchedSystem",
    progress: "Callable[[str], None]",
):
    for state in DAEMON_SETS:
        await operands.ready(state)
    await installed_with_operands.switch(operands="External")
    started = time.monotonic()
    await operands.gone(DAEMON_SETS)
    took = time.monotonic() - started
    progress(f"all operands were left to others: gone after {took:.1f} s")
    assert took <= GONE_WITHIN_S

    async def is_ready_without() -> bool:
        assert await operands.current() == {}
        return (await operands.conditions())["ReadyForPooling"] == "True"

    await polling.eventually(is_ready_without, what="a ready node without operands")
