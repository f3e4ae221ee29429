"""State `gfd`: NVIDIA's gpu-feature-discovery, which reports the devices of a node as a NodeFeature or a features.d file."""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.operand_settings import BootstrapOperands, GfdSettings
from operands.operand_state import OperandState
from operands.states import validator
from operands.transforms import (
    container_of,
    finish,
    pod_spec_of,
    set_env,
    set_options,
    set_runtime_class,
    set_security,
    the,
    without_container,
    without_volume,
)

NAME: Final = "gfd"
_MAIN: Final = "gpu-feature-discovery"
_CONFIG_MANAGERS: Final = ("config-manager-init", "config-manager")
_OF_CONFIGURATION: Final = ("available-configs", "config")


def _build(settings: BootstrapOperands) -> list[dict[str, Any]]:
    gfd, objects = settings.gfd, load_assets(NAME)
    if not gfd.uses_node_feature_api:
        objects = [object_ for object_ in objects if object_["kind"] not in {"Role", "RoleBinding"}]
    daemon_set = the(objects, "DaemonSet")
    set_env(container_of(daemon_set, _MAIN), _environment(gfd))
    _set_directories(daemon_set, gfd)
    _set_configuration(daemon_set, gfd)
    set_options(daemon_set, _MAIN, gfd.options)
    set_security(daemon_set, privileged=frozenset({_MAIN}))
    set_runtime_class(daemon_set, settings)
    return finish(NAME, objects, settings)


def _environment(gfd: GfdSettings) -> dict[str, str]:
    return {
        "GFD_USE_NODE_FEATURE_API": str(gfd.uses_node_feature_api).lower(),
        "GFD_SLEEP_INTERVAL": f"{gfd.sleep_interval_s:g}s",
        "GFD_FAIL_ON_INIT_ERROR": str(gfd.fails_on_init_error).lower(),
    }


def _set_directories(daemon_set: dict[str, Any], gfd: GfdSettings) -> None:
    paths = {"features": gfd.features_dir, "host-sys": gfd.host_sys_path}
    for volume in pod_spec_of(daemon_set)["volumes"]:
        if volume["name"] in paths:
            volume["hostPath"]["path"] = paths[volume["name"]]
    if gfd.uses_node_feature_api:
        without_volume(daemon_set, "features")


def _set_configuration(daemon_set: dict[str, Any], gfd: GfdSettings) -> None:
    if not gfd.config_map:
        for name in _CONFIG_MANAGERS:
            without_container(daemon_set, name)
        for name in _OF_CONFIGURATION:
            without_volume(daemon_set, name)
        return
    set_env(container_of(daemon_set, _MAIN), {"CONFIG_FILE": "/config/config.yaml"})
    for name in _CONFIG_MANAGERS:
        set_env(container_of(daemon_set, name), {"DEFAULT_CONFIG": gfd.default_config})
    # config-manager signals GFD, which is a process of another container.
    spec = pod_spec_of(daemon_set)
    spec["shareProcessNamespace"] = True
    for volume in spec["volumes"]:
        if volume["name"] == "available-configs":
            volume["configMap"]["name"] = gfd.config_map


STATE: Final = OperandState(
    name=NAME,
    needs=(validator.NAME,),
    is_enabled=lambda settings: settings.runs_gfd,
    build=_build,
)
