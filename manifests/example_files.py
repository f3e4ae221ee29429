"""The example manifests, shipped in the package: `manifests/examples/*.yaml`."""

import importlib.resources

_DIRECTORY = importlib.resources.files("manifests") / "examples"


def example_names() -> list[str]:
    """Return the names of the examples in the order in which they can be applied: pools first."""
    names = (
        entry.name.removesuffix(".yaml")
        for entry in _DIRECTORY.iterdir()
        if entry.name.endswith(".yaml")
    )
    return sorted(names, key=lambda name: (not name.startswith("pool-"), name))


def example_text(name: str) -> str:
    """Return the text of an example, with its comments.

    Raises:
        ValueError: there is no example of this name.
    """
    if name not in example_names():
        raise ValueError(f"there is no example {name!r}; there are {', '.join(example_names())}")
    return (_DIRECTORY / f"{name}.yaml").read_text(encoding="utf-8")
