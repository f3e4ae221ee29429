"""Our part of CSI's messages has the names and field numbers of the specification."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from api.csi.proto import csi_pb2

SPECIFICATION = "github.com/container-storage-interface/spec@v1.9.0/csi.proto"
"""A Go module cache has it where the cluster tests were built; its numbers are those of 1.10."""
NUMBERS = {
    "NodePublishVolumeRequest": {
        "volume_id": 1,
        "target_path": 4,
        "volume_capability": 5,
        "volume_context": 8,
    },
    "NodeUnpublishVolumeRequest": {"volume_id": 1, "target_path": 2},
    "NodeGetVolumeStatsRequest": {"volume_id": 1, "volume_path": 2},
    "VolumeUsage": {"available": 1, "total": 2, "used": 3, "unit": 4},
    "NodeGetInfoResponse": {"node_id": 1},
    "GetPluginInfoResponse": {"name": 1, "vendor_version": 2},
    "ProbeResponse": {"ready": 1},
}


def the_file() -> FileDescriptorProto:
    found = FileDescriptorProto()
    csi_pb2.DESCRIPTOR.CopyToProto(found)
    return found


@pytest.mark.parametrize("message", NUMBERS)
def test_fields_have_the_numbers_of_the_specification(message: str):
    found = csi_pb2.DESCRIPTOR.message_types_by_name[message]
    assert {field.name: field.number for field in found.fields} == NUMBERS[message]


def numbers_of(messages: "list[DescriptorProto]", prefix: str = "") -> dict[str, object]:
    """Return all fields and values of enumerations: their full name -> number, type and label."""
    found: dict[str, object] = {}
    for message in messages:
        name = f"{prefix}{message.name}."
        found |= {name + item.name: shape_of(item) for item in message.field}
        for kind in message.enum_type:
            found |= values_of(kind, name)
        found |= numbers_of(list(message.nested_type), name)
    return found


def shape_of(field: FieldDescriptorProto) -> tuple[int, int, int, str]:
    return field.number, field.type, field.label, field.type_name


def values_of(kind: EnumDescriptorProto, prefix: str) -> dict[str, object]:
    return {f"{prefix}{kind.name}.{item.name}": item.number for item in kind.value}


def test_every_name_is_in_the_specifications_own_file(tmp_path: Path):
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go, so no module cache with the specification")
    cache = subprocess.run(
        [go, "env", "GOMODCACHE"], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    specification = Path(cache, SPECIFICATION)
    if not specification.exists():
        pytest.skip(f"{specification} is not there: build the cluster tests' components first")
    (tmp_path / "csi.proto").write_bytes(specification.read_bytes())
    target = tmp_path / "descriptors"
    subprocess.run(
        [
            sys.executable,
            *("-m", "grpc_tools.protoc", f"-I{tmp_path}"),
            f"--descriptor_set_out={target}",
            "csi.proto",
        ],
        check=True,
        timeout=60,
    )
    (theirs,) = FileDescriptorSet.FromString(target.read_bytes()).file
    ours = the_file()
    assert ours.package == theirs.package
    assert (
        numbers_of(list(ours.message_type)).items() <= numbers_of(list(theirs.message_type)).items()
    )
