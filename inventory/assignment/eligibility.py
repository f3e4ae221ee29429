"""Eligibility of one device for one pool: obstacles, each with a reason and a text with the cure.

Admission uses them to refuse early what the operator can correct at once; `inventory.assignment.decide`
decides by them. Obstacles come in the order of `Reason`; the first one is shown.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from api import names
from api.text import listed, truncate
from inventory.assignment.selector import Excluded, NotIncluded, mismatch
from inventory.pools.validation import VALID_POOL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from inventory.assignment.selector import Check
    from inventory.pools.validation import PoolValidity


class Reason(Enum):
    """State of a device's assignment, or its obstacle.

    `telemetry.conditions.DeviceAssigned` has the same members, with the text for the condition.
    """

    ASSIGNED = auto()
    IGNORED = auto()
    NOT_MANAGED = auto()
    AMBIGUOUS_UUID = auto()
    INVENTORY_INCOMPLETE = auto()
    FAULTED = auto()
    POOL_NOT_FOUND = auto()
    POOL_TERMINATING = auto()
    POOL_UNSUPPORTED = auto()
    POOL_MISCONFIGURED = auto()
    SELECTOR_MISMATCH = auto()
    NODE_SELECTOR_MISMATCH = auto()
    NODE_NOT_READY_FOR_POOLING = auto()
    OWNED_BY_OTHER_POOL = auto()
    OTHER_PLUGIN = auto()
    MAX_DEVICES_PER_NODE = auto()
    AWAITS_DECISION = auto()
    NO_POOL_WANTS_IT = auto()


@dataclass(frozen=True, slots=True)
class AssignmentObstacle:
    """An obstacle that keeps a device out of a pool."""

    reason: Reason
    text: str
    """The fault and the cure; stable while nothing changes."""


def node_labels_of(device: "GPUDevice") -> "dict[str, str]":
    """Return the labels that `autoApproveSelector` matches.

    The labels of the object, and `gpu.deckhouse.io/device.<fact>` for facts of its status: `vendor`,
    `device` and `class` (lower-case hex), `product` (blanks as `-`), `uuid`, `memoryMiB` and `mig.capable`.
    An unknown fact has no label; an observed fact wins over a label of the same key.
    """
    status = device.status
    facts = {
        "vendor": status.pci.vendor.lower(),
        "device": status.pci.device.lower(),
        "class": status.pci.class_.lower(),
        "product": "-".join(status.product.split()),
        "uuid": status.uuid,
        "memoryMiB": str(status.memory_mib or ""),
        "mig.capable": "true" if status.mig.capable else "false",
    }
    labels = {names.DEVICE_LABEL_PREFIX + fact: value for fact, value in facts.items() if value}
    return {**(device.metadata.labels or {}), **labels}


def decided_by(device: "GPUDevice") -> str:
    """Return the user of the last decision on the device, in brackets behind what is decided; empty where unknown."""
    user = device.decided_by
    return f" (last decided by {truncate(user)})" if user else ""


def exclusion_obstacles(device: "GPUDevice") -> "Iterator[AssignmentObstacle]":
    """Yield the obstacles for every pool: the device leaves its pool, too."""
    if device.is_ignored:
        text = f"it is ignored{decided_by(device)}: remove its label {names.IGNORE_LABEL} first"
        yield AssignmentObstacle(Reason.IGNORED, text)
    if not device.status.managed:
        text = (
            "it is not managed: its node opts out of GPU management, remove its label"
            f" {names.MANAGED_LABEL} (or a virtual machine has it, bound to a VFIO driver)"
        )
        yield AssignmentObstacle(Reason.NOT_MANAGED, text)


def incomplete(device: "GPUDevice") -> "Iterator[AssignmentObstacle]":
    """Yield the unknown facts of the device; they do not remove it from its pool."""
    status = device.status
    facts = (("uuid", status.uuid), ("pci.address", status.pci.address))
    missing = [field for field, value in facts if not value]
    if missing:
        text = f"its inventory lacks {' and '.join(missing)}: wait until the node has reported it"
        yield AssignmentObstacle(Reason.INVENTORY_INCOMPLETE, text)


def name_fault(assignment: str) -> AssignmentObstacle | None:
    """Return the obstacle of an annotation that is no valid pool name; None for a valid one."""
    fault = names.pool_name_fault(assignment)
    if fault is None:
        return None
    text = f"it is no valid pool name: {fault}"
    return AssignmentObstacle(Reason.POOL_NOT_FOUND, text)


def pool_not_found(assignment: str) -> AssignmentObstacle:
    """Return the obstacle of an assignment to a pool that does not exist."""
    fault = name_fault(assignment)
    text = f"pool not found: create it, or correct the annotation {names.ASSIGNMENT_ANNOTATION}"
    return fault or AssignmentObstacle(Reason.POOL_NOT_FOUND, text)


def terminating(pool: "GPUPool") -> "Iterator[AssignmentObstacle]":
    """Yield the obstacle of a pool that is being deleted."""
    if pool.metadata.deletion_timestamp is not None:
        yield AssignmentObstacle(
            Reason.POOL_TERMINATING, "the pool is being deleted: choose another one"
        )


def validity_obstacles(validity: "PoolValidity") -> "Iterator[AssignmentObstacle]":
    """Yield why the pool takes no new device; it keeps those that it has."""
    if validity is VALID_POOL or validity.is_valid:
        return
    if validity.unsupported is not None:
        yield AssignmentObstacle(
            Reason.POOL_UNSUPPORTED, f"the pool is unsupported: {truncate(validity.text)}"
        )
    else:
        text = f"the pool is misconfigured: {truncate(validity.text)}"
        yield AssignmentObstacle(Reason.POOL_MISCONFIGURED, text)


def selector_obstacles(pool: "GPUPool", device: "GPUDevice") -> "Iterator[AssignmentObstacle]":
    """Yield why the pool's deviceSelector does not match the device."""
    match mismatch(pool.spec.device_selector, device.status):
        case NotIncluded(check=check):
            text = f"the pool's deviceSelector.include.{_described(check)}"
            yield AssignmentObstacle(Reason.SELECTOR_MISMATCH, text)
        case Excluded(checks=checks):
            text = f"the pool's deviceSelector.exclude.{' and '.join(map(_described, checks))}"
            yield AssignmentObstacle(Reason.SELECTOR_MISMATCH, text)
        case None:  # pragma: no branch  # mypy proves that no case is missing
            pass


def node_selector_obstacles(
    pool: "GPUPool", node: "names.NodeName", labels: "Mapping[str, str]"
) -> "Iterator[AssignmentObstacle]":
    """Yield why the pool's nodeSelector does not match the node."""
    selector = pool.spec.node_selector
    if selector is not None and not selector.matches(labels):
        text = f"the pool's nodeSelector does not select node {node}"
        yield AssignmentObstacle(Reason.NODE_SELECTOR_MISMATCH, text)


def is_approved(pool: "GPUPool", device: "GPUDevice") -> bool:
    """Whether `spec.assignment` lets the pool take the device without an annotation."""
    assignment = pool.spec.assignment
    if assignment.require_annotation:
        return False
    selector = assignment.auto_approve_selector
    return selector is None or selector.matches(node_labels_of(device))


def _described(check: "Check") -> str:
    has = f'"{truncate(check.actual)}"' if check.actual else "no known value yet"
    return f"{check.category.value} is {listed(check.required)}, the device has {has}"
