"""State `state-container-toolkit`: NVIDIA's container toolkit, with one DaemonSet for each container runtime of the nodes.

Which files of the runtime it gets follows from the runtime, and from variables of `spec.toolkit.env` such as
`CONTAINERD_CONFIG` that name others, as of k3s. What it changes is in a drop-in file; the runtime's main file gets no more
than the import of it. With the toolkit's plugin of the runtime (NRI) it gets the socket of the plugin and no file.

CRI-O has the `nvidia` handler without the Container Device Interface, too, where upstream installs a hook: so pods of one
DaemonSet can name the RuntimeClass on the nodes of every runtime.
"""

import copy
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, final

from operands import transforms
from operands.asset_files import load_assets
from operands.nvidia.devices.access import runtime_class_of, toolkit_directory
from operands.nvidia.node_software import RUNTIME_LABEL, RuntimeName
from operands.nvidia.policy_operands import PolicyOperands, StateFault, StateSettingsError
from operands.nvidia.policy_transforms import finish_policy, select_nodes, set_block
from operands.nvidia.states import driver
from operands.nvidia.switched_off import switched_by
from operands.operand_state import OperandState

Json = dict[str, Any]

NAME: Final = "state-container-toolkit"
DAEMON_SET: Final = "nvidia-container-toolkit-daemonset"
_MAIN: Final = "nvidia-container-toolkit-ctr"
_HOOKS: Final = "crio-hooks"
_INSTALLATION: Final = "toolkit-install-dir"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _RuntimeFiles:
    """Files of a container runtime, and the variables by which the toolkit knows them."""

    name: str
    """Name in the toolkit's words."""
    suffix: str = ""
    """Suffix of the DaemonSet's name."""
    config: str
    config_variable: str
    drop_in: str = ""
    """Empty: the runtime reads no drop-in files."""
    socket: str = ""
    """Empty: the toolkit needs none."""
    socket_variable: str = ""


_FILES: Final = {
    RuntimeName.CONTAINERD: _RuntimeFiles(
        name="containerd",
        config="/etc/containerd/config.toml",
        config_variable="CONTAINERD_CONFIG",
        drop_in="/etc/containerd/conf.d/99-nvidia.toml",
        socket="/run/containerd/containerd.sock",
        socket_variable="CONTAINERD_SOCKET",
    ),
    RuntimeName.CRI_O: _RuntimeFiles(
        name="crio",
        suffix="-cri-o",
        config="/etc/crio/config.toml",
        config_variable="CRIO_CONFIG",
        drop_in="/etc/crio/crio.conf.d/99-nvidia.conf",
    ),
    RuntimeName.DOCKER: _RuntimeFiles(
        name="docker",
        suffix="-docker",
        config="/etc/docker/daemon.json",
        config_variable="DOCKER_CONFIG",
        socket="/var/run/docker.sock",
        socket_variable="DOCKER_SOCKET",
    ),
}
_NRI_SOCKET: Final = "/var/run/nri/nri.sock"


def _build(settings: PolicyOperands) -> list[Json]:
    objects = load_assets(NAME)
    daemon_set = transforms.object_of(objects, "DaemonSet")
    objects.remove(daemon_set)
    transforms.set_content_hash(daemon_set, transforms.object_of(objects, "ConfigMap"))
    runtimes = {item.runtime for item in settings.software}
    for runtime in RuntimeName:
        if runtime.value in runtimes:
            objects.append(_for_runtime(copy.deepcopy(daemon_set), runtime, settings))
    return finish_policy(NAME, objects, settings)


def _for_runtime(daemon_set: Json, runtime: RuntimeName, settings: PolicyOperands) -> Json:
    """Return the DaemonSet of the nodes with the runtime."""
    main = transforms.container_of(daemon_set, _MAIN)
    _name(daemon_set, runtime)
    transforms.set_env(main, _environment(runtime, settings))
    _set_directory(daemon_set, settings)
    # Variables of the spec may name other files of the runtime, so that they come first.
    set_block(daemon_set, _MAIN, settings.spec.toolkit, field="toolkit", settings=settings)
    transforms.set_env(main, {"RUNTIME": _FILES[runtime].name})
    if runtime is not RuntimeName.CRI_O:
        transforms.without_volume(daemon_set, _HOOKS)
    if settings.spec.cdi.nri_plugin_enabled:
        _set_plugin_socket(daemon_set, settings)
    else:
        _set_files(daemon_set, _FILES[runtime], settings)
    return daemon_set


def _name(daemon_set: Json, runtime: RuntimeName) -> None:
    """Set what tells the DaemonSet from those of other runtimes; `app` is one for all, as tools look for it."""
    daemon_set["metadata"]["name"] = f"{DAEMON_SET}{_FILES[runtime].suffix}"
    spec, label = daemon_set["spec"], {RUNTIME_LABEL: runtime.value}
    spec["selector"]["matchLabels"] |= label
    spec["template"]["metadata"]["labels"] |= label
    select_nodes(daemon_set, label)


def _environment(runtime: RuntimeName, settings: PolicyOperands) -> dict[str, str]:
    cdi = settings.spec.cdi
    found = {"ROOT": toolkit_directory(settings)}
    if runtime is RuntimeName.CRI_O:
        found["CRIO_CONFIG_MODE"] = "config"
    if cdi.enabled:
        # The runtime itself gives pods their devices; `nvidia` is the handler of those that name its class.
        found |= {
            "CDI_ENABLED": "true",
            "NVIDIA_RUNTIME_SET_AS_DEFAULT": "false",
            "NVIDIA_CONTAINER_RUNTIME_MODE": "cdi",
        }
    if cdi.nri_plugin_enabled:
        found["ENABLE_NRI_PLUGIN"] = "true"
    elif runtime is RuntimeName.CONTAINERD:
        found["CONTAINERD_RUNTIME_CLASS"] = runtime_class_of(settings)
    return found


def _set_directory(daemon_set: Json, settings: PolicyOperands) -> None:
    directory = toolkit_directory(settings)
    for volume in transforms.pod_spec_of(daemon_set)["volumes"]:
        if volume["name"] == _INSTALLATION:
            volume["hostPath"]["path"] = directory
    for mount in transforms.container_of(daemon_set, _MAIN)["volumeMounts"]:
        if mount["name"] == _INSTALLATION:
            mount["mountPath"] = directory


def _set_plugin_socket(daemon_set: Json, settings: PolicyOperands) -> None:
    socket = _path(daemon_set, ("NRI_SOCKET",), default=_NRI_SOCKET, settings=settings)
    inside = _mount(daemon_set, "nri-socket", socket, target="/runtime/nri-sock-dir")
    transforms.set_env(transforms.container_of(daemon_set, _MAIN), {"NRI_SOCKET": inside})


def _set_files(daemon_set: Json, files: _RuntimeFiles, settings: PolicyOperands) -> None:
    """Mount the directories of the runtime's files, and say where they are in the container."""
    variables = (files.config_variable, "RUNTIME_CONFIG")
    config = _path(daemon_set, variables, default=files.config, settings=settings)
    inside = _mount(daemon_set, f"{files.name}-config", config, target="/runtime/config-dir")
    found = dict.fromkeys(variables, inside)
    if files.drop_in:
        drop_in = _path(
            daemon_set, ("RUNTIME_DROP_IN_CONFIG",), default=files.drop_in, settings=settings
        )
        volume = f"{files.name}-drop-in-config"
        found["RUNTIME_DROP_IN_CONFIG"] = _mount(
            daemon_set, volume, drop_in, target="/runtime/config-dir.d"
        )
        found["RUNTIME_DROP_IN_CONFIG_HOST_PATH"] = str(drop_in)
    if files.socket:
        variables = (files.socket_variable, "RUNTIME_SOCKET")
        socket = _path(daemon_set, variables, default=files.socket, settings=settings)
        inside = _mount(
            daemon_set, f"{files.name}-socket", socket, target="/runtime/sock-dir", is_created=False
        )
        found |= dict.fromkeys(variables, inside)
    main = transforms.container_of(daemon_set, _MAIN)
    if sources := _value(main, "RUNTIME_CONFIG_SOURCE"):
        found["RUNTIME_CONFIG_SOURCE"] = ",".join(map(_source, sources.split(",")))
    transforms.set_env(main, found)


def _source(text: str) -> str:
    """Return a source of the runtime's configuration; a file of the node is below the mount of its root."""
    kind, separator, path = text.partition("=")
    return f"file=/host/{path.lstrip('/')}" if separator and kind == "file" else text


def _value(container: Json, variable: str) -> str:
    found: str = next(
        (item.get("value", "") for item in container["env"] if item["name"] == variable), ""
    )
    return found


def _path(
    daemon_set: Json, variables: tuple[str, ...], *, default: str, settings: PolicyOperands
) -> PurePosixPath:
    """Return a file of the node: that of the first variable that has one, or the default.

    Raises:
        StateSettingsError: it is no whole path.
    """
    main = transforms.container_of(daemon_set, _MAIN)
    for variable in variables:
        if text := _value(main, variable):
            path = PurePosixPath(text)
            if path.is_absolute() and path.name and ".." not in path.parts:
                return path
            raise StateSettingsError(
                StateFault.SPEC_INVALID,
                f"{settings.path('toolkit.env')}: {variable} is {text[:256]!r}: set it to the whole path of a file",
            )
    return PurePosixPath(default)


def _mount(
    daemon_set: Json, volume: str, file: PurePosixPath, *, target: str, is_created: bool = True
) -> str:
    """Mount the directory of a file of the node, and return the file's path in the container."""
    source = {"path": str(file.parent), **({"type": "DirectoryOrCreate"} if is_created else {})}
    transforms.pod_spec_of(daemon_set)["volumes"].append({"name": volume, "hostPath": source})
    mount = {"name": volume, "mountPath": target}
    transforms.container_of(daemon_set, _MAIN)["volumeMounts"].append(mount)
    return f"{target}/{file.name}"


STATE: Final = OperandState(
    name=NAME,
    needs=(driver.NAME,),
    why_off=switched_by("toolkit"),
    deploy_label="container-toolkit",
    build=_build,
)
