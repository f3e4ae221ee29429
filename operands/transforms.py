"""Changes of manifests that any state may need."""

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.names import CONFIG_HASH_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json = dict[str, Any]

RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    # Directories of the node are root's.
    "runAsUser": 0,
    "runAsGroup": 0,
}
"""Security context of a container that needs no rights on its node."""


def object_of(objects: "Sequence[Json]", kind: str) -> Json:
    """Return the only object of a kind."""
    (found,) = (object_ for object_ in objects if object_["kind"] == kind)
    return found


def pod_spec_of(daemon_set: Json) -> Json:
    found: Json = daemon_set["spec"]["template"]["spec"]
    return found


def container_of(daemon_set: Json, name: str) -> Json:
    """Return a container, or an init container, of a DaemonSet by its name."""
    spec = pod_spec_of(daemon_set)
    (found,) = (
        container
        for container in (*spec["containers"], *spec.get("initContainers", ()))
        if container["name"] == name
    )
    result: Json = found
    return result


def without_container(daemon_set: Json, name: str) -> None:
    """Remove a container or an init container, and the list that it leaves empty."""
    spec = pod_spec_of(daemon_set)
    for key in ("containers", "initContainers"):
        spec[key] = [item for item in spec.get(key, ()) if item["name"] != name]
        if not spec[key]:
            del spec[key]


def without_volume(daemon_set: Json, name: str) -> None:
    """Remove a volume and its mounts."""
    spec = pod_spec_of(daemon_set)
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != name]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["volumeMounts"] = [
            mount for mount in container["volumeMounts"] if mount["name"] != name
        ]


def set_env(container: Json, values: "Mapping[str, str]") -> None:
    """Set variables; one that the manifest has is replaced in its place."""
    env: list[Json] = container.setdefault("env", [])
    left = dict(values)
    for number, item in enumerate(env):
        if item["name"] in left:
            env[number] = _variable(item["name"], left.pop(item["name"]))
    env += [_variable(name, value) for name, value in left.items()]
    if not env:
        del container["env"]


def _variable(name: str, value: str) -> Json:
    """Return the variable as the API server shows it: an empty value is left out."""
    return {"name": name, "value": value} if value else {"name": name}


def set_content_hash(daemon_set: Json, config_map: Json) -> None:
    """Restart the pods with each change of a ConfigMap that they read at their start."""
    content = msgspec.json.encode(config_map["data"], order="sorted")
    digest = hashlib.sha256(content).hexdigest()
    template = daemon_set["spec"]["template"]["metadata"]
    template.setdefault("annotations", {})[CONFIG_HASH_ANNOTATION] = digest
