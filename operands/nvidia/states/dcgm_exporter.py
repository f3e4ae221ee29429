"""State `state-dcgm-exporter`: metrics of devices by NVIDIA's dcgm-exporter.

It asks the node's host engine where `state-dcgm` is on, and runs an engine of its own otherwise. It reads the cluster's
pods, and has a token for it, only where labels or UIDs of pods become labels of metrics.
"""

from typing import TYPE_CHECKING, Any, Final

from operands.asset_files import load_assets
from operands.nvidia.devices.access import set_device_access
from operands.nvidia.own_pods import set_own_metrics
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import (
    add_pod_metadata,
    finish_policy,
    set_block,
    set_or_remove_monitor,
)
from operands.nvidia.states import dcgm, operator_validation
from operands.nvidia.switched_off import switched_by
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, pod_spec_of, set_env

if TYPE_CHECKING:
    from api.kinds.nvidia.container_operands import DCGMExporterSpec
    from operands.nvidia.own_pods import OwnOperands

Json = dict[str, Any]

NAME: Final = "state-dcgm-exporter"
_MAIN: Final = "nvidia-dcgm-exporter"
_OF_PODS: Final = frozenset({"ClusterRole", "ClusterRoleBinding"})
_RIGHTS: Final = _OF_PODS | {"Role", "RoleBinding"}
"""The built-in policy grants none, whatever its environment says."""
_REMOTE_ENGINE: Final = "DCGM_REMOTE_HOSTENGINE_INFO"
_POD_LABELS: Final = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"
_POD_UID: Final = "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"
_POD_LABEL_EXPRESSIONS: Final = "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"
_METRICS_OF_CONFIG_MAP: Final = "DCGM_EXPORTER_CONFIGMAP_DATA"
_METRICS_FILE: Final = "dcgm-metrics.csv"
_JOBS: Final = "/var/lib/dcgm-exporter/job-mapping"


def _build(settings: PolicyOperands) -> list[Json]:
    exporter, objects, own = settings.spec.dcgm_exporter, load_assets(NAME), settings.own
    needless = _RIGHTS if own else _OF_PODS if not _reads_pods(exporter) else ()
    objects = [object_ for object_ in objects if object_["kind"] not in needless]
    daemon_set = object_of(objects, "DaemonSet")
    _set_engine(daemon_set, settings)
    _set_pods(daemon_set, exporter)
    _set_jobs(daemon_set, exporter)
    _set_metrics(daemon_set, exporter)
    set_device_access(daemon_set, _MAIN, settings)
    add_pod_metadata(daemon_set, labels={}, annotations=exporter.annotations or {})
    set_block(daemon_set, _MAIN, exporter, field="dcgmExporter", settings=settings)
    _set_service(object_of(objects, "Service"), exporter)
    if own is not None:
        _set_own(daemon_set, objects, own)
    set_or_remove_monitor(objects, exporter.service_monitor)
    return finish_policy(NAME, objects, settings)


def _variables(exporter: "DCGMExporterSpec") -> dict[str, str]:
    return {item.name: item.value for item in exporter.env or ()}


def _reads_pods(exporter: "DCGMExporterSpec") -> bool:
    given = _variables(exporter)
    return bool(
        exporter.enable_pod_labels
        or exporter.enable_pod_uid
        or any(given.get(name, "").lower() == "true" for name in (_POD_LABELS, _POD_UID))
    )


def _needs_token(exporter: "DCGMExporterSpec") -> bool:
    """Return whether the exporter asks the API server for anything."""
    config_map = _variables(exporter).get(_METRICS_OF_CONFIG_MAP, "")
    return _reads_pods(exporter) or config_map not in {"", "none"}


def _set_engine(daemon_set: Json, settings: PolicyOperands) -> None:
    if settings.spec.dcgm.is_enabled:
        set_env(container_of(daemon_set, _MAIN), {_REMOTE_ENGINE: dcgm.HOST_ENGINE})
        return
    engine = _variables(settings.spec.dcgm_exporter).get(_REMOTE_ENGINE, "")
    if engine.startswith("localhost"):
        # An engine of the node itself, as a DGX has.
        spec = pod_spec_of(daemon_set)
        spec["hostNetwork"] = True
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"


def _set_pods(daemon_set: Json, exporter: "DCGMExporterSpec") -> None:
    spec = pod_spec_of(daemon_set)
    if exporter.host_pid:
        spec["hostPID"] = True
    spec["automountServiceAccountToken"] = _needs_token(exporter)
    given = {
        _POD_LABELS: "true" if exporter.enable_pod_labels else "",
        _POD_UID: "true" if exporter.enable_pod_uid else "",
        _POD_LABEL_EXPRESSIONS: ",".join(exporter.pod_label_allowlist_regex or ()),
    }
    set_env(
        container_of(daemon_set, _MAIN), {name: value for name, value in given.items() if value}
    )


def _set_jobs(daemon_set: Json, exporter: "DCGMExporterSpec") -> None:
    if not exporter.hpc_job_mapping.is_enabled:
        return
    directory = exporter.hpc_job_mapping.directory or _JOBS
    main = container_of(daemon_set, _MAIN)
    set_env(main, {"DCGM_HPC_JOB_MAPPING_DIR": directory})
    main["volumeMounts"].append(
        {"name": "hpc-job-mapping", "mountPath": directory, "readOnly": True}
    )
    pod_spec_of(daemon_set)["volumes"].append(
        {"name": "hpc-job-mapping", "hostPath": {"path": directory, "type": "DirectoryOrCreate"}}
    )


def _set_metrics(daemon_set: Json, exporter: "DCGMExporterSpec") -> None:
    """Mount the list of metrics of the ConfigMap over the image's own."""
    if not exporter.config.name:
        return
    path = f"/etc/dcgm-exporter/{_METRICS_FILE}"
    main = container_of(daemon_set, _MAIN)
    set_env(main, {"DCGM_EXPORTER_COLLECTORS": path})
    main["volumeMounts"].append(
        {"name": "metrics-config", "mountPath": path, "subPath": _METRICS_FILE, "readOnly": True}
    )
    items = [{"key": _METRICS_FILE, "path": _METRICS_FILE}]
    pod_spec_of(daemon_set)["volumes"].append(
        {"name": "metrics-config", "configMap": {"name": exporter.config.name, "items": items}}
    )


def _set_service(service: Json, exporter: "DCGMExporterSpec") -> None:
    if exporter.service.type:
        service["spec"]["type"] = exporter.service.type
    if exporter.service.internal_traffic_policy:
        service["spec"]["internalTrafficPolicy"] = exporter.service.internal_traffic_policy


def _set_own(daemon_set: Json, objects: list[Json], own: "OwnOperands") -> None:
    """Have the port and the metadata that the server's settings say."""
    main = container_of(daemon_set, _MAIN)
    main["ports"][0]["containerPort"] = own.exporter_port
    set_env(main, {"DCGM_EXPORTER_LISTEN": f":{own.exporter_port}"})
    pod_spec_of(daemon_set)["automountServiceAccountToken"] = False
    object_of(objects, "Service")["spec"]["ports"][0]["port"] = own.exporter_port
    set_own_metrics(objects, own)


STATE: Final = OperandState(
    name=NAME,
    needs=(operator_validation.NAME, dcgm.NAME),
    why_off=switched_by("dcgm_exporter"),
    deploy_label="dcgm-exporter",
    build=_build,
)
