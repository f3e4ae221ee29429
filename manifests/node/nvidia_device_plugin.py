"""NVIDIA's k8s-device-plugin in place of ours: its configuration file, and its container.

It serves whole cards and time slices. The image needs four changes against upstream, each of which
upstream refuses or does not do: resources with a prefix of ours, a prefix from NVIDIA_RESOURCE_PREFIX, UUIDs
in `pattern` (upstream matches product names), and cards that match no pattern left out instead of an
error, as a node has cards of several pools and of none.
What it cannot do: MIG pools (it takes all instances of a profile on the node), and reading its file again
(each change of the pool's cards restarts it; running pods keep their cards). Cards that are withheld are
left out of its list.
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
    """Return the plugin's file: the cards of all nodes of the pool, since it takes those that it finds."""
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
        # A pattern is a glob; one that matches nothing keeps a pool without a card from taking all.
        "resources": {"gpus": [{"pattern": uuid, "name": name} for uuid in uuids or ["^$"]]},
    }
    if config.slices > 1:
        content["sharing"] = {
            "timeSlicing": {"resources": [{"name": name, "replicas": config.slices}]}
        }
    return content


def build_nvidia_container(image: str, file: str, mounts: "Sequence[Mapping[str, Any]]") -> Json:
    """Return the plugin's container; it finds cards through NVIDIA's runtime."""
    return {
        "name": constants.DEVICE_PLUGIN,
        "image": image,
        "args": [f"--config-file={file}"],
        "env": [
            {"name": "NVIDIA_RESOURCE_PREFIX", "value": RESOURCE_PREFIX.removesuffix("/")},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        ],
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [dict(one) for one in mounts],
    }
