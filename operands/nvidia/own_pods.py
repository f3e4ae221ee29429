"""What the built-in policy says beside a spec, and how the pods of its operands differ from those of a ClusterPolicy.

They wait for our validator by our image, run where the node agent may run, and have only the rights that they need.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from api.names import OPERAND_LABEL
from api.well_known_labels import APP_COMPONENT_LABEL
from operands.transforms import RESTRICTED, container_of, object_of, pod_spec_of, without_container

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

OPERAND_COMPONENT: Final = "gpu-operand"
"""Value of `app.kubernetes.io/component`, by which the network policy finds the pods."""
EXPORTER_PORT: Final = 9400
WAITING: Final = "toolkit-validation"
"""Init container that waits for the validator's file."""
_PLACEMENT: Final = ("affinity", "nodeSelector", "priorityClassName")
_WAIT: Final = {
    "command": ["gpu-control-plane"],
    "args": ["validate", "toolkit", "--wait"],
    "terminationMessagePath": "/run/termination-log",
    "terminationMessagePolicy": "FallbackToLogsOnError",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOperands:
    """What the settings say of the operands of the built-in policy, beside its spec."""

    placement: Json = field(default_factory=dict)
    """Fields of every pod that say on which nodes it runs."""
    runs_validator: bool = False
    """Whether ours runs, in the image of `spec.validator`; otherwise nothing waits for it."""
    exports_nvml: bool = False
    """Whether the node agents serve the metrics of devices, so that a Service leads to them."""
    allocation_arguments: tuple[str, ...] = ()
    """How containers get their devices: what the runtime needs for it is validated."""
    library_arguments: tuple[str, ...] = ()
    """Where the driver's libraries are searched first."""
    validates_nvidia_fs: bool = False
    validates_gdrcopy: bool = False
    features_dir: str = ""
    """Directory of the node for files of features; empty: gpu-feature-discovery writes a NodeFeature."""
    host_sys_path: str = "/sys"
    exporter_port: int = EXPORTER_PORT
    service_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the Service of the device metrics."""
    monitor_annotations: Mapping[str, str] = field(default_factory=dict)


def set_own_pods(daemon_set: Json, state: str, own: OwnOperands) -> None:
    """Give a DaemonSet the labels, the place, the waiting container and the security contexts of the built-in policy."""
    spec = pod_spec_of(daemon_set)
    labels = {OPERAND_LABEL: state, APP_COMPONENT_LABEL: OPERAND_COMPONENT}
    daemon_set["spec"]["template"]["metadata"]["labels"] |= labels
    for key in _PLACEMENT:
        spec.pop(key, None)
    spec |= {key: value for key, value in own.placement.items() if value}
    # The validator's own step has the name of the container that waits for it.
    if any(item["name"] == "run-nvidia" for item in spec["volumes"]):
        if own.runs_validator:
            container_of(daemon_set, WAITING).update({**_WAIT, "securityContext": {}})
        else:
            without_container(daemon_set, WAITING)
    containers = (*spec["containers"], *spec.get("initContainers", ()))
    mounted = {mount["name"] for container in containers for mount in container["volumeMounts"]}
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] in mounted]
    for container in containers:
        given = container.get("securityContext", {})
        is_privileged = given.get("privileged", False)
        container["securityContext"] = (
            {**given, "runAsUser": 0, "runAsGroup": 0} if is_privileged else dict(RESTRICTED)
        )


def set_own_metrics(objects: "Iterable[Json]", own: OwnOperands) -> None:
    """Put the labels and annotations of the settings into Service and ServiceMonitor of either source of metrics."""
    objects = list(objects)
    service, monitor = (
        object_of(objects, "Service")["metadata"],
        object_of(objects, "ServiceMonitor"),
    )
    service["labels"] = {**own.service_labels, **service["labels"]}
    if own.monitor_annotations:
        monitor["metadata"]["annotations"] = dict(own.monitor_annotations)
