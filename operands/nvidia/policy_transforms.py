"""Transforms of manifests that the states of a ClusterPolicy share: images, options, labels, placement, paths of the node.

In manifests an image is one of two words: `operand`, the image of the state's own block, and `validator`, the image of
`spec.validator`, in init containers that wait for a file of the validator. The nodes' directories are written there as
`/run/nvidia/driver` and `/var/lib/kubelet`, and the root of the file system as the volume `host-root`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from api.foreign.core import EVERY_TAINT, PullPolicy
from api.image_source import ImageSourceError
from api.kinds.nvidia.operand_image import operand_image
from api.kinds.nvidia.operator_blocks import UpdateStrategy
from api.names import OPERAND_LABEL
from api.well_known_labels import PART_OF_LABEL
from operands.nvidia.own_pods import set_own_pods
from operands.nvidia.policy_operands import PolicyOperands, StateFault, StateSettingsError
from operands.transforms import container_of, object_of, pod_spec_of, set_env

if TYPE_CHECKING:
    from api.kinds.nvidia.operand_block import ContainerFields, ImageFields
    from api.kinds.nvidia.operator_blocks import (
        DaemonsetsSpec,
        HostPaths,
        OperatorSpec,
        ServiceMonitorConfig,
    )

Json = dict[str, Any]

OPERAND_IMAGE: Final = "operand"
VALIDATOR_IMAGE: Final = "validator"
DRIVER_ROOT: Final = "/run/nvidia/driver"
KUBELET_ROOT: Final = "/var/lib/kubelet"
HOST_ROOT_VOLUME: Final = "host-root"
_DEV_CHAR_VOLUME: Final = "host-dev-char"
_DRIVER_VOLUME: Final = "driver-install-dir"
_FIRMWARE_VOLUME: Final = "nv-firmware"
"""Firmware volume of the driver's own container, which has the driver at `DRIVER_ROOT` wherever the others look
for it."""
_KEPT_LABELS: Final = frozenset({"app", PART_OF_LABEL})
"""Labels of pods that no spec replaces: DaemonSets select by them."""
_CLUSTER_SCOPED: Final = frozenset({"ClusterRole", "ClusterRoleBinding", "RuntimeClass"})
_EVERY_TAINT: Final = msgspec.to_builtins(EVERY_TAINT)


def image_of(block: "ImageFields", field: str, settings: PolicyOperands) -> str:
    """Return the image of a block of the spec.

    Raises:
        StateSettingsError: it is given in half, or nowhere.
    """
    try:
        return operand_image(block, field=settings.path(field), environment=settings.environment)
    except ImageSourceError as error:
        raise StateSettingsError(StateFault.IMAGE_INVALID, str(error)) from error


def containers_of(daemon_set: Json) -> Iterable[Json]:
    """Return all containers, init containers first."""
    spec = pod_spec_of(daemon_set)
    return (*spec.get("initContainers", ()), *spec["containers"])


def set_image(container: Json, image: str, block: "ImageFields") -> None:
    """Set image and pull policy of a container."""
    container["image"] = image
    policy = block.image_pull_policy
    container["imagePullPolicy"] = policy if policy in get_args(PullPolicy) else "IfNotPresent"


def set_service_monitor(monitor: Json, config: "ServiceMonitorConfig") -> None:
    """Put labels, times and rewriting of the target's labels into a ServiceMonitor."""
    labels = monitor["metadata"].setdefault("labels", {})
    monitor["metadata"]["labels"] = {**(config.additional_labels or {}), **labels}
    endpoint = monitor["spec"]["endpoints"][0]
    given = {
        "interval": config.interval,
        "scrapeTimeout": config.scrape_timeout,
        "relabelings": _builtins(config.relabelings or ()),
    }
    endpoint |= {key: value for key, value in given.items() if value}
    if config.honor_labels is not None:
        endpoint["honorLabels"] = config.honor_labels


def set_or_remove_monitor(objects: list[Json], config: "ServiceMonitorConfig") -> None:
    """Have a ServiceMonitor as the spec describes it, or none."""
    monitor = object_of(objects, "ServiceMonitor")
    if config.is_enabled:
        set_service_monitor(monitor, config)
    else:
        objects.remove(monitor)


def set_operator_metadata(objects: Sequence[Json], operator: "OperatorSpec") -> None:
    """Add the labels and annotations of `spec.operator` to objects of the operator; labels that they have stay."""
    for object_ in objects:
        metadata = object_["metadata"]
        metadata["labels"] = {**(operator.labels or {}), **metadata["labels"]}
        if operator.annotations:
            metadata["annotations"] = dict(operator.annotations)


def add_pull_secrets(daemon_set: Json, block: "ImageFields") -> None:
    """Add the block's pull secrets to those of the pod."""
    spec = pod_spec_of(daemon_set)
    there = [item["name"] for item in spec.get("imagePullSecrets", ())]
    names = list(dict.fromkeys((*there, *(block.image_pull_secrets or ()))))
    if names:
        spec["imagePullSecrets"] = [{"name": name} for name in names]


def set_block(
    daemon_set: Json, main: str, block: "ContainerFields", *, field: str, settings: PolicyOperands
) -> None:
    """Put a block of the spec into its DaemonSet: image, pull settings, resources, arguments, environment, network.

    Resources are set on every container but those that wait for the validator: `spec.validator` has theirs.
    Arguments take the place of those of the main container.

    Args:
        daemon_set: the object, which is changed.
        main: name of the operand's own container.
        block: the part of the spec.
        field: its name in the spec, such as `toolkit`.
        settings: of the state.

    Raises:
        StateSettingsError: an image is given in half, or nowhere.
    """
    image = image_of(block, field, settings)
    for item in containers_of(daemon_set):
        if item["image"] == OPERAND_IMAGE:
            set_image(item, image, block)
    add_pull_secrets(daemon_set, block)
    container = container_of(daemon_set, main)
    if block.args:
        container["args"] = list(block.args)
    set_env(container, {item.name: item.value for item in block.env or ()})
    resources = _builtins(getattr(block, "resources", None))
    if resources:
        for item in containers_of(daemon_set):
            if item["image"] != VALIDATOR_IMAGE:
                item["resources"] = resources
    if getattr(block, "host_network", None):
        spec = pod_spec_of(daemon_set)
        spec["hostNetwork"] = True
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"


def finish_policy(state: str, objects: Sequence[Json], settings: PolicyOperands) -> list[Json]:
    """Put namespace, labels, the validator's image and the settings of all DaemonSets into the objects of a state.

    Without a node with a GPU there are no DaemonSets among them.

    Raises:
        StateSettingsError: a container waits for the validator, whose image is given in half or nowhere.
    """
    for object_ in objects:
        metadata = object_["metadata"]
        metadata.setdefault("labels", {})[OPERAND_LABEL] = state
        if object_["kind"] not in _CLUSTER_SCOPED:
            metadata["namespace"] = settings.namespace
        for subject in object_.get("subjects", ()):
            subject["namespace"] = settings.namespace
        if object_["kind"] == "DaemonSet":
            if settings.own is not None:
                set_own_pods(object_, state, settings.own)
            _set_validator_image(object_, settings)
            set_pods(object_, settings.spec.daemonsets)
            set_host_paths(object_, settings.spec.host_paths)
    return [
        object_ for object_ in objects if object_["kind"] != "DaemonSet" or settings.has_gpu_nodes
    ]


def _set_validator_image(daemon_set: Json, settings: PolicyOperands) -> None:
    waiting = [
        container
        for container in containers_of(daemon_set)
        if container["image"] == VALIDATOR_IMAGE
    ]
    if not waiting:
        return
    block = settings.spec.validator
    image = image_of(block, "validator", settings)
    steps = {"driver-validation": block.driver, "toolkit-validation": block.toolkit}
    resources = _builtins(block.resources)
    for entry in waiting:
        set_image(entry, image, block)
        if entry["name"] in steps:
            set_env(entry, {item.name: item.value for item in steps[entry["name"]].env or ()})
        if resources:
            entry["resources"] = resources
    add_pull_secrets(daemon_set, block)


def set_pods(daemon_set: Json, common: "DaemonsetsSpec") -> None:
    """Put into a DaemonSet what `spec.daemonsets` says about the pods of all operands.

    A DaemonSet whose manifest says OnDelete keeps it: an upgrade of the driver replaces its pods. Its pods tolerate every
    taint beside those of the list, which matters for nothing but a `tolerationSeconds`.
    """
    spec, pod = daemon_set["spec"], pod_spec_of(daemon_set)
    if spec.get("updateStrategy", {}).get("type") != UpdateStrategy.ON_DELETE.value:
        spec["updateStrategy"] = _update_strategy(common)
    if common.priority_class_name:
        pod["priorityClassName"] = common.priority_class_name
    pod["tolerations"] = [
        *(item for item in _builtins(common.tolerations or ()) if item != _EVERY_TAINT),
        _EVERY_TAINT,
    ]
    if common.pod_security_context is not None:
        pod["securityContext"] = _builtins(common.pod_security_context)
    add_pod_metadata(daemon_set, labels=common.labels or {}, annotations=common.annotations or {})


def add_pod_metadata(
    daemon_set: Json, *, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> None:
    """Add labels and annotations to the pods; those by which they are selected stay."""
    metadata = daemon_set["spec"]["template"]["metadata"]
    selected = daemon_set["spec"]["selector"]["matchLabels"]
    metadata["labels"] |= {
        key: value
        for key, value in labels.items()
        if key not in _KEPT_LABELS and key not in selected
    }
    if annotations:
        metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}


def _update_strategy(common: "DaemonsetsSpec") -> Json:
    if common.update_strategy is UpdateStrategy.ON_DELETE:
        return {"type": "OnDelete"}
    limit = common.rolling_update.max_unavailable or "1"
    number = int(limit) if limit.isascii() and limit.isdigit() else limit
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": number}}


def set_host_paths(daemon_set: Json, paths: "HostPaths") -> None:
    """Put the nodes' directories into the volumes; containers find them at the same places as ever.

    The validation of the driver passes on where it found the driver, so its mount has the node's path.
    """
    _set_paths(daemon_set, paths)
    for volume in pod_spec_of(daemon_set).get("volumes", ()):
        host = volume.get("hostPath")
        if host is None:
            continue
        if volume["name"] == HOST_ROOT_VOLUME:
            host["path"] = paths.root
        elif volume["name"] == _DEV_CHAR_VOLUME:
            host["path"] = f"{paths.root.rstrip('/')}/dev/char"
        elif volume["name"] != _FIRMWARE_VOLUME:
            host["path"] = _moved_path(host["path"], paths)


def _set_paths(daemon_set: Json, paths: "HostPaths") -> None:
    """Tell the containers which directories of the node they have, where these are not the usual ones.

    A container whose manifest says where it mounts the root of the node keeps that.
    """
    volumes = {item["name"] for item in pod_spec_of(daemon_set).get("volumes", ())}
    for container in containers_of(daemon_set):
        if (
            paths.root != "/"
            and HOST_ROOT_VOLUME in volumes
            and not _has_variable(container, "HOST_ROOT")
        ):
            set_env(container, {"HOST_ROOT": paths.root})
        if paths.driver_root != DRIVER_ROOT and container["name"] == "driver-validation":
            _set_driver_root(container, paths.driver_root)


def _has_variable(container: Json, name: str) -> bool:
    return any(item["name"] == name for item in container.get("env", ()))


def _set_driver_root(container: Json, root: str) -> None:
    set_env(container, {"DRIVER_INSTALL_DIR": root, "DRIVER_INSTALL_DIR_CTR_PATH": root})
    for mount in container["volumeMounts"]:
        if mount["name"] == _DRIVER_VOLUME:
            mount["mountPath"] = root


def _moved_path(path: str, paths: "HostPaths") -> str:
    for before, after in ((DRIVER_ROOT, paths.driver_root), (KUBELET_ROOT, paths.kubelet_root_dir)):
        if path == before or path.startswith(f"{before}/"):
            return f"{after}{path.removeprefix(before)}"
    return path


def select_nodes(daemon_set: Json, labels: Mapping[str, str]) -> None:
    """Add labels to the selector of the DaemonSet's nodes."""
    spec = pod_spec_of(daemon_set)
    spec["nodeSelector"] = dict(sorted({**spec.get("nodeSelector", {}), **labels}.items()))


def _builtins(block: object) -> Json | list[Json]:
    """Return a part of a spec as the API server shows it: without fields that are not set."""
    found: Json | list[Json] = {} if block is None else msgspec.to_builtins(block)
    return found
