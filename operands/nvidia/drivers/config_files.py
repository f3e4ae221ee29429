"""Files that a driver's containers get: of ConfigMaps and Secrets that the spec names, and of the node.

A ConfigMap's keys are mounted one by one, beside the files that the image has in that directory. They are an input
(`config_keys`): a controller reads the ConfigMaps that `config_maps_of` names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from operands.nvidia.drivers.containers import DRIVER, GDRCOPY, GDS, PEERMEM
from operands.nvidia.policy_operands import StateFault, StateSettingsError
from operands.nvidia.policy_transforms import containers_of
from operands.transforms import pod_spec_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from operands.nvidia.drivers.description import DriverDescription, LicenceFiles
    from operands.nvidia.drivers.groups import DriverGroup

Json = dict[str, Any]

_MODULES_DIRECTORY: Final = "/drivers"
_APT: Final = ("/etc/apt/sources.list.d", "/usr/local/share/ca-certificates")
_YUM: Final = ("/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem")
_ZYPP: Final = ("/etc/zypp/repos.d", "/etc/pki/trust/anchors")
_DIRECTORIES: Final = {
    "ubuntu": _APT,
    "debian": _APT,
    "centos": _YUM,
    "rhel": _YUM,
    "rocky": _YUM,
    "ol": _YUM,
    "sles": _ZYPP,
    "sl-micro": _ZYPP,
}
"""System -> directories of package repositories and of certificates."""
_SUSE: Final = frozenset({"sles", "sl-micro"})
_RED_HAT_SUBSCRIPTION: Final = (
    ("/run/secrets/etc-pki-entitlement", "/etc/pki/entitlement", "Directory"),
    ("/run/secrets/redhat.repo", "/etc/yum.repos.d/redhat.repo", "File"),
    ("/run/secrets/rhsm", "/etc/rhsm", "Directory"),
)
_SUSE_SUBSCRIPTION: Final = (
    ("/etc/SUSEConnect", "/etc/SUSEConnect", "FileOrCreate"),
    ("/etc/zypp/credentials.d", "/etc/zypp/credentials.d", "Directory"),
)
"""Path in the container, path on the node and type of what gives access to a vendor's packages."""
_BUILDING: Final = frozenset({DRIVER, GDS, GDRCOPY})
"""Containers that build modules, for which they install packages."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFiles:
    """A volume, with its mounts."""

    volume: Mapping[str, Any]
    mounts: tuple[Mapping[str, Any], ...]
    containers: "Collection[str]"
    """Names of those that get the mounts, as far as they are there."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NamedConfigMap:
    """A ConfigMap that a field of the spec names."""

    name: str
    spec_path: str
    """The object and the field; messages begin with it."""
    namespace: str
    keys: Mapping[str, tuple[str, ...]]
    """Keys of the ConfigMaps that are there."""

    def files(self, volume: str, directory: str, containers: "Collection[str]") -> ConfigFiles:
        """Return its keys as files of a directory, which keeps its own files.

        Raises:
            StateSettingsError: it is not there.
        """
        if self.name not in self.keys:
            raise StateSettingsError(
                StateFault.CONFIG_MAP_MISSING,
                f"{self.spec_path}: there is no ConfigMap {self.namespace}/{self.name}: create it, or name another one",
            )
        paths = {key: f"{directory}/{key}" for key in sorted(self.keys[self.name])}
        return _chosen_files(
            volume, {"configMap": {"name": self.name}}, paths, containers=containers
        )


def config_maps_of(driver: "DriverDescription") -> frozenset[str]:
    """Return the ConfigMaps whose keys must be known to build the driver's objects."""
    named = {driver.spec.kernel_module_config.name}
    if not driver.is_precompiled:
        named |= {driver.repo_config, driver.spec.cert_config.name}
    return frozenset(named - {""})


def add_config_files(daemon_set: Json, files: Iterable[ConfigFiles]) -> None:
    """Add volumes and mounts to the pods of a DaemonSet; an empty ConfigMap has no file."""
    for file in files:
        if not file.mounts:
            continue
        pod_spec_of(daemon_set)["volumes"].append(dict(file.volume))
        for container in containers_of(daemon_set):
            if container["name"] in file.containers:
                container["volumeMounts"] += [dict(mount) for mount in file.mounts]


def driver_files(driver: "DriverDescription", group: "DriverGroup") -> list[ConfigFiles]:
    """Return the files of a driver's containers on a group of nodes.

    Raises:
        StateSettingsError: a ConfigMap is not there, or the system has no known directory for its files.
    """
    own = frozenset({DRIVER})
    found = []
    if driver.spec.kernel_module_config.name:
        config = _named(driver, driver.spec.kernel_module_config.name, "kernelModuleConfig")
        found.append(module_parameters(config, {DRIVER, PEERMEM}))
    if driver.licence:
        found.append(_licence_files(driver.licence, own))
    if driver.topology_config:
        source = {"configMap": {"name": driver.topology_config}}
        paths = {"nvidia-topologyd.conf": "/etc/nvidia/nvidia-topologyd.conf"}
        found.append(_chosen_files("topology-config", source, paths, containers=own))
    if not driver.is_precompiled:
        return [*found, *_repositories(driver, group), *_subscription(driver, group)]
    if group.system in _SUSE:
        found.append(_of_node("lib-modules", "/run/host/lib/modules", "/lib/modules"))
    return found


def module_parameters(config: NamedConfigMap, containers: "Collection[str]") -> ConfigFiles:
    """Return the parameters of kernel modules, where the driver's programs look for them."""
    return config.files("kernel-module-config", _MODULES_DIRECTORY, containers)


def _named(driver: "DriverDescription", name: str, field: str) -> NamedConfigMap:
    return NamedConfigMap(
        name=name,
        spec_path=f"{driver.spec_path}.{field}",
        namespace=driver.namespace,
        keys=driver.config_keys,
    )


def _repositories(driver: "DriverDescription", group: "DriverGroup") -> list[ConfigFiles]:
    named = (
        ("repo-config", _named(driver, driver.repo_config, "repoConfig")),
        ("cert-config", _named(driver, driver.spec.cert_config.name, "certConfig")),
    )
    named_files = [(place, volume, item) for place, (volume, item) in enumerate(named) if item.name]
    directories = _DIRECTORIES.get(group.system)
    if named_files and directories is None:
        raise StateSettingsError(
            StateFault.SPEC_INVALID,
            f"{named_files[0][2].spec_path}: it is not known where nodes of {group.os_tag} have such files, only where those"
            f" of {', '.join(sorted(_DIRECTORIES))} have them: leave the field out, and put them into the image",
        )
    return [
        item.files(volume, directories[place], _BUILDING)
        for place, volume, item in named_files
        if directories is not None
    ]


def _subscription(driver: "DriverDescription", group: "DriverGroup") -> list[ConfigFiles]:
    paths: tuple[tuple[str, str, str], ...] = ()
    if group.has_host_subscription and not driver.repo_config:
        paths = _RED_HAT_SUBSCRIPTION
    elif group.system in _SUSE:
        paths = _SUSE_SUBSCRIPTION
    return [
        _of_node(f"subscription-config-{number}", path, host_path, kind=kind)
        for number, (path, host_path, kind) in enumerate(paths)
    ]


def _licence_files(licence: "LicenceFiles", containers: "Collection[str]") -> ConfigFiles:
    paths = {"gridd.conf": f"{_MODULES_DIRECTORY}/gridd.conf"}
    if licence.has_token:
        key = "client_configuration_token.tok"
        paths[key] = f"{_MODULES_DIRECTORY}/ClientConfigToken/{key}"
    source: Json = {"configMap": {"name": licence.config_map}}
    if licence.secret:
        source = {"secret": {"secretName": licence.secret}}
    return _chosen_files("licensing-config", source, paths, containers=containers)


def _chosen_files(
    volume: str, source: Json, paths: Mapping[str, str], *, containers: "Collection[str]"
) -> ConfigFiles:
    """Return keys of a ConfigMap or a Secret, each at its path."""
    ((kind, reference),) = source.items()
    items = [{"key": key, "path": key} for key in paths]
    return ConfigFiles(
        volume={"name": volume, kind: {**reference, "items": items}},
        mounts=tuple(
            {"name": volume, "mountPath": path, "subPath": key, "readOnly": True}
            for key, path in paths.items()
        ),
        containers=containers,
    )


def _of_node(volume: str, path: str, host_path: str, *, kind: str = "Directory") -> ConfigFiles:
    return ConfigFiles(
        volume={"name": volume, "hostPath": {"path": host_path, "type": kind}},
        mounts=({"name": volume, "mountPath": path, "readOnly": True},),
        containers={DRIVER},
    )
