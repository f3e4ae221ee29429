"""State `state-driver` of an NVIDIADriver: its driver on the nodes that it owns, by one DaemonSet a group of nodes.

The objects are those of the ClusterPolicy's state with names of their own. Nodes are selected by the label that names
their owner, which another controller sets from `spec.nodeSelector`: a selector that changes moves nodes one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

import msgspec

from api import names
from api.kinds.nvidia.nvidiadriver import DriverType, NVIDIADriverSpec
from api.kinds.nvidia.operator_blocks import DaemonsetsSpec, HostPaths
from api.well_known_labels import APP_COMPONENT_LABEL
from operands.asset_files import load_assets
from operands.nvidia.driver_owners import owner_value
from operands.nvidia.drivers.config_files import config_maps_of
from operands.nvidia.drivers.containers import DRIVER
from operands.nvidia.drivers.description import DriverDescription, LicenceFiles
from operands.nvidia.drivers.groups import (
    DriverGroup,
    driver_groups,
    software_without_driver,
)
from operands.nvidia.drivers.objects import driver_daemon_set, finish_driver
from operands.nvidia.node_software import HostSoftware
from operands.nvidia.object_names import object_name
from operands.nvidia.policy_transforms import select_nodes, set_host_paths, set_pods
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, pod_spec_of

Json = dict[str, Any]

NAME: Final = "state-driver"
_GATE: Final = "nvidia.com/gpu.deploy.driver"
_HOST_GATE: Final = "nvidia.com/gpu.deploy.vgpu-manager"
_HOST_COMPONENT: Final = "nvidia-vgpu-host-manager"
_HOST_GRACE_S: Final = 120
"""Virtual machines are suspended meanwhile."""
_CLUSTER_SCOPED: Final = frozenset({"ClusterRole", "ClusterRoleBinding"})
_FIXED_LABELS: Final = "app.kubernetes.io/"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOperands:
    """All that the objects of one NVIDIADriver depend on."""

    name: str
    """Name of the NVIDIADriver."""
    uid: str = ""
    """UID of the NVIDIADriver; no object depends on it."""
    spec: NVIDIADriverSpec = field(default_factory=NVIDIADriverSpec)
    namespace: str
    """Namespace of the objects."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Image variables of the control plane."""
    host_paths: HostPaths = field(default_factory=HostPaths)
    """Host paths of the ClusterPolicy."""
    software: tuple[HostSoftware, ...] = ()
    """Distinct software of the nodes that it owns, sorted."""
    daemonsets: DaemonsetsSpec = field(default_factory=DaemonsetsSpec)
    """Settings of DaemonSets of the ClusterPolicy; what the NVIDIADriver itself says comes on top."""
    config_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """ConfigMap of the namespace -> its keys, of those in `config_maps_of_driver`."""

    @property
    def type(self) -> DriverType:
        return self.spec.driver_type

    @property
    def hosts_virtual_gpus(self) -> bool:
        return self.type is DriverType.VGPU_HOST_MANAGER

    def object_name(self, *parts: str) -> str:
        """Return the name of one of its objects."""
        return object_name(f"nvidia-{self.type.value}-driver", self.name, *parts)


def description_of(operands: DriverOperands) -> DriverDescription:
    """Return the driver of an NVIDIADriver."""
    spec = operands.spec
    licence = spec.licensing_config
    spec_path = f"NVIDIADriver {operands.name}: spec"
    return DriverDescription(
        spec_path=spec_path,
        add_ons_path=spec_path,
        namespace=operands.namespace,
        spec=spec,
        type=spec.driver_type,
        is_of_driver_object=True,
        args=("init", *(spec.args or ())),
        gds=spec.gds,
        gdrcopy=spec.gdrcopy,
        repo_config=spec.repo_config.name,
        licence=LicenceFiles(
            config_map=licence.name,
            secret=licence.secret_name,
            has_token=licence.nls_enabled is not False,
        ),
        topology_config=spec.virtual_topology_config.name,
        environment=operands.environment,
        config_keys=operands.config_keys,
    )


def config_maps_of_driver(operands: DriverOperands) -> frozenset[str]:
    """Return the ConfigMaps whose keys the DaemonSets depend on."""
    return config_maps_of(description_of(operands))


def nodes_without_driver(operands: DriverOperands) -> dict[HostSoftware, str]:
    """Return which software of its nodes gets no driver, and why, with the cure."""
    return software_without_driver(operands.software, description_of(operands).grouping)


def _build(operands: DriverOperands) -> list[Json]:
    driver, objects = description_of(operands), load_assets(NAME)
    driver.check()
    groups = driver_groups(operands.software, driver.grouping, spec_path=driver.spec_path)
    manifest = object_of(objects, "DaemonSet")
    objects.remove(manifest)
    config_map = operands.object_name("startup-probe")
    _name_accounts(objects, operands.object_name(), config_map)
    _set_type(manifest, operands, config_map)
    for group in groups:
        objects.append(_daemon_set(manifest, operands, group))
    for object_ in objects:
        _finish(object_, operands)
    return objects


def _daemon_set(manifest: Json, operands: DriverOperands, group: DriverGroup) -> Json:
    name = operands.object_name(*group.name_parts())
    found = driver_daemon_set(manifest, description_of(operands), group, name=name)
    template = found["spec"]["template"]
    for labels in (
        found["metadata"]["labels"],
        found["spec"]["selector"]["matchLabels"],
        template["metadata"]["labels"],
    ):
        labels["app"] = name
    select_nodes(
        found,
        {names.NVIDIA_PRESENT_LABEL: "true", names.DRIVER_OWNER_LABEL: owner_value(operands.name)},
    )
    if operands.spec.node_affinity is not None:
        affinity = msgspec.to_builtins(operands.spec.node_affinity)
        pod_spec_of(found)["affinity"]["nodeAffinity"] = affinity
    _set_own_metadata(found, operands.spec)
    set_pods(found, _pods(operands))
    set_host_paths(found, operands.host_paths)
    finish_driver(found)
    return found


def _set_own_metadata(daemon_set: Json, spec: NVIDIADriverSpec) -> None:
    """Put labels and annotations of the NVIDIADriver on the DaemonSet too; labels that it has stay."""
    metadata = daemon_set["metadata"]
    metadata["labels"] = {**_own_labels(spec.labels or {}), **metadata["labels"]}
    if spec.annotations:
        metadata["annotations"] = {**spec.annotations, **metadata.get("annotations", {})}


def _own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if not key.startswith(_FIXED_LABELS)}


def _pods(operands: DriverOperands) -> DaemonsetsSpec:
    """Return what is said about the pods: by the NVIDIADriver, over what the ClusterPolicy says about all."""
    spec, common = operands.spec, operands.daemonsets
    labels = {**(common.labels or {}), **(spec.labels or {})}
    return msgspec.structs.replace(
        common,
        labels=_own_labels(labels),
        annotations={**(common.annotations or {}), **(spec.annotations or {})},
        tolerations=[*(common.tolerations or ()), *(spec.tolerations or ())],
        priority_class_name=spec.priority_class_name or common.priority_class_name,
        pod_security_context=spec.pod_security_context or common.pod_security_context,
    )


def _name_accounts(objects: list[Json], name: str, config_map: str) -> None:
    """Give the objects beside the DaemonSets names of this NVIDIADriver."""
    for object_ in objects:
        object_["metadata"]["name"] = config_map if object_["kind"] == "ConfigMap" else name
        if object_["kind"] == "ClusterRoleBinding":
            object_["roleRef"]["name"] = name
            for subject in object_["subjects"]:
                subject["name"] = name
        if "app" in object_["metadata"].get("labels", {}):
            object_["metadata"]["labels"]["app"] = name


def _set_type(manifest: Json, operands: DriverOperands, config_map: str) -> None:
    """Put account, probe and anti-affinity into the manifest, and what a host of virtual GPUs needs."""
    spec = pod_spec_of(manifest)
    spec["serviceAccountName"] = operands.object_name()
    for volume in spec["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["name"] = config_map
    (term,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = term["labelSelector"]["matchExpressions"]
    expression["values"].append(_HOST_COMPONENT)
    if not operands.hosts_virtual_gpus:
        return
    for metadata in (manifest["metadata"], manifest["spec"]["template"]["metadata"]):
        metadata["labels"][APP_COMPONENT_LABEL] = _HOST_COMPONENT
    spec["nodeSelector"][_HOST_GATE] = spec["nodeSelector"].pop(_GATE)
    spec["terminationGracePeriodSeconds"] = _HOST_GRACE_S
    mounts = container_of(manifest, DRIVER)["volumeMounts"]
    for volume, path in (("cgroup", "/sys/fs/cgroup"), ("vfio", "/dev/vfio")):
        mounts.append({"name": volume, "mountPath": path})
        spec["volumes"].append({"name": volume, "hostPath": {"path": path, "type": "Directory"}})


def _finish(daemon_set: Json, operands: DriverOperands) -> None:
    """Put namespace and labels into an object, by which it is found again."""
    metadata = daemon_set["metadata"]
    metadata.setdefault("labels", {}).update(
        {names.OPERAND_LABEL: NAME, names.POLICY_DRIVER_LABEL: owner_value(operands.name)}
    )
    if daemon_set["kind"] not in _CLUSTER_SCOPED:
        metadata["namespace"] = operands.namespace
    for subject in daemon_set.get("subjects", ()):
        subject["namespace"] = operands.namespace


DRIVER_STATE: Final[OperandState[DriverOperands]] = OperandState(
    name=NAME,
    why_off=lambda operands: "" if operands.name else "no NVIDIADriver describes it",
    build=_build,
)
