"""Manifests of the states, shipped in the package: `operands/assets/<state>/NNNN_<kind>.yaml`, applied in their order."""

import copy
import importlib.resources
from functools import cache
from typing import Any

import yaml

Json = dict[str, Any]

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, where PyYAML has it: ten times as fast."""
_DIRECTORY = importlib.resources.files("operands") / "assets"


def asset_names(state: str) -> list[str]:
    """Return the file names of a state, in order; none of a state that brings nothing."""
    folder = _DIRECTORY / state
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted(entry.name for entry in entries if entry.name.endswith(".yaml"))


def load_assets(state: str) -> list[Json]:
    """Return the manifests of a state, to be changed by the caller."""
    return copy.deepcopy(_parsed(state))


@cache
def _parsed(state: str) -> list[Json]:
    texts = ((_DIRECTORY / state / name).read_text(encoding="utf-8") for name in asset_names(state))
    return [
        document for text in texts for document in yaml.load_all(text, _Loader)
    ]  # a safe loader
