"""The example manifests as objects, and a device."""

from pathlib import Path
from typing import Any

import yaml

from manifests.example_files import example_text

_DEVICE = Path(__file__).parents[1] / "data" / "gpudevice.yaml"


def load_example(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(example_text(name)))


def load_device() -> dict[str, Any]:
    """Return a GPUDevice as the inventory writes it."""
    found: dict[str, Any] = yaml.safe_load(_DEVICE.read_text(encoding="utf-8"))
    return found
