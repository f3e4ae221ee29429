"""docs/reference/labels-and-annotations.md is made from `api.names`.

UPDATE_GOLDEN=1 .venv/bin/pytest -q tests/unit/docs   # writes the pages of the reference
"""

import ast
import inspect
import itertools
from collections.abc import Iterator

from api import names
from tests.support.reference_page import cell, check_page, code, table

HEAD = """\
# Labels, annotations, taints and finalizers
Made from the names in the code by `make golden`. Names under `gpu.deckhouse.io` follow the [rules of API versions](../install.md#api-versions).
"""
PARTS = {
    "Labels": ("_LABEL", "_LABEL_PREFIX"),
    "Annotations": ("_ANNOTATION",),
    "Taints and scheduling gates": ("_TAINT", "_GATE"),
    "Finalizers": ("_FINALIZER",),
    "Conditions of pods": ("_CONDITION",),
}
WRITTEN_BY_PEOPLE = {
    "ASSIGNMENT_ANNOTATION",
    "IGNORE_LABEL",
    "MANAGED_LABEL",
    "PRESENT_LABEL",
    "TOPOLOGY_MANAGER_POLICY_LABEL",
    "TOPOLOGY_MANAGER_SCOPE_LABEL",
    "WORKLOAD_CONFIG_LABEL",
    "NVIDIA_PRESENT_LABEL",
    "OPERANDS_LABEL",
    "SIGNATURE_FORMAT_LABEL",
}
"""The others are the control plane's, Karpenter's or Kyverno's."""
PROTECTED = {*names.ENGINE_ANNOTATIONS, *names.GKM_ANNOTATIONS}


def descriptions() -> Iterator[tuple[str, str]]:
    """Yield the constants that have a docstring under them, with it."""
    for statement, following in itertools.pairwise(ast.parse(inspect.getsource(names)).body):
        if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
            text = ast.literal_eval(following.value)
            yield ast.unparse(statement.target), " ".join(text.split())


DESCRIPTIONS = dict(descriptions())


def names_ending_in(suffixes: tuple[str, ...]) -> Iterator[str]:
    for name in vars(names):
        if name.endswith(suffixes) and not name.startswith("_"):
            yield name


def text_of(name: str) -> str:
    """Return the docstring; names of the code are no names of the reader."""
    return DESCRIPTIONS[name].partition(" (`")[0].removesuffix(".") + "."


def rows(suffixes: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    for name in names_ending_in(suffixes):
        value = getattr(names, name)
        current = f"{value}…" if name.endswith("_PREFIX") else value
        writer = "you" if name in WRITTEN_BY_PEOPLE else ""
        if value in PROTECTED:
            writer = "control plane only"
        yield code(current), cell(text_of(name)), writer


def page() -> str:
    return HEAD + "".join(
        f"\n## {title}\n\n{table(('name', 'meaning', 'written by'), rows(suffixes))}"
        for title, suffixes in PARTS.items()
        if any(names_ending_in(suffixes))
    )


def test_the_reference_has_every_name_as_the_code_has_it():
    check_page("labels-and-annotations.md", page())


def test_every_name_is_described():
    found = {name for suffixes in PARTS.values() for name in names_ending_in(suffixes)}
    assert found - DESCRIPTIONS.keys() == set()
    assert found > WRITTEN_BY_PEOPLE
