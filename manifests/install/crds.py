"""CustomResourceDefinitions of our kinds: schemas from `api`, columns and short names from here."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from api.crd.openapi import crd_schema
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.kinds.leadershipterm import GPUControlPlaneTerm
from api.names import GROUP, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.meta import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    name: str
    path: str
    type: str = "string"
    description: str = ""
    is_wide: bool = False

    def build(self) -> dict[str, Any]:
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            column["description"] = self.description
        if self.is_wide:
            column["priority"] = 1
        return column


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    model: "type[Model]"
    plural: str
    short_name: str
    columns: tuple[_Column, ...]
    selectable: tuple[str, ...] = ()
    categories: tuple[str, ...] = ("gpu",)

    def build(self) -> dict[str, Any]:
        kind = self.model.__name__
        schema = crd_schema(self.model)
        has_status = "status" in schema["properties"]
        version: dict[str, Any] = {
            "name": VERSION,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
            **({"subresources": {"status": {}}} if has_status else {}),
            "additionalPrinterColumns": [column.build() for column in (*self.columns, _AGE)],
        }
        if self.selectable:
            version["selectableFields"] = [{"jsonPath": path} for path in self.selectable]
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": "Cluster",
                "names": {
                    "kind": kind,
                    "listKind": f"{kind}List",
                    "plural": self.plural,
                    "singular": kind.lower(),
                    "shortNames": [self.short_name],
                    **({"categories": [*self.categories]} if self.categories else {}),
                },
                "versions": [version],
            },
        }


def _condition(
    column: str, condition: str, *, is_wide: bool = False, field: str = "status"
) -> _Column:
    path = f'.status.conditions[?(@.type=="{condition}")].{field}'
    return _Column(name=column, path=path, is_wide=is_wide)


def _figure(column: str, path: str, description: str, *, is_wide: bool = False) -> _Column:
    return _Column(name=column, path=path, type="integer", description=description, is_wide=is_wide)


_AGE: Final = _Column(name="Age", path=".metadata.creationTimestamp", type="date")

_POOL_COLUMNS: Final = (
    _Column(name="Mode", path=".spec.allocation.mode"),
    _figure("Total", ".status.capacity.total", "Units of the pool's devices."),
    _figure("Used", ".status.capacity.used", "Units of bound pods."),
    _figure("Held", ".status.capacity.reserved", "Units held for pods that are not bound yet."),
    _figure("Free", ".status.capacity.available", "Units that are free to be allocated now."),
    _figure("Largest", ".status.capacity.largestFree", "Most units that are free on one node."),
    _figure("Waiting", ".status.waiting", "Pods that wait for units."),
    _Column(name="Phase", path=".status.phase"),
    _Column(name="Resource", path=".status.resourceName", is_wide=True),
    _figure(
        "Unhealthy", ".status.capacity.unhealthy", "Free units that are withheld.", is_wide=True
    ),
    _figure("Nodes", ".status.nodes", "Nodes with a unit of the pool.", is_wide=True),
    _Column(name="Strategy", path=".status.strategy", is_wide=True),
    _condition("Why", "Ready", is_wide=True, field="message"),
    _condition("Conflict", "Conflict", is_wide=True, field="message"),
    _Column(
        name="Deleted",
        path=".metadata.deletionTimestamp",
        type="date",
        description="Time since the pool was deleted; its pods may still run.",
        is_wide=True,
    ),
)

_DEVICE_COLUMNS: Final = (
    _Column(name="Node", path=".status.nodeName"),
    _Column(name="Pool", path=".status.poolRef.name"),
    _Column(name="State", path=".status.state"),
    _Column(name="Product", path=".status.product"),
    _figure("Used", ".status.units.allocated", "Units of bound pods."),
    _figure("Units", ".status.units.capacity", "Units that the device exports."),
    _condition("Health", "Healthy", field="reason"),
    _figure(
        "Held",
        ".status.units.reserved",
        "Units held for pods that are not bound yet.",
        is_wide=True,
    ),
    _Column(name="UUID", path=".status.uuid", is_wide=True),
    _Column(name="PCI", path=".status.pci.address", is_wide=True),
    _Column(
        name="Memory",
        path=".status.memoryMiB",
        type="integer",
        description="In MiB.",
        is_wide=True,
    ),
    _condition("Assigned", "Assigned", is_wide=True, field="reason"),
    _condition("Why", "Assigned", is_wide=True, field="message"),
)

_INVENTORY_COLUMNS: Final = (
    _figure("Devices", ".status.deviceCounts.total", "Devices of the node."),
    _figure("Pooled", ".status.deviceCounts.pooled", "Devices that are in a pool."),
    _figure("Faulted", ".status.deviceCounts.faulted", "Devices that report a fault."),
    _condition("Poolable", "ReadyForPooling"),
    _condition("Reason", "ReadyForPooling", field="reason"),
    _Column(name="Driver", path=".status.driver.version"),
    _Column(name="Phase", path=".status.phase", is_wide=True),
    _Column(name="CUDA", path=".status.driver.cudaVersion", is_wide=True),
    _Column(name="Kernel", path=".status.system.kernel", is_wide=True),
    _Column(name="OS", path=".status.system.os", is_wide=True),
)

_TERM_COLUMNS: Final = (
    _Column(name="Holder", path=".spec.holder"),
    _Column(name="Number", path=".spec.number", type="integer", description="Of take-overs."),
)

_KINDS: Final = (
    _Kind(
        model=GPUPool,
        plural="gpupools",
        short_name="gpool",
        columns=_POOL_COLUMNS,
        selectable=(".status.phase",),
    ),
    _Kind(
        model=GPUDevice,
        plural="gpudevices",
        short_name="gdev",
        columns=_DEVICE_COLUMNS,
        selectable=(".status.nodeName", ".status.poolRef.name", ".status.state"),
    ),
    _Kind(
        model=GPUNodeInventory,
        plural="gpunodeinventories",
        short_name="gni",
        columns=_INVENTORY_COLUMNS,
    ),
    _Kind(
        model=GPUControlPlaneTerm,
        plural="gpucontrolplaneterms",
        short_name="gterm",
        columns=_TERM_COLUMNS,
        categories=(),  # users have no use for it
    ),
)


def build_crds(annotations: "Mapping[str, str] | None" = None) -> list[dict[str, Any]]:
    definitions = [kind.build() for kind in _KINDS]
    if annotations:
        for definition in definitions:
            definition["metadata"]["annotations"] = dict(annotations)
    return definitions
