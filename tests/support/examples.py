"""The example manifests as objects."""

from typing import Any

import yaml

from manifests.example_files import example_text


def load_example(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(example_text(name)))
