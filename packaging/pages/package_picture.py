"""The picture of the packages at the top of docs/architecture.md, drawn from their imports.

    python -m pages.package_picture docs/images/packages.svg

A package stands above all that it imports; an arrow that follows from others is left out. `tests/unit/docs` fails where the
committed picture is not that of the tree.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grimp

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES: Final = tuple(
    sorted(
        path.parent.name
        for path in Path(__file__).parents[2].glob("*/__init__.py")
        if path.parent.name != "tests"
    )
)
_WIDTH, _BOX, _HEIGHT, _GAP = 960, 110, 30, 64
_STYLE: Final = """
  rect { fill: #eef3fb; stroke: #3b6ea8; }
  text { font: 13px sans-serif; text-anchor: middle; fill: #1b2733; }
  path { fill: none; stroke: #8a99a8; }
  @media (prefers-color-scheme: dark) {
    rect { fill: #1d2935; stroke: #7fb0e6; } text { fill: #e6edf3; } path { stroke: #5c6b7a; }
  }
"""


def imports_of_packages() -> "dict[str, frozenset[str]]":
    """Return the packages that each package imports when it runs: what only annotations need does not count."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    for package in PACKAGES:
        graph.squash_module(package)
    return {
        package: frozenset(graph.find_modules_directly_imported_by(package)) for package in PACKAGES
    }


def floors(imports: "Mapping[str, frozenset[str]]") -> "list[list[str]]":
    """Return the packages from the lowest floor up: each one floor above the highest that it imports."""
    floor: dict[str, int] = {}
    while len(floor) < len(imports):
        for package, below in imports.items():
            if below <= floor.keys():
                floor[package] = max((floor[other] + 1 for other in below), default=0)
    return [
        sorted(package for package in floor if floor[package] == number)
        for number in range(max(floor.values()) + 1)
    ]


def arrows(imports: "Mapping[str, frozenset[str]]") -> "list[tuple[str, str]]":
    """Return the imports that do not follow from others."""
    reached: dict[str, set[str]] = {}
    for package in (package for row in floors(imports) for package in row):
        below = imports[package]
        reached[package] = set(below).union(*(reached[other] for other in below))
    return [
        (package, other)
        for package, below in sorted(imports.items())
        for other in sorted(below)
        if not any(other in reached[between] for between in below)
    ]


def picture(imports: "Mapping[str, frozenset[str]]") -> str:
    """Return the picture as SVG, in light and dark colours."""
    rows = floors(imports)
    height = len(rows) * _GAP
    place = {
        package: (_WIDTH * (2 * column + 1) // (2 * len(row)), height - _GAP * (number + 1) + 10)
        for number, row in enumerate(rows)
        for column, package in enumerate(row)
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        ' aria-label="Packages, each above those that it imports">',
        f"<style>{_STYLE}</style>",
    ]
    for upper, lower in arrows(imports):
        (x, y), (to_x, to_y) = place[upper], place[lower]
        start, middle = y + _HEIGHT, (y + _HEIGHT + to_y) // 2
        lines.append(f'<path d="M{x} {start} C{x} {middle} {to_x} {middle} {to_x} {to_y}"/>')
    for package, (x, y) in place.items():
        lines += [
            f'<rect x="{x - _BOX // 2}" y="{y}" width="{_BOX}" height="{_HEIGHT}" rx="4"/>',
            f'<text x="{x}" y="{y + 20}">{package}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(imports_of_packages()), encoding="utf-8")
