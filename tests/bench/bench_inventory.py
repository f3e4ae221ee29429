"""From labels and features to devices: a cold start, the steady state, and one label at a time.

Correct: every GPU has its GPUDevice with a UUID and every node its inventory before the clock stops, each
object took two writes, and looking at every node again takes none.
"""

from typing import TYPE_CHECKING

from tests.bench.processes import api_server, inventory_process
from tests.bench.report import Result, at_most, checked
from tests.bench.sizes import ClusterSize
from tests.bench.world import DEVICES

if TYPE_CHECKING:
    from tests.bench.sizes import Sizes

COLD_CPU_S = 60


async def measure(sizes: "Sizes") -> list[Result]:
    """Take stock of a small cluster and of a large one."""
    small, large = sizes.inventory_nodes
    base_ms, _ = _at(small, sizes)
    changed_ms, results = _at(large, sizes)
    return [
        *results,
        Result(
            subject="inventory",
            case=f"one label changes at {large:,} nodes, beside {small:,}",
            samples=sizes.label_changes,
            p50_ms=changed_ms,
            base_p50_ms=base_ms,
            ratio=changed_ms / base_ms,
            aims=(at_most("ratio", 1.2),),
        ),
    ]


def _at(nodes: int, sizes: "Sizes") -> tuple[float, list[Result]]:
    """Return the processor time of a label's change in milliseconds, and the results of the rest."""
    size = ClusterSize(nodes=nodes, pods=0)
    with api_server(size, "--found") as api:
        api.take_writes()
        with inventory_process(api.url, nodes) as taker:
            cold = taker.says()
            cold_writes = api.take_writes()
            assert cold_writes == 2 * nodes * (DEVICES + 1), cold_writes
            checked("writes of the start")
            again = taker.does("again")
            steady_writes = api.take_writes()
            changed = taker.does(f"labels {sizes.label_changes}")
    case = f"{nodes:,} nodes, {nodes * DEVICES:,} devices"
    return changed["cpu_ms"], [
        Result(
            subject="inventory",
            case=f"cold start, {case}",
            samples=1,
            p50_ms=cold["wall_s"] * 1e3,
            cpu_s=cold["cpu_s"],
            writes=cold_writes,
            rss_mib=cold["rss_mib"],
            growth_mib=cold["growth_mib"],
            aims=(at_most("cpu_s", COLD_CPU_S),),
        ),
        Result(
            subject="inventory",
            case=f"every node again, {case}",
            samples=1,
            cpu_s=again["cpu_s"],
            writes=steady_writes,
            aims=(at_most("writes", 0),),
        ),
    ]
