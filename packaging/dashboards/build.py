"""Write the dashboards: `python -m dashboards.build DIRECTORY`.

JSON files there that no board has made are deleted.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dashboards.cache_board import CACHE_BOARD
from dashboards.control_plane_board import CONTROL_PLANE_BOARD
from dashboards.fleet_board import FLEET_BOARD
from dashboards.layout import board_text
from dashboards.node_board import NODE_BOARD
from dashboards.pools_board import POOLS_BOARD
from dashboards.usage_board import USAGE_BOARD
from dashboards.workload_board import WORKLOAD_BOARD

if TYPE_CHECKING:
    from collections.abc import Sequence

BOARDS: Final = (
    POOLS_BOARD,
    FLEET_BOARD,
    CONTROL_PLANE_BOARD,
    USAGE_BOARD,
    NODE_BOARD,
    WORKLOAD_BOARD,
    CACHE_BOARD,
)


def build_dashboards() -> dict[str, str]:
    """Return the JSON of each dashboard by the name of its file."""
    return {f"{board.uid}.json": board_text(board) for board in BOARDS}


def main(arguments: "Sequence[str]") -> int:
    (directory,) = map(Path, arguments)
    built = build_dashboards()
    for file in directory.glob("*.json"):
        if file.name not in built:
            file.unlink()
    for name, text in built.items():
        (directory / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
