"""Manifests as YAML text: documents in the given order, keys in the order of the builders."""

from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_BOOLEANS_OF_KUBECTL: Final = frozenset("yYnN")
"""To kubectl and Helm, but not to PyYAML, these are booleans (YAML 1.1)."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # PyYAML's signature
        """Write repeated values out: `&id001` is hard to read and to diff."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if text in _BOOLEANS_OF_KUBECTL:
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def render(documents: "Iterable[Mapping[str, Any]]") -> str:
    """Return the documents as one YAML stream; the same documents give the same text."""
    return yaml.dump_all(
        documents,
        Dumper=_Dumper,
        explicit_start=True,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=100,
    )
