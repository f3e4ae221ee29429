"""The picture at the top of docs/architecture.md is that of the tree's imports."""

import os
from pathlib import Path

from pages.package_picture import arrows, floors, imports_of_packages, picture

PICTURE = Path(__file__).parents[3] / "docs" / "images" / "packages.svg"


def test_the_picture_is_that_of_the_imports():
    drawn = picture(imports_of_packages())
    if os.environ.get("UPDATE_GOLDEN"):
        PICTURE.write_text(drawn, encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == drawn, "run `make golden`"


def test_a_package_stands_above_what_it_imports_and_an_arrow_that_follows_is_left_out():
    imports = {
        "server": frozenset({"pool", "api"}),
        "pool": frozenset({"api"}),
        "kube": frozenset({"api"}),
        "api": frozenset[str](),
    }
    assert floors(imports) == [["api"], ["kube", "pool"], ["server"]]
    assert arrows(imports) == [("kube", "api"), ("pool", "api"), ("server", "pool")]
