"""A file of settings, whole or broken."""

from pathlib import Path

import yaml


def a_file(tmp_path: Path, content: object) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file
