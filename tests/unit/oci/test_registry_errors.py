"""The tree of errors is the one that its docstring draws, and each status has its class."""

import inspect
import re

from oci import errors


def test_the_drawing_is_the_tree() -> None:
    assert errors.__doc__
    drawn = re.findall(r"^([ │├└─]+)(\w+)", errors.__doc__, re.MULTILINE)
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for indent, name in drawn:
        if not hasattr(errors, name):
            continue
        while above and above[-1][0] >= len(indent):
            above.pop()
        found[name] = above[-1][1] if above else "Exception"
        above.append((len(indent), name))
    real = {
        name: kind.__base__.__name__
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__ and kind.__base__ is not None
    }
    assert found == real


def test_what_passes_is_what_is_worth_another_attempt() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    ours = [kind for kind in kinds if issubclass(kind, errors.RegistryError)]
    assert {kind.__name__ for kind in ours if kind.is_transient} == {
        "RegistryUnreachable",
        "RegistryTimedOut",
        "RateLimited",
        "RegistryFailed",
    }


def test_foreign_text_is_one_line_and_short() -> None:
    error = errors.ContentNotFound("r/a:1", "x\n" * 10_000, "do this", status=404)
    assert "\n" not in str(error)
    assert len(str(error)) < 600
    assert str(error).endswith("; do this")
