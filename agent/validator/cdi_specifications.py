"""CDI specifications of the node, read as a container runtime reads them.

github.com/cncf-tags/container-device-interface: files `*.json` and `*.yaml` of two directories, of which the later one
wins. A runtime drops a whole file for one error in it, and resolves no device that two files of one directory have.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec
import yaml

from api.field_errors import UNDECODABLE
from api.meta import Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DIRECTORIES: Final = ("/etc/cdi", "/var/run/cdi")
"""Directories on the node; where two have a device, the later directory wins."""
MAX_BYTES: Final = 1024 * 1024
"""The agent's own has 300 bytes a device and 20 KB of mounts; nvidia-ctk's are of the same order."""
_YAML: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_VERSION: Final = re.compile(r"v?(0\.[3-9]|1\.[0-9])\.\d+", re.ASCII)
_HOOKS: Final = frozenset(
    {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
)


class DeviceNode(Model, frozen=True):
    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None

    @property
    def on_node(self) -> str:
        return self.host_path or self.path


class CdiMount(Model, frozen=True):
    host_path: str
    container_path: str


class CdiHook(Model, frozen=True):
    hook_name: str
    path: str


class ContainerEdits(Model, frozen=True):
    device_nodes: list[DeviceNode] | None = None
    mounts: list[CdiMount] | None = None
    hooks: list[CdiHook] | None = None


class CdiDevice(Model, frozen=True):
    name: str
    container_edits: ContainerEdits = ContainerEdits()


class CdiSpecification(Model, frozen=True):
    """One file."""

    cdi_version: str
    kind: str
    devices: list[CdiDevice]
    container_edits: ContainerEdits = ContainerEdits()


@final
@dataclass(frozen=True, slots=True)
class CdiFile:
    """A file of one directory, and what it says: a specification, or why a runtime drops it."""

    path: Path
    specification: CdiSpecification | None
    fault: str = ""


@final
@dataclass(frozen=True, slots=True)
class ResolvedDevice:
    """A device as a runtime resolves it."""

    name: str
    path: Path
    """Path of its file."""
    edits: tuple[ContainerEdits, ...]
    """Its own, and those common to its file."""


def read_specifications(directory: Path) -> "Iterator[CdiFile]":
    """Yield the files of a directory by name; none where it is missing."""
    try:
        paths = sorted(directory.iterdir())
    except OSError:
        return
    for path in paths:
        if path.suffix in {".json", ".yaml"}:
            yield _read(path)


def resolve(
    kind: str, directories: "Iterable[Iterable[CdiFile]]"
) -> "dict[str, ResolvedDevice | None]":
    """Return the devices of a kind by name, the last directory winning; None for one with a conflict."""
    resolved: dict[str, ResolvedDevice | None] = {}
    for files in directories:
        here: dict[str, ResolvedDevice | None] = {}
        for file in files:
            found = file.specification
            if found is None or found.kind != kind:
                continue
            for device in found.devices:
                resolved_device = ResolvedDevice(
                    device.name, file.path, (device.container_edits, found.container_edits)
                )
                here[device.name] = None if device.name in here else resolved_device
        resolved |= here
    return resolved


def _read(path: Path) -> CdiFile:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        return CdiFile(path, None, f"it cannot be read: {error.strerror or error}")
    if len(content) > MAX_BYTES:
        return CdiFile(path, None, f"it is larger than {MAX_BYTES} bytes")
    try:
        # JSON first: it is YAML too, which takes a hundred times as long.
        parsed = msgspec.json.decode(content) if path.suffix == ".json" else yaml.safe_load(content)
        specification = msgspec.convert(parsed, CdiSpecification)
    except (*UNDECODABLE, yaml.YAMLError, RecursionError) as error:
        return CdiFile(path, None, " ".join(str(error).split()))
    fault = _fault_of(specification)
    return CdiFile(path, None if fault else specification, fault)


def _fault_of(specification: CdiSpecification) -> str:
    if not _VERSION.fullmatch(specification.cdi_version):
        return f"cdiVersion {specification.cdi_version!r} is not known"
    names = [device.name for device in specification.devices]
    if not names:
        return "it has no device"
    if len(set(names)) != len(names):
        return "it has two devices of one name"
    edits = [
        specification.container_edits,
        *(item.container_edits for item in specification.devices),
    ]
    hooks = {hook.hook_name for edit in edits for hook in edit.hooks or ()}
    if unknown := sorted(hooks - _HOOKS):
        return f"hookName {unknown[0]!r} is not known"
    return ""
