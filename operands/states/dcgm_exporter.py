"""State `dcgm-exporter`: metrics of devices by NVIDIA's dcgm-exporter.

It asks the node's host engine where that is an operand, and runs an engine of its own otherwise.
"""

from typing import Any, Final

from operands.asset_files import load_assets
from operands.operand_settings import BootstrapOperands
from operands.operand_state import OperandState
from operands.states import dcgm_host_engine, gfd, validator
from operands.states.metrics_objects import set_metrics_objects
from operands.transforms import (
    container_of,
    finish,
    pod_spec_of,
    set_env,
    set_options,
    set_runtime_class,
    set_security,
    the,
)

NAME: Final = "dcgm-exporter"
_HOST_ENGINE: Final = "gpu-dcgm:5555"
"""The Service of state `dcgm`, which leads to the engine of the same node."""


def _build(settings: BootstrapOperands) -> list[dict[str, Any]]:
    exporter, objects = settings.exporter, load_assets(NAME)
    daemon_set = the(objects, "DaemonSet")
    main = container_of(daemon_set, NAME)
    remote = {"DCGM_REMOTE_HOSTENGINE_INFO": _HOST_ENGINE} if settings.runs_dcgm else {}
    set_env(
        main,
        {
            "DCGM_EXPORTER_LISTEN": f":{exporter.port}",
            "DCGM_EXPORTER_COLLECTORS": exporter.collectors,
            **remote,
        },
    )
    main["ports"][0]["containerPort"] = exporter.port
    for volume in pod_spec_of(daemon_set)["volumes"]:
        if volume["name"] == "pod-resources":
            volume["hostPath"]["path"] = f"{settings.kubelet_directory}/pod-resources"
    set_options(daemon_set, NAME, exporter.options)
    set_security(daemon_set, privileged=frozenset({NAME}))
    set_runtime_class(daemon_set, settings)
    the(objects, "Service")["spec"]["ports"][0]["port"] = exporter.port
    return finish(NAME, set_metrics_objects(objects, exporter), settings)


STATE: Final = OperandState(
    name=NAME,
    needs=(validator.NAME, gfd.NAME, dcgm_host_engine.NAME),
    is_enabled=lambda settings: settings.runs_exporter,
    build=_build,
)
