"""Manifests as YAML text: documents in the given order, keys in the order of the builders."""

from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


UNLIMITED: Final = 2**31 - 1
"""Width of lines that are never folded: the largest that the emitter in C takes."""
_BOOLEANS_OF_KUBECTL: Final = frozenset("yYnN")
"""Texts that are booleans to kubectl and Helm (YAML 1.1), but not to PyYAML."""


class ManifestDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # C where PyYAML has it
    """Multi-line texts as blocks, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:  # PyYAML's signature
        """Write repeated values out: `&id001` is hard to read and to diff."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Return a node that kubectl and Helm read as the same text."""
        style = "|" if "\n" in data else None
        if data in _BOOLEANS_OF_KUBECTL:
            style = "'"
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", data, style=style)
        return node


ManifestDumper.add_representer(str, ManifestDumper.represent_str)


def render(
    documents: "Iterable[Mapping[str, Any]]",
    *,
    dumper: type[ManifestDumper] = ManifestDumper,
    width: int = 100,
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
