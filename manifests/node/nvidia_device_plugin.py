"""NVIDIA's k8s-device-plugin in place of ours: its configuration file and its container.

It serves whole devices and time slices. The image needs four changes against upstream, each of
which upstream refuses or lacks: resources with our prefix, a prefix from NVIDIA_RESOURCE_PREFIX,
UUIDs in `pattern` (upstream matches product names), and no error for devices that match no pattern,
since a node has devices of several pools and of none. It supports no MIG pools (it serves all
instances of a profile on the node), and does not reload its file: each change of the pool's devices
restarts it, while running pods keep theirs. Withheld devices are left out of its list.
"""

from typing import TYPE_CHECKING, Any, Final

from api.names import RESOURCE_PREFIX
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.nodefiles.poolconfig import PoolConfig

Json = dict[str, Any]

NVIDIA_CONFIG_KEY: Final = "config.yaml"


def build_nvidia_config(config: "PoolConfig") -> Json:
    """Return the plugin's file: the devices of all nodes of the pool; it serves those that it finds."""
    name = config.resource.removeprefix(RESOURCE_PREFIX)
    uuids = sorted(
        device.uuid
        for devices in config.nodes.values()
        for device in devices
        if not device.is_withheld
    )
    content: Json = {
        "version": "v1",
        "flags": {
            "migStrategy": "none",
            "failOnInitError": False,
            "plugin": {
                "passDeviceSpecs": True,
                "deviceListStrategy": ["envvar"],
                "deviceIDStrategy": "uuid",
            },
        },
        # A pattern is a glob; one that matches nothing keeps a pool without devices from taking all.
        "resources": {"gpus": [{"pattern": uuid, "name": name} for uuid in uuids or ["^$"]]},
    }
    if config.slices > 1:
        content["sharing"] = {
            "timeSlicing": {"resources": [{"name": name, "replicas": config.slices}]}
        }
    return content


def build_nvidia_container(image: str, file: str, mounts: "Sequence[Mapping[str, Any]]") -> Json:
    """Return the plugin's container; it finds devices through NVIDIA's runtime."""
    return {
        "name": constants.DEVICE_PLUGIN,
        "image": image,
        "args": [f"--config-file={file}"],
        "env": [
            {"name": "NVIDIA_RESOURCE_PREFIX", "value": RESOURCE_PREFIX.removesuffix("/")},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        ],
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [dict(mount) for mount in mounts],
    }
