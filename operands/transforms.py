"""Transforms of manifests that every state shares: the only place of namespaces, labels, placement and security contexts."""

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.names import CONFIG_HASH_ANNOTATION, OPERAND_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from operands.operand_settings import BootstrapOperands, OperandOptions, PlacementTerms

Json = dict[str, Any]

OWN_IMAGE: Final = "control-plane"
"""In manifests: the control plane's image."""
WAITING: Final = "toolkit-validation"
"""Init container that waits for the validator's file."""
_CLUSTER_SCOPED: Final = frozenset({"ClusterRole", "ClusterRoleBinding"})
_PRIVILEGED: Final = {"privileged": True, "runAsUser": 0, "runAsGroup": 0}
_RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    # Directories of the node are root's.
    "runAsUser": 0,
    "runAsGroup": 0,
}


def the(objects: "Sequence[Json]", kind: str) -> Json:
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


def set_options(daemon_set: Json, main: str, options: "OperandOptions") -> None:
    """Put the operand's image, pull settings, resources, arguments and environment into its DaemonSet."""
    spec = pod_spec_of(daemon_set)
    for item in (*spec["containers"], *spec.get("initContainers", ())):
        if item["image"] != OWN_IMAGE:
            item["image"] = options.image
        if options.image_pull_policy:
            item["imagePullPolicy"] = options.image_pull_policy
    if options.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in options.image_pull_secrets]
    container = container_of(daemon_set, main)
    resources = {"requests": dict(options.requests), "limits": dict(options.limits)}
    if given := {key: value for key, value in resources.items() if value}:
        container["resources"] = given
    if options.args:
        container["args"] = [*container.get("args", ()), *options.args]
    set_env(container, options.env)


def set_security(daemon_set: Json, *, privileged: "frozenset[str]") -> None:
    """Set the security context of every container: all rights for those that are named, none for the others.

    Our own image writes to mounts only.
    """
    spec = pod_spec_of(daemon_set)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["securityContext"] = dict(
            _PRIVILEGED if container["name"] in privileged else _RESTRICTED
        )
        if container["image"] == OWN_IMAGE:
            container["securityContext"]["readOnlyRootFilesystem"] = True


def set_runtime_class(daemon_set: Json, settings: "BootstrapOperands") -> None:
    """Set the runtime that gives NVIDIA's images the driver's libraries."""
    if settings.runtime_class:
        pod_spec_of(daemon_set)["runtimeClassName"] = settings.runtime_class


def set_placement(daemon_set: Json, placement: "PlacementTerms") -> None:
    spec = pod_spec_of(daemon_set)
    if placement.affinity:
        spec["affinity"] = placement.affinity
    if placement.node_selector:
        spec["nodeSelector"] = dict(sorted(placement.node_selector.items()))
    if placement.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in placement.tolerations]
    if placement.priority_class:
        spec["priorityClassName"] = placement.priority_class


def set_content_hash(daemon_set: Json, config_map: Json) -> None:
    """Restart the pods with each change of a ConfigMap that they read at their start."""
    content = msgspec.json.encode(config_map["data"], order="sorted")
    digest = hashlib.sha256(content).hexdigest()
    template = daemon_set["spec"]["template"]["metadata"]
    template.setdefault("annotations", {})[CONFIG_HASH_ANNOTATION] = digest


def finish(state: str, objects: "Sequence[Json]", settings: "BootstrapOperands") -> list[Json]:
    """Put namespace, label, placement and our image into the objects of a state."""
    for object_ in objects:
        object_["metadata"].setdefault("labels", {})[OPERAND_LABEL] = state
        if object_["kind"] not in _CLUSTER_SCOPED:
            object_["metadata"]["namespace"] = settings.namespace
        for subject in object_.get("subjects", ()):
            subject["namespace"] = settings.namespace
        if object_["kind"] == "DaemonSet":
            _finish_daemon_set(state, object_, settings)
    return list(objects)


def _finish_daemon_set(state: str, daemon_set: Json, settings: "BootstrapOperands") -> None:
    spec = pod_spec_of(daemon_set)
    daemon_set["spec"]["template"]["metadata"]["labels"][OPERAND_LABEL] = state
    set_placement(daemon_set, settings.placement)
    if not settings.runs_validator and any(
        item["name"] == WAITING and item["image"] == OWN_IMAGE
        for item in spec.get("initContainers", ())
    ):
        without_container(daemon_set, WAITING)
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        if container["image"] == OWN_IMAGE:
            container["image"] = settings.own_image
