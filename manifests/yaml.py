"""Manifests as YAML text: documents in the given order, keys in the order of the builders."""

from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_BOOLEANS_OF_KUBECTL: Final = frozenset("yYnN")
"""To kubectl and Helm, but not to PyYAML, these are booleans (YAML 1.1)."""


class ManifestDumper(yaml.SafeDumper):
    """Multi-line texts as blocks, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:  # PyYAML's signature
        """Write repeated values out: `&id001` is hard to read and to diff."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Return a node that kubectl and Helm read as the same text."""
        style = "|" if "\n" in data else None
        if data in _BOOLEANS_OF_KUBECTL:
            style = "'"
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


ManifestDumper.add_representer(str, ManifestDumper.represent_str)


def render(
    documents: "Iterable[Mapping[str, Any]]",
    *,
    dumper: type[ManifestDumper] = ManifestDumper,
    width: float = 100,
) -> str:
    """Return the documents as one YAML stream; the same documents give the same text."""
    return yaml.dump_all(
        documents,
        Dumper=dumper,
        explicit_start=True,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=width,
    )
