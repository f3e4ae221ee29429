"""The example manifests, shipped in the package: `manifests/examples/*.yaml`."""

import importlib.resources
import re
import textwrap
from typing import Final

CACHE_REPOSITORY: Final = "example-cache:1.0"
"""Repository and tag of the image of the examples' kernel caches."""
_DIRECTORY = importlib.resources.files("manifests") / "examples"
_REGISTRY: Final = "registry.example.com"
_KEY: Final = re.compile(r"( *)-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----\n", re.DOTALL)


def example_names() -> list[str]:
    """Return the names of the examples in the order in which they can be applied: namespaces and pools first."""
    names = (
        entry.name.removesuffix(".yaml")
        for entry in _DIRECTORY.iterdir()
        if entry.name.endswith(".yaml")
    )
    return sorted(
        names, key=lambda name: (name != "namespaces", not name.startswith("pool-"), name)
    )


def example_text(name: str) -> str:
    """Return the text of an example, with its comments.

    Raises:
        ValueError: there is no example of this name.
    """
    if name not in example_names():
        raise ValueError(f"there is no example {name!r}; there are {', '.join(example_names())}")
    return (_DIRECTORY / f"{name}.yaml").read_text(encoding="utf-8")


def all_examples(*, registry: str = _REGISTRY, public_pem: str = "") -> str:
    """Return all of them as one stream, with the registry of the caches' image and the key that signed it."""
    text = "---\n".join(map(example_text, example_names()))
    text = text.replace(f"{_REGISTRY}/{CACHE_REPOSITORY}", f"{registry}/{CACHE_REPOSITORY}")
    if not public_pem:
        return text
    return _KEY.sub(lambda found: textwrap.indent(public_pem, found[1]), text)
