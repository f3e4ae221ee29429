"""The node's CDI specification: the edits of a container runtime for a device or MIG instance.

One file for the kind, replaced at once: a CDI device for every device and every MIG instance, named by UUID, and
the edits common to all. Format: github.com/cncf-tags/container-device-interface, SPEC.md, version 0.6.0, which
containerd since 1.7 and CRI-O since 1.23 read.

A runtime drops a whole file for one error in it, so only valid entries are written: names are checked, a device
without its files is left out, and a specification without any device is no file at all.

A hook updates the linker's cache, where NVIDIA's program for it is on the node. Without it LD_LIBRARY_PATH finds
the libraries, which NVIDIA's images set.
"""

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from agent.driver.libraries import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.driver.device_files import DeviceFile, DeviceFiles
    from agent.driver.libraries import DriverFiles
    from api.nodefiles.node_devices_file import NodeDevices, NodeInstance

VERSION: Final = "0.6.0"
_NOTHING_MORE: Final = "NVIDIA_VISIBLE_DEVICES=void"
"""Marker for an image with the value `all`: NVIDIA's own hook, where it is installed, would add every device."""
_MOUNT_OPTIONS: Final = ("ro", "nosuid", "nodev", "bind")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)
_KIND: Final = re.compile(
    r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?", re.ASCII
)


def file_name(kind: str) -> str:
    """Return the name of the file for a kind.

    Raises:
        ValueError: it is not a CDI kind, `<vendor>/<class>`.
    """
    if not _KIND.fullmatch(kind):
        raise ValueError(f"{kind!r} is not a CDI kind: it must be <vendor>/<class>")
    return f"{kind.replace('/', '-')}.json"


def build_specification(
    kind: str, gpus: "NodeDevices", *, files: "DeviceFiles", driver: "DriverFiles"
) -> bytes | None:
    """Return the file, the same for the same facts; None without any device.

    Args:
        kind: `<vendor>/<class>`.
        gpus: of the node; their health does not matter to a runtime.
        files: their device files.
        driver: libraries and programs.
    """
    uuids = [uuid for gpu in gpus.devices for uuid in (gpu.uuid, *_instances(gpu.instances))]
    devices = [
        {"name": uuid, "containerEdits": {"deviceNodes": _nodes(files.by_uuid[uuid])}}
        for uuid in dict.fromkeys(uuids)
        if _NAME.fullmatch(uuid) and files.by_uuid.get(uuid)
    ]
    if not devices:
        return None
    specification = {
        "cdiVersion": VERSION,
        "kind": kind,
        "devices": devices,
        "containerEdits": _common(files.shared, driver),
    }
    return msgspec.json.format(msgspec.json.encode(specification), indent=1) + b"\n"


def _instances(instances: "Iterable[NodeInstance] | None") -> list[str]:
    return [instance.uuid for instance in instances or ()]


def _common(shared: "Sequence[DeviceFile]", driver: "DriverFiles") -> dict[str, Any]:
    common: dict[str, Any] = {"env": [_NOTHING_MORE]}
    if shared:
        common["deviceNodes"] = _nodes(shared)
    if driver.mounts:
        common["mounts"] = [
            {
                "hostPath": mount.host_path,
                "containerPath": mount.container_path,
                "options": list(_MOUNT_OPTIONS),
            }
            for mount in driver.mounts
        ]
    if driver.hook is not None and driver.has_libraries:
        common["hooks"] = [
            {
                "hookName": "createContainer",
                "path": driver.hook,
                "args": ["nvidia-cdi-hook", "update-ldcache", "--folder", LIBRARIES],
            }
        ]
    return common


def _nodes(files: "Iterable[DeviceFile]") -> list[dict[str, Any]]:
    return [_node(file) for file in files]


def _node(file: "DeviceFile") -> dict[str, Any]:
    node: dict[str, Any] = {"path": file.path}
    if file.host_path != file.path:
        node["hostPath"] = file.host_path
    return node | {
        "type": file.type,
        "major": file.major,
        "minor": file.minor,
        "permissions": "rw",
    }
