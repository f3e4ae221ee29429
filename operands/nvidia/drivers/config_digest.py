"""The digest of what a driver's pod installs on its node (`DRIVER_CONFIG_DIGEST`).

Two pods with one digest load the same modules. The upgrade then replaces the pod and leaves the pods of users alone, and
the driver's container and k8s-driver-manager, which find the digest in their environment, leave the modules loaded.

In the digest: image, command, arguments, plain variables, Secrets of variables, and mounts with what they show, of each
container that installs something. Not in it: probes, resources, pull policies, labels, annotations, tolerations, priority,
security contexts, the network, and all of k8s-driver-manager, which decides how a node is emptied and installs nothing.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from operands.transforms import pod_spec_of, set_env

if TYPE_CHECKING:
    from collections.abc import Collection

Json = dict[str, Any]

DIGEST_VARIABLE: Final = "DRIVER_CONFIG_DIGEST"
PROBE_VOLUME: Final = "driver-startup-probe-script"


def config_digest(daemon_set: Json) -> str:
    """Return the digest of the pods of a DaemonSet, in its final form."""
    spec = pod_spec_of(daemon_set)
    sources = {item["name"]: _source(item) for item in spec.get("volumes", ())}
    content = [_installed(container, sources) for container in spec["containers"]]
    encoded = msgspec.json.encode(content, order="sorted")
    return hashlib.sha256(encoded).hexdigest()


def set_config_digest(daemon_set: Json, containers: "Collection[str]") -> None:
    """Tell the containers, init containers among them, the digest."""
    spec = pod_spec_of(daemon_set)
    digest = config_digest(daemon_set)
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        if container["name"] in containers:
            set_env(container, {DIGEST_VARIABLE: digest})


def _installed(container: Json, sources: Mapping[str, list[str]]) -> Json:
    mounts = (item for item in container.get("volumeMounts", ()) if item["name"] != PROBE_VOLUME)
    secrets = (item.get("secretRef", {}).get("name", "") for item in container.get("envFrom", ()))
    return {
        "name": container["name"],
        "image": container["image"],
        "command": container.get("command", []),
        "args": container.get("args", []),
        "env": _literal_values(container.get("env", ())),
        "secrets": sorted(secrets),
        "mounts": sorted(
            [mount["mountPath"], mount.get("subPath", ""), *sources[mount["name"]]]
            for mount in mounts
        ),
    }


def _literal_values(variables: Iterable[Json]) -> list[list[str]]:
    return sorted(
        [variable["name"], variable.get("value", "")]
        for variable in variables
        if "valueFrom" not in variable and variable["name"] != DIGEST_VARIABLE
    )


def _source(volume: Json) -> list[str]:
    """Return the kind and the name of what a volume shows."""
    if "configMap" in volume:
        return ["configMap", volume["configMap"]["name"]]
    if "secret" in volume:
        return ["secret", volume["secret"]["secretName"]]
    return ["hostPath", volume["hostPath"]["path"]]
