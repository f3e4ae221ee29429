"""Derives, from CSI's published messages, the numbers and types that ours are compared with (`tests/data/csi.json`).

To make the file again, or of a newer version after editing `SOURCE`, in a clone of the repository at that version:

    .venv/bin/python -m tests.support.published_csi csi.proto
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

SOURCE: Final = "https://github.com/container-storage-interface/spec/blob/v1.9.0/csi.proto"
FACTS: Final = Path(__file__).parents[1] / "data" / "csi.json"


def facts_of(file: FileDescriptorProto) -> dict[str, Any]:
    """Return the package, and of each field and enumerated value the full name with its number, type and label."""
    return {"package": file.package, "numbers": _numbers(file.message_type)}


def _numbers(messages: Iterable[DescriptorProto], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for message in messages:
        name = f"{prefix}{message.name}."
        found |= {name + item.name: _shape(item) for item in message.field}
        for kind in message.enum_type:
            found |= _values(kind, name)
        found |= _numbers(message.nested_type, name)
    return found


def _shape(field: FieldDescriptorProto) -> list[int | str]:
    return [field.number, field.type, field.label, field.type_name]


def _values(kind: EnumDescriptorProto, prefix: str) -> dict[str, int]:
    return {f"{prefix}{kind.name}.{item.name}": item.number for item in kind.value}


def main(proto: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "descriptors")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{proto.resolve().parent}"]
        command += [f"--descriptor_set_out={target}", proto.name]
        subprocess.run(command, check=True, timeout=60)
        (file,) = FileDescriptorSet.FromString(target.read_bytes()).file
    facts = facts_of(file)
    lines = (f"  {json.dumps(name)}: {json.dumps(at)}" for name, at in facts["numbers"].items())
    head = f' "source": {json.dumps(SOURCE)},\n "package": {json.dumps(facts["package"])},\n'
    text = ",\n".join(lines)
    FACTS.write_text(f'{{\n{head} "numbers": {{\n{text}\n }}\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
