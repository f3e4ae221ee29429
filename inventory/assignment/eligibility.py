"""Whether one device may come into one pool, and what speaks against it: a reason, and a text with the cure.

The one source for admission, which asks early and refuses what the operator can set right at once, and for
`inventory.assignment.decide`, which decides. Reasons come in the order of `Reason`; the first one is shown.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from api.names import (
    ASSIGNMENT_ANNOTATION,
    DEVICE_LABEL_PREFIX,
    IGNORE_LABEL,
    MANAGED_LABEL,
    pool_name_fault,
)
from api.text import listed, truncate
from inventory.assignment.selector import Excluded, NotIncluded, mismatch
from inventory.pools.validation import SOUND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from api.names import NodeName
    from inventory.assignment.selector import Check
    from inventory.pools.validation import PoolValidity


class Reason(Enum):
    """Where a device stands, or what keeps it out of a pool.

    `telemetry.conditions.DeviceAssigned` has the same members, with the words that people read.
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
    MAX_DEVICES_PER_NODE = auto()
    NO_POOL_WANTS_IT = auto()


@dataclass(frozen=True, slots=True)
class AssignmentObstacle:
    """Something that keeps a device out of a pool."""

    reason: Reason
    text: str
    """What is wrong and what to do about it; it stays the same while nothing changes."""


def node_labels_of(device: "GPUDevice") -> "dict[str, str]":
    """Return the labels that `autoApproveSelector` looks at.

    The labels of the object, and `gpu.deckhouse.io/device.<fact>` for what its status says: `vendor`,
    `device` and `class` (lower-case hex), `product` (blanks as `-`), `uuid`, `memoryMiB` and `mig.capable`.
    A fact that is not known has no label; an observed fact wins over a label of the same key.
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
    known = {DEVICE_LABEL_PREFIX + fact: value for fact, value in facts.items() if value}
    return {**(device.metadata.labels or {}), **known}


def kept_out(device: "GPUDevice") -> "Iterator[AssignmentObstacle]":
    """Yield what keeps the device out of every pool: it leaves the one that it is in."""
    if device.is_ignored:
        text = f"it is ignored: remove the label {IGNORE_LABEL} first"
        yield AssignmentObstacle(Reason.IGNORED, text)
    if not device.status.managed:
        text = (
            "it is not managed: its node opts out of GPU management, remove its label"
            f" {MANAGED_LABEL}"
        )
        yield AssignmentObstacle(Reason.NOT_MANAGED, text)


def incomplete(device: "GPUDevice") -> "Iterator[AssignmentObstacle]":
    """Yield what nobody knows of the device yet; one that is in a pool stays there."""
    status = device.status
    facts = (("uuid", status.uuid), ("pci.address", status.pci.address))
    missing = [field for field, value in facts if not value]
    if missing:
        text = f"its inventory lacks {' and '.join(missing)}: wait until the node has reported it"
        yield AssignmentObstacle(Reason.INVENTORY_INCOMPLETE, text)


def name_fault(assignment: str) -> AssignmentObstacle | None:
    """Return what forbids the text of an annotation as a pool's name."""
    fault = pool_name_fault(assignment)
    if fault is None:
        return None
    text = f"that is no name of a pool: {fault}"
    return AssignmentObstacle(Reason.POOL_NOT_FOUND, text)


def pool_not_found(assignment: str) -> AssignmentObstacle:
    """Return the obstacle of an assignment to a pool that there is not."""
    fault = name_fault(assignment)
    text = f"pool not found: create it, or correct the annotation {ASSIGNMENT_ANNOTATION}"
    return fault or AssignmentObstacle(Reason.POOL_NOT_FOUND, text)


def terminating(pool: "GPUPool") -> "Iterator[AssignmentObstacle]":
    """Yield that the pool is being deleted: it wants no device any more."""
    if pool.metadata.deletion_timestamp is not None:
        yield AssignmentObstacle(
            Reason.POOL_TERMINATING, "the pool is being deleted: choose another one"
        )


def unsound(verdict: "PoolValidity") -> "Iterator[AssignmentObstacle]":
    """Yield why the pool takes nothing new; what it has it keeps."""
    if verdict is SOUND or verdict.is_sound:
        return
    if verdict.unsupported is not None:
        yield AssignmentObstacle(
            Reason.POOL_UNSUPPORTED, f"the pool is unsupported: {truncate(verdict.text)}"
        )
    else:
        text = f"the pool is misconfigured: {truncate(verdict.text)}"
        yield AssignmentObstacle(Reason.POOL_MISCONFIGURED, text)


def unselected(pool: "GPUPool", device: "GPUDevice") -> "Iterator[AssignmentObstacle]":
    """Yield why the pool's deviceSelector does not take the device."""
    match mismatch(pool.spec.device_selector, device.status):
        case NotIncluded(check=check):
            text = f"the pool's deviceSelector.include.{_said(check)}"
            yield AssignmentObstacle(Reason.SELECTOR_MISMATCH, text)
        case Excluded(checks=checks):
            text = f"the pool's deviceSelector.exclude.{' and '.join(map(_said, checks))}"
            yield AssignmentObstacle(Reason.SELECTOR_MISMATCH, text)
        case None:  # pragma: no branch  # mypy proves that no case is missing
            pass


def off_limits(
    pool: "GPUPool", node: "NodeName", labels: "Mapping[str, str]"
) -> "Iterator[AssignmentObstacle]":
    """Yield why the pool's nodeSelector does not take the node."""
    selector = pool.spec.node_selector
    if selector is not None and not selector.matches(labels):
        text = f"the pool's nodeSelector does not select node {node}"
        yield AssignmentObstacle(Reason.NODE_SELECTOR_MISMATCH, text)


def is_approved(pool: "GPUPool", device: "GPUDevice") -> bool:
    """Say whether the pool takes the device without an annotation, as far as `assignment` goes."""
    assignment = pool.spec.assignment
    if assignment.require_annotation:
        return False
    selector = assignment.auto_approve_selector
    return selector is None or selector.matches(node_labels_of(device))


def _said(check: "Check") -> str:
    has = f'"{truncate(check.actual)}"' if check.actual else "a value that is not known yet"
    return f"{check.category.value} is {listed(check.wanted)}, the device has {has}"
