"""CustomResourceDefinitions of our kinds: schemas from `api`, columns and short names from here."""

from typing import TYPE_CHECKING, Any, Final

from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.kinds.leadershipterm import GPUControlPlaneTerm
from manifests.custom_resource import (
    AGE,
    Column,
    CustomResource,
    build_definitions,
    condition_column,
    figure_column,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


_POOL_COLUMNS: Final = (
    Column(name="Mode", path=".spec.allocation.mode"),
    figure_column("Total", ".status.capacity.total", "Units of the pool's devices."),
    figure_column("Used", ".status.capacity.used", "Units of bound pods."),
    figure_column(
        "Held", ".status.capacity.reserved", "Units held for pods that are not bound yet."
    ),
    figure_column("Free", ".status.capacity.available", "Units that are free to be allocated now."),
    figure_column(
        "Largest", ".status.capacity.largestFree", "Most units that are free on one node."
    ),
    figure_column("Waiting", ".status.waiting", "Pods that wait for units."),
    Column(name="Phase", path=".status.phase"),
    Column(name="Resource", path=".status.resourceName", is_wide=True),
    figure_column(
        "Unhealthy", ".status.capacity.unhealthy", "Free units that are withheld.", is_wide=True
    ),
    figure_column(
        "Candidates", ".status.candidates", "Devices that wait for a decision.", is_wide=True
    ),
    figure_column("Nodes", ".status.nodes", "Nodes with a unit of the pool.", is_wide=True),
    Column(name="Strategy", path=".status.strategy", is_wide=True),
    condition_column("Why", "Ready", is_wide=True, field="message"),
    condition_column("Conflict", "Conflict", is_wide=True, field="message"),
    Column(
        name="Deleted",
        path=".metadata.deletionTimestamp",
        type="date",
        description="Time since the pool was deleted; its pods may still run.",
        is_wide=True,
    ),
    AGE,
)

_DEVICE_COLUMNS: Final = (
    Column(name="Node", path=".status.nodeName"),
    Column(name="Pool", path=".status.poolRef.name"),
    Column(name="State", path=".status.state"),
    Column(name="Product", path=".status.product"),
    figure_column("Used", ".status.units.allocated", "Units of bound pods."),
    figure_column("Units", ".status.units.capacity", "Units that the device exports."),
    condition_column("Health", "Healthy", field="reason"),
    figure_column(
        "Held",
        ".status.units.reserved",
        "Units held for pods that are not bound yet.",
        is_wide=True,
    ),
    Column(name="UUID", path=".status.uuid", is_wide=True),
    Column(name="PCI", path=".status.pci.address", is_wide=True),
    Column(
        name="Memory",
        path=".status.memoryMiB",
        type="integer",
        description="In MiB.",
        is_wide=True,
    ),
    figure_column(
        "Xid", ".status.lastXid.code", "Last Xid of the device, a fault or not.", is_wide=True
    ),
    Column(
        name="Xid Age",
        path=".status.lastXid.time",
        type="date",
        description="Time since the last Xid.",
        is_wide=True,
    ),
    condition_column("Assigned", "Assigned", is_wide=True, field="reason"),
    condition_column("Why", "Assigned", is_wide=True, field="message"),
    AGE,
)

_INVENTORY_COLUMNS: Final = (
    figure_column("Devices", ".status.deviceCounts.total", "Devices of the node."),
    figure_column("Pooled", ".status.deviceCounts.pooled", "Devices that are in a pool."),
    figure_column("Faulted", ".status.deviceCounts.faulted", "Devices that report a fault."),
    condition_column("Poolable", "ReadyForPooling"),
    condition_column("Reason", "ReadyForPooling", field="reason"),
    Column(name="Driver", path=".status.driver.version"),
    Column(name="Phase", path=".status.phase", is_wide=True),
    Column(name="CUDA", path=".status.driver.cudaVersion", is_wide=True),
    Column(name="Kernel", path=".status.system.kernel", is_wide=True),
    Column(name="OS", path=".status.system.os", is_wide=True),
    AGE,
)

_TERM_COLUMNS: Final = (
    Column(name="Holder", path=".spec.holder"),
    Column(name="Number", path=".spec.number", type="integer", description="Of take-overs."),
    AGE,
)

_KINDS: Final = (
    CustomResource(
        model=GPUPool,
        plural="gpupools",
        short_names=("gpool",),
        columns=_POOL_COLUMNS,
        selectable=(".status.phase",),
    ),
    CustomResource(
        model=GPUDevice,
        plural="gpudevices",
        short_names=("gdev",),
        columns=_DEVICE_COLUMNS,
        selectable=(".status.nodeName", ".status.poolRef.name", ".status.state"),
    ),
    CustomResource(
        model=GPUNodeInventory,
        plural="gpunodeinventories",
        short_names=("gni",),
        columns=_INVENTORY_COLUMNS,
    ),
    CustomResource(
        model=GPUControlPlaneTerm,
        plural="gpucontrolplaneterms",
        short_names=("gterm",),
        columns=_TERM_COLUMNS,
        categories=(),  # users have no use for it
    ),
)


def build_crds(annotations: "Mapping[str, str] | None" = None) -> list[dict[str, Any]]:
    return build_definitions(_KINDS, annotations)
