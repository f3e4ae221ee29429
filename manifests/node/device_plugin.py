"""Node workloads of a pool: the list of its devices, a device plugin on its nodes, MIG configurations.

A change of devices changes only the list (`api.nodefiles.poolconfig`): the DaemonSet's template
does not mention them, and the plugin reads the list again, so no pod restarts. Every object carries
a digest of the whole desired object, which separates an outdated object from one to which the API
server added defaults.

One DaemonSet per pool, or one for all pools (`manifests.node.agent_daemonset`):
docs/design/0006-one-daemonset-or-many.md.
"""

import base64
import gzip
import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import yaml

from api.kinds.gpupool import AllocationMode, SlicePlacement
from api.names import (
    API_VERSION,
    CONFIG_HASH_ANNOTATION,
    POOL_LABEL,
    PoolName,
    pool_node_label,
)
from api.nodefiles.poolconfig import (
    CONFIG_KEY,
    PACKED_CONFIG_KEY,
    ConfiguredDevice,
    DeviceInjection,
    PoolConfig,
)
from manifests import constants
from manifests.node.cache_mounts import NodeCacheSettings
from manifests.node.daemonset import (
    AGENT_PODS,
    DEFAULT_DIRECTORIES,
    DETECTOR_PODS,
    LINUX,
    KubeletDirectories,
    PodSettings,
    build_agent_container,
    build_daemon_set,
    build_pod_spec,
    plugins_mount,
    plugins_volume,
    pod_resources_mount,
    pod_resources_volume,
    problems_mount,
    problems_volume,
    rolling_update,
    run_mount,
    run_volume,
    without_upgrade,
    workload_labels,
)
from manifests.node.nvidia_device_plugin import (
    NVIDIA_CONFIG_KEY,
    build_nvidia_config,
    build_nvidia_container,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.kinds.gpupool import GPUPool
    from api.meta import SelectorRequirement
    from api.names import NodeName
    from inventory.health.recovery import XidActions

Json = dict[str, Any]

CONFIG_DIRECTORY: Final = "/etc/gpu-control-plane/pool"
MAX_NAME_LENGTH: Final = 63
"""Names become labels and host names of pods."""
MAX_TEXT_BYTES: Final = 900_000
"""A ConfigMap may hold 1 MiB; beyond this size, about 20,000 devices, the list is compressed."""
MAX_PACKED_BYTES: Final = 1_000_000
_DIGEST_LENGTH: Final = 8


class PluginMode(Enum):
    """Deployment of device plugins."""

    PER_POOL = "PerPool"
    """One DaemonSet per pool, on its nodes only."""
    PER_NODE = "PerNode"
    """One DaemonSet, whose pods serve all pools of their node."""
    NONE = "None"
    """No device plugin is deployed; another component serves the pools."""


class PluginKind(Enum):
    """The device plugin in the image."""

    OWN = "Own"
    NVIDIA = "NVIDIA"
    """NVIDIA's k8s-device-plugin with the changes that `manifests.node.nvidia_device_plugin` names: for whole devices
    and time slices, one DaemonSet per pool, restarted by each change of its devices."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgentSettings:
    """Settings of the node agent (`manifests.node.agent_daemonset`)."""

    is_enabled: bool = True
    """Without the agent, another source reports devices, and no device is partitioned."""
    image: str = ""
    """Empty: the device plugin's image, if the plugin is ours."""
    xid_actions: "XidActions" = field(default_factory=dict)
    """What a device needs after an Xid, in place of the driver's word and the agent's own table."""
    driver_libraries: str = ""
    """Directory of the driver's libraries on nodes, before those that the agent knows."""
    exports_metrics: bool = False
    """Whether it serves the metrics of devices, from NVML."""
    node_selector: "Mapping[str, str]" = field(default_factory=dict)
    """Labels that a node with devices needs besides, for the agent to run there."""
    node_affinity: "tuple[SelectorRequirement, ...]" = ()
    """Expressions that such a node has to satisfy besides."""
    caches: NodeCacheSettings | None = None
    """None: the agent serves no kernel caches."""
    pods: PodSettings = AGENT_PODS

    def xid_arguments(self) -> list[str]:
        named = ",".join(
            f"{code}={action.value}" for code, action in sorted(self.xid_actions.items())
        )
        return [f"--xid-actions={named}"] if named else []

    def library_arguments(self) -> list[str]:
        return [f"--driver-libraries={self.driver_libraries}"] if self.driver_libraries else []


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDetectorSettings:
    """Settings of the node detector (`manifests.node.detector_daemonset`)."""

    is_enabled: bool = True
    """Without it NFD, NVIDIA's components or an administrator label the nodes that have a device."""
    node_selector: "Mapping[str, str]" = field(default_factory=lambda: dict(LINUX))
    """Labels that a node needs for the detector to run there."""
    node_affinity: "tuple[SelectorRequirement, ...]" = ()
    """Expressions that such a node has to satisfy besides."""
    pods: PodSettings = DETECTOR_PODS


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """Settings that all pools share."""

    image: str
    namespace: str = constants.DEFAULT_NAMESPACE
    mode: PluginMode = PluginMode.PER_POOL
    plugin: PluginKind = PluginKind.OWN
    hand_out: DeviceInjection = DeviceInjection.CDI
    cdi_kind: str = ""
    """Prefix of CDI names; empty: that of our own specification."""
    pods: PodSettings = AGENT_PODS
    """Settings of the pools' device plugins."""
    max_unavailable: int | str = "10%"
    """How many nodes a rolling update takes at a time: a number or a percentage."""
    kubelet: KubeletDirectories = DEFAULT_DIRECTORIES
    agent: NodeAgentSettings = NodeAgentSettings()
    detector: NodeDetectorSettings = NodeDetectorSettings()

    def __post_init__(self) -> None:
        if self.mode is PluginMode.PER_NODE:
            if self.plugin is PluginKind.NVIDIA:
                raise ValueError("NVIDIA's plugin serves one pool: set mode to PerPool")
            if not self.agent.is_enabled:
                raise ValueError(
                    "the node agent serves the pools of its node: enable it, or set mode to PerPool"
                )

    @property
    def agent_image(self) -> str:
        """Return the image of the node agent and of the node detector, which is always ours."""
        ours = self.image if self.plugin is PluginKind.OWN else constants.NAME
        return self.agent.image or ours

    @property
    def is_detecting(self) -> bool:
        """Return whether the node detector runs: where its label starts no node agent, it has no use."""
        return self.detector.is_enabled and self.agent.is_enabled

    @property
    def images(self) -> tuple[str, ...]:
        """Return the images of all containers of our DaemonSets."""
        plugin = {self.image} if self.mode is PluginMode.PER_POOL else set()
        agent = {self.agent_image} if self.agent.is_enabled else set()
        return tuple(sorted(plugin | agent))

    def allocation_arguments(self) -> list[str]:
        """Return the agents' arguments for the way in which containers get their devices."""
        kind = ["--cdi-kind", self.cdi_kind] if self.cdi_kind else []
        return ["--hand-out", self.hand_out.value, *kind]


class UnservablePoolError(ValueError):
    """A pool's device list does not fit a ConfigMap, compressed or not."""


def names_registry(image: str) -> bool:
    """Return whether an image's name begins with a registry, by the rule of container runtimes.

    Otherwise they pull it from docker.io, and a name of one part from docker.io/library.
    """
    host, slash, _ = image.partition("/")
    return bool(slash) and (host == "localhost" or "." in host or ":" in host)


def unserved(pool: "GPUPool", settings: WorkloadSettings) -> str:
    """Return why the pool is not served by a device plugin though it should be, or nothing."""
    if settings.plugin is PluginKind.NVIDIA and pool.allocation.mode is AllocationMode.MIG:
        return (
            f"NVIDIA's device plugin serves no pool of MIG instances such as {pool.name}:"
            " use our own, or another allocation"
        )
    if settings.plugin is PluginKind.NVIDIA and pool.slice_placement is SlicePlacement.SAME_DEVICE:
        return (
            f"NVIDIA's device plugin spreads the slices of a container over devices, and pool {pool.name} has"
            " slicePlacement SameDevice: use our own, or slicePlacement DistinctDevices"
        )
    return ""


def object_name(prefix: str, pool: "PoolName") -> str:
    """Return `<prefix>-<pool>`; a long name is truncated and ends in a digest of the pool."""
    name = f"{prefix}-{pool}"
    if len(name) <= MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256(pool.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: MAX_NAME_LENGTH - _DIGEST_LENGTH - 1].rstrip('-.')}-{digest}"


def plugin_name(pool: "PoolName") -> str:
    """Return the name of a pool's DaemonSet, and of the ConfigMap with its devices."""
    return object_name(constants.DEVICE_PLUGIN, pool)


def pool_config(
    pool: "GPUPool", devices_by_node: "Mapping[NodeName, Sequence[ConfiguredDevice]]"
) -> PoolConfig:
    """Return the device list for the pool's plugins, by the pool's allocation in effect."""
    allocation = pool.allocation
    is_sliced = allocation.mode is AllocationMode.TIME_SLICE
    return PoolConfig(
        version="v1",
        pool=pool.name,
        resource=pool.resource_name,
        slices=allocation.slices_per_device if is_sliced else 1,
        slice_placement=pool.slice_placement.value,
        nodes={
            node: sorted(devices, key=lambda device: device.uuid)
            for node, devices in sorted(devices_by_node.items())
            if devices
        },
    )


def build_pool_workloads(
    pool: "GPUPool", config: PoolConfig, settings: WorkloadSettings
) -> list[Json]:
    """Return a pool's objects; none where no plugin of the pool's own serves it.

    Raises:
        UnservablePoolError: the device list does not fit a ConfigMap.
    """
    if settings.mode is not PluginMode.PER_POOL or unserved(pool, settings):
        return []
    objects = (_build_list(pool, config, settings), _build_plugin(pool, config, settings))
    return [signed(body) for body in objects]


def digest_of(body: "Mapping[str, Any]") -> str:
    """Return the digest of a signed object."""
    found: str = body["metadata"]["annotations"][CONFIG_HASH_ANNOTATION]
    return found


def signed(body: Json) -> Json:
    """Return the object with a digest of itself as annotation."""
    content = msgspec.json.encode(body, order="sorted")
    digest = hashlib.sha256(content).hexdigest()
    body["metadata"].setdefault("annotations", {})[CONFIG_HASH_ANNOTATION] = digest
    return body


def _metadata(pool: "GPUPool", name: str, settings: WorkloadSettings) -> Json:
    return {
        "name": name,
        "namespace": settings.namespace,
        # Not on pods: there the label is of those that ask for the pool.
        "labels": workload_labels(constants.DEVICE_PLUGIN, pool.name) | {POOL_LABEL: pool.name},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "GPUPool",
                "name": pool.name,
                "uid": pool.metadata.uid,
                "controller": True,
            }
        ],
    }


def _build_list(pool: "GPUPool", config: PoolConfig, settings: WorkloadSettings) -> Json:
    body: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(pool, plugin_name(pool.name), settings),
    }
    if settings.plugin is PluginKind.NVIDIA:
        text = yaml.safe_dump(build_nvidia_config(config), sort_keys=False)
        if len(text) > MAX_TEXT_BYTES:
            raise _too_many(config)
        return body | {"data": {NVIDIA_CONFIG_KEY: text}}
    content = msgspec.json.encode(config)
    if len(content) <= MAX_TEXT_BYTES:
        return body | {"data": {CONFIG_KEY: content.decode()}}
    packed = gzip.compress(content, mtime=0)
    if len(packed) > MAX_PACKED_BYTES:
        raise _too_many(config)
    return body | {"binaryData": {PACKED_CONFIG_KEY: base64.b64encode(packed).decode()}}


def _too_many(config: PoolConfig) -> UnservablePoolError:
    devices = sum(len(node) for node in config.nodes.values())
    return UnservablePoolError(
        f"the list of {devices:,} devices of pool {config.pool} does not fit a ConfigMap;"
        " set the device plugin's mode to PerNode, or divide the pool"
    )


def _build_plugin(pool: "GPUPool", config: PoolConfig, settings: WorkloadSettings) -> Json:
    name = plugin_name(pool.name)
    labels = workload_labels(constants.DEVICE_PLUGIN, pool.name)
    config_mount = {"name": "config", "mountPath": CONFIG_DIRECTORY, "readOnly": True}
    config_volume = {"name": "config", "configMap": {"name": name}}
    mounts = [config_mount, plugins_mount()]
    volumes = [config_volume, plugins_volume()]
    annotations = {}
    if settings.plugin is PluginKind.NVIDIA:
        file = f"{CONFIG_DIRECTORY}/{NVIDIA_CONFIG_KEY}"
        container = build_nvidia_container(settings.image, file, mounts)
        account: Json = {"automountServiceAccountToken": False}
        # It reads its file at start only.
        content = msgspec.json.encode(config)
        annotations = {CONFIG_HASH_ANNOTATION: hashlib.sha256(content).hexdigest()}
    else:
        container = _own_container(pool.name, settings, mounts)
        account = {"serviceAccountName": constants.DEVICE_PLUGIN}
        volumes += [pod_resources_volume(settings.kubelet), run_volume(), problems_volume()]
    on_nodes = [{"key": pool_node_label(pool.name), "operator": "Exists"}]
    if settings.plugin is PluginKind.NVIDIA:
        on_nodes.append(without_upgrade())
    spec: Json = {
        **account,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": on_nodes}]
                }
            }
        },
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **build_pod_spec(container, volumes, settings.pods),
    }
    body = build_daemon_set(
        name,
        settings.namespace,
        labels=labels,
        spec=spec,
        annotations=annotations,
        # Of two servers of one resource kubelet drops the newer as the older ends; ours registers again
        # within a fifth of a second, where a start from nothing would take seconds, in which bound pods fail.
        rolling_update=rolling_update(
            settings.max_unavailable, overlaps=settings.plugin is PluginKind.OWN
        ),
    )
    return body | {"metadata": _metadata(pool, name, settings)}


def _own_container(pool: "PoolName", settings: WorkloadSettings, mounts: "Sequence[Json]") -> Json:
    """Return our plugin's container: it opens no device, and needs root only for root's files."""
    return build_agent_container(
        constants.DEVICE_PLUGIN,
        settings.image,
        [
            "--roles",
            "device-plugin",
            "--config",
            f"{CONFIG_DIRECTORY}/{CONFIG_KEY}",
            "--pool",
            pool,
            *settings.allocation_arguments(),
        ],
        mounts=[
            *mounts,
            pod_resources_mount(),
            run_mount() | {"readOnly": True},
            problems_mount(),
        ],
        security={"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    )
