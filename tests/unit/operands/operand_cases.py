"""Built-in policies for the tests, as the server makes them of its settings: the matrix of what may be on, off, or otherwise."""

from collections.abc import Mapping
from typing import Any

from operands.nvidia.policy_operands import PolicyOperands
from server.controllers.built_in_policy import built_in_policy
from server.controllers.settings import workload_settings
from server.settings import Settings

Json = dict[str, Any]

OWN = "registry.example.com/gpu-control-plane:1.0"
ON: Mapping[str, Json] = {
    "gfd": {"enabled": True, "image": "registry.example.com/gfd:1.0"},
    "dcgm": {"enabled": True, "image": "registry.example.com/dcgm:1.0"},
    "dcgm_exporter": {"source": "DCGM", "image": "registry.example.com/dcgm-exporter:1.0"},
}
DIGEST = "registry.example.com/nvidia/dcgm@sha256:" + "0a" * 32


def a_built_in_policy(
    bootstrap: Json, *, namespace: str = "gpu", image: str = OWN, **settings: Any
) -> PolicyOperands:
    given = {"namespace": namespace, "device_plugin": {"image": image}, "bootstrap": bootstrap}
    found = Settings.model_validate(given | settings)
    return built_in_policy(found, workload_settings(found))


def all_on(**changes: Json) -> Json:
    """Return section `bootstrap` with every operand, but for these fields of each."""
    names = (*ON, *(name for name in changes if name not in ON))
    return {name: {**ON.get(name, {}), **changes.get(name, {})} for name in names}


ALL_ON = a_built_in_policy(all_on())
NVML = a_built_in_policy({"gfd": ON["gfd"]})
DEFAULT = a_built_in_policy({})
EXTERNAL = a_built_in_policy({"operands": "External"})
CASES: dict[str, PolicyOperands] = {
    "empty-settings": DEFAULT,
    "all-on": ALL_ON,
    "nvml": NVML,
    "external": EXTERNAL,
    **{
        f"{name.replace('_', '-')}-off": a_built_in_policy(all_on(**{name: {"enabled": False}}))
        for name in ("validator", "gfd", "dcgm", "dcgm_exporter")
    },
    "nvidia-fs": a_built_in_policy(all_on(validator={"enable_nvidia_fs_validation": True})),
    "gdrcopy": a_built_in_policy(all_on(validator={"enable_gdrcopy_validation": True})),
    "features-directory": a_built_in_policy(
        all_on(
            gfd={
                "features_dir": "/var/lib/features.d",
                "host_sys_path": "/host/sys",
                "fail_on_init_error": False,
                "sleep_interval_s": 90.5,
            }
        )
    ),
    "config-manager": a_built_in_policy(
        all_on(gfd={"config_map": "gfd-configs", "default_config": "shared"})
    ),
    "engine": a_built_in_policy(
        all_on(
            dcgm={
                "image": DIGEST,
                "memory_limit": "2Gi",
            }
        ),
        node_agent={"image_pull_secrets": ["registry"], "image_pull_policy": "Always"},
    ),
    "custom-exporter": a_built_in_policy(
        {
            "runtime_class": "nvidia",
            **all_on(
                dcgm_exporter={
                    "port": 9500,
                    "labels": {"team": "gpu"},
                    "env": {"NVIDIA_VISIBLE_DEVICES": "void", "LEVEL": "debug"},
                    "service_monitor": {
                        "labels": {"release": "prometheus"},
                        "annotations": {"example.com/a": "b"},
                    },
                }
            ),
        }
    ),
}
