"""Operand pods (driver validation, GFD, DCGM): their selection, and the facts that are kept.

Only pods of trusted namespaces count: a user who may create pods must not be able to make a node ready or a
device faulty. A pool's own workloads carry the pool's label and are no operands of the node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Final

import msgspec

from api.meta import Model, ObjectMeta
from api.names import POOL_LABEL, NodeName
from api.text import truncate
from inventory.readiness.software import STEP_SUFFIX, Operand

if TYPE_CHECKING:
    from collections.abc import Callable

APP_LABEL: Final = "app"
METRICS_PORT_NAME: Final = "metrics"
DEFAULT_APPS: Final[Mapping[Operand, tuple[str, ...]]] = {
    Operand.VALIDATOR: ("gpu-control-plane-validator", "nvidia-operator-validator"),
    Operand.GFD: ("gpu-control-plane-gpu-feature-discovery", "gpu-feature-discovery"),
    Operand.DCGM: ("gpu-control-plane-dcgm", "nvidia-dcgm"),
    Operand.DCGM_EXPORTER: ("gpu-control-plane-dcgm-exporter", "nvidia-dcgm-exporter"),
}
"""The control plane's own, and those of NVIDIA's GPU Operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandParameters:
    """Parameters by which a pod is an operand."""

    apps: Mapping[Operand, tuple[str, ...]] = field(default_factory=lambda: DEFAULT_APPS)
    """Values of the label `app`, by operand."""
    namespaces: frozenset[str] | None = frozenset({"gpu-control-plane", "gpu-operator"})
    """Trusted namespaces; None trusts every namespace."""
    exporter_port: int = 9400
    """Where a DCGM exporter serves whose container has no port called `metrics`."""

    @property
    def label_selector(self) -> str:
        """Return the label selector of the informer."""
        apps = sorted({app for values in self.apps.values() for app in values})
        return f"{APP_LABEL} in ({','.join(apps)}),!{POOL_LABEL}"


class _ContainerPort(Model, frozen=True):
    name: str = ""
    container_port: int = 0


class _Container(Model, frozen=True):
    name: str = ""
    ports: list[_ContainerPort] | None = None


class _OperandSpec(Model, frozen=True):
    node_name: str = ""
    containers: list[_Container] | None = None


class _Terminated(Model, frozen=True):
    exit_code: int = -1
    message: str = ""


class _ContainerState(Model, frozen=True):
    terminated: _Terminated | None = None


class _ContainerStatus(Model, frozen=True):
    name: str = ""
    ready: bool = False
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()

    @property
    def cause(self) -> str:
        """Return the termination message of its last failure; the same while kubelet starts it again."""
        for ended in (self.state.terminated, self.last_state.terminated):
            if ended is not None and ended.exit_code != 0 and ended.message:
                return truncate(" ".join(ended.message.split()))
        return ""


class _Condition(Model, frozen=True):
    type: str = ""
    status: str = ""


class _OperandStatus(Model, frozen=True):
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[_Condition] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    container_statuses: list[_ContainerStatus] | None = None


class OperandPodObject(Model, frozen=True):
    """The part of a pod that shows the state of an operand."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _OperandSpec = _OperandSpec()
    status: _OperandStatus = _OperandStatus()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandPod:
    """Facts of an operand's pod."""

    ref: str
    """`namespace/name`."""
    operand: Operand
    node: NodeName
    """Empty while it is not bound."""
    is_ready: bool = False
    waits_for: str = ""
    """The init container that has not succeeded; empty where all have."""
    cause: str = ""
    """Termination message of that container, or of the container that is not ready."""
    passed: frozenset[str] = frozenset()
    """Init containers that have succeeded, and whose step has not failed since."""
    ip: str = ""
    port: int = 0

    @property
    def message(self) -> str:
        """Return the reason that the pod is not ready; empty where it is."""
        if self.is_ready:
            return ""
        cause = f": {self.cause}" if self.cause else ""
        if self.waits_for:
            return f"pod {self.ref}: init container {self.waits_for} has not succeeded{cause}"
        return f"pod {self.ref} is not ready{cause}"


def projection(parameters: OperandParameters) -> "Callable[[OperandPodObject], OperandPod | None]":
    """Return the projection of pods to facts; it returns None for other pods."""
    operands = {app: operand for operand, apps in parameters.apps.items() for app in apps}

    def project(pod: OperandPodObject) -> OperandPod | None:
        meta = pod.metadata
        operand = operands.get(meta.label(APP_LABEL) or "")
        is_trusted = parameters.namespaces is None or meta.namespace in parameters.namespaces
        if operand is None or not is_trusted or meta.label(POOL_LABEL) is not None:
            return None
        return _operand_pod(pod, operand, parameters)

    return project


def _operand_pod(
    pod: OperandPodObject, operand: Operand, parameters: OperandParameters
) -> OperandPod:
    inits = pod.status.init_container_statuses or ()
    is_ready = pod.metadata.deletion_timestamp is None and any(
        condition.type == "Ready" and condition.status == "True"
        for condition in pod.status.conditions or ()
    )
    is_exporter = operand is Operand.DCGM_EXPORTER
    waits_for = next((init for init in inits if not _has_passed(init)), None)
    held_up = [waits_for] if waits_for else pod.status.container_statuses or ()
    # A pod that is ready has no cause: a difference in it would be a change of the node.
    cause = (
        ""
        if is_ready
        else next((item.cause for item in held_up if not item.ready and item.cause), "")
    )
    # The validator checks its steps again while it runs, and names the one that has failed since.
    failed = f"{cause.partition(':')[0]}{STEP_SUFFIX}"
    return OperandPod(
        ref=f"{pod.metadata.namespace}/{pod.metadata.name}",
        operand=operand,
        node=NodeName(intern(pod.spec.node_name)),
        is_ready=is_ready,
        waits_for=waits_for.name if waits_for else "",
        cause=cause,
        passed=frozenset(
            intern(init.name) for init in inits if _has_passed(init) and init.name != failed
        ),
        ip=pod.status.pod_ip if is_exporter else "",
        port=_metrics_port(pod.spec, parameters) if is_exporter else 0,
    )


def _has_passed(status: _ContainerStatus) -> bool:
    ended = status.state.terminated
    return status.ready or (ended is not None and ended.exit_code == 0)


def _metrics_port(spec: _OperandSpec, parameters: OperandParameters) -> int:
    for container in spec.containers or ():
        for port in container.ports or ():
            if port.name == METRICS_PORT_NAME and 0 < port.container_port < 65536:
                return port.container_port
    return parameters.exporter_port
