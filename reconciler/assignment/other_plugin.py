"""NVIDIA's own device plugin on the node of a device that joins a pool: it leaves first.

    device is to join ──> its deploy label off ──> its pods gone ──> pods that have devices by it known, and off the device

While both plugins run, kubelet would give one device to two pods. The label goes off by `node.deploy-labels`, since the
device's condition Assigned says that it waits for that. What its pods have is in the agent's report.
"""

from typing import TYPE_CHECKING, Final

from api.driver_upgrade import DEPLOY_LABEL_PREFIX, is_of_nvidias_plugin
from api.foreign.core import Pod
from api.quantity import parse_count
from api.status_conditions import find_condition
from api.text import truncate
from kube.resources import PODS
from operands.nvidia.deploy_labels import DEVICE_PLUGIN
from reconciler.sinks.inventory import plugin_allocations
from telemetry.conditions import DeviceAssigned, DeviceCondition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.names import DeviceName, NodeName
    from kube.client import KubeClient
    from pool.model import NodeFacts

PLUGIN_LABEL: Final = f"{DEPLOY_LABEL_PREFIX}{DEVICE_PLUGIN}"
PLUGINS: Final = frozenset(
    {"nvidia-device-plugin-daemonset", "nvidia-device-plugin-mps-control-daemon"}
)
"""Values of the pods' label `app`, which are the GPU Operator's as well."""

LEAVES_S: Final = 1.0
"""Seconds after which it is read again whether the plugin's pods are gone."""
ENDS_S: Final = 30.0
"""Seconds after which it is read again whether a pod has ended that its node does not report, as an older agent does not."""


def label_fault(facts: "NodeFacts") -> str:
    """Return which label brings NVIDIA's device plugin to a node with operands, and the cure; empty: none does."""
    value = facts.labels.get(PLUGIN_LABEL, "")
    if not facts.deploy_labels or value in {"", "false"}:
        return ""
    return (
        f"NVIDIA's device plugin leaves node {facts.name} first: its label {PLUGIN_LABEL}={truncate(value)} is taken"
        " off; remove it if another client set it"
    )


def plugin_users(
    inventory: "GPUNodeInventory | None", devices: "Iterable[GPUDevice]"
) -> "dict[DeviceName, frozenset[str]]":
    """Return the pods that have devices by NVIDIA's own device plugin, as kubelet reports to the node's agent."""
    pods: dict[str, set[str]] = {}
    for entry in plugin_allocations(inventory):
        for unit in entry.units:
            pods.setdefault(unit.partition("::")[0], set()).add(f"{entry.namespace}/{entry.pod}")
    found: dict[DeviceName, frozenset[str]] = {}
    for device in devices if pods else ():
        uuids = {device.status.uuid, *(item.uuid for item in device.status.mig.instances or ())}
        if users := frozenset[str]().union(*(pods.get(uuid, ()) for uuid in uuids)):
            found[device.name] = users
    return found


async def plugin_on(
    client: "KubeClient",
    node: "NodeName",
    inventory: "GPUNodeInventory | None",
    *,
    has_operands: bool,
) -> tuple[str, float]:
    """Return why NVIDIA's device plugin may still give devices of the node, or have given some; empty: neither.

    A pod that came while the plugin was there may not be in the agent's report yet. Beside it are the seconds after which
    that is to be read again.

    Args:
        client: of the API server.
        node: with a device that is to join a pool.
        inventory: of the node.
        has_operands: whether the plugin there is ours to take off. Others may have one for their autoscaler
            (`signalResource`), which no pod asks for.

    Raises:
        KubeError: the API server gives no answer.
    """
    listing = await client.list_(PODS, Pod, field_selector=f"spec.nodeName={node}")
    reported = {entry.uid for entry in plugin_allocations(inventory)}
    for pod in listing.items:
        name = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
        if pod.is_terminal:
            continue
        if has_operands and (pod.metadata.labels or {}).get("app") in PLUGINS:
            return f"{name} of NVIDIA's device plugin leaves node {node} first", LEAVES_S
        if pod.metadata.uid not in reported and any(
            map(is_of_nvidias_plugin, _limited_resources(pod))
        ):
            text = f"{name} has devices by NVIDIA's device plugin, and node {node} has not reported yet which"
            return text, ENDS_S
    return "", 0.0


def waits_for_plugin(device: "GPUDevice", *, is_pending: bool, is_away: bool) -> bool:
    """Say whether NVIDIA's own device plugin is to stay away from the node of a device in no pool.

    Args:
        device: of the node.
        is_pending: whether its node's inventory says that it is meant for a pool.
        is_away: whether the plugin is kept away already. Then it does not come back while the node is validated
            again, which its leaving brings about.
    """
    condition = find_condition(device.status.conditions, DeviceCondition.ASSIGNED)
    if condition is None:
        return False
    # Which only a device has that is meant for a pool, also on a node without an inventory.
    is_waiting = condition.reason == DeviceAssigned.OTHER_PLUGIN.value
    is_validated_again = condition.reason == DeviceAssigned.NODE_NOT_READY_FOR_POOLING.value
    return is_waiting or (is_pending and is_away and is_validated_again)


def _limited_resources(pod: "Pod") -> "Iterator[str]":
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        if container.resources is not None:
            limits = container.resources.limits or {}
            yield from (name for name, count in limits.items() if parse_count(str(count)))
