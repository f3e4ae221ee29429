"""GPUDevice validation: may the operator put this device in that pool?

Judged only when the assignment annotation changes to a name; taking it away is always possible, as is
every other change of the object. The pool controller looks again before it takes the device.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from admission.decision import NOT_READY, Admitted, Decision, Denied
from admission.review import GroupVersionKind, Operation, decode_object
from admission.text import cut, listed
from api.gpudevice import GPUDevice
from api.names import (
    ASSIGNMENT_ANNOTATION,
    GROUP,
    IGNORE_LABEL,
    VERSION,
    PoolName,
    pool_name_fault,
)
from pool.selection import Excluded, NotIncluded, mismatch
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.desk import AdmissionDesk
    from admission.review import Request
    from api.gpupool import GPUPool
    from pool.selection import Check

KIND: Final = GroupVersionKind(group=GROUP, version=VERSION, kind="GPUDevice")

_decoder = msgspec.json.Decoder(GPUDevice)


def validate(request: "Request", desk: "AdmissionDesk") -> Decision:
    """Admit the device, or say everything that speaks against its new assignment."""
    if request.operation not in {Operation.CREATE, Operation.UPDATE}:
        return Admitted()
    device = decode_object(request.object_, _decoder, KIND)
    if isinstance(device, Denied):
        return device
    if device.assignment is None or device.assignment == _assignment_before(request):
        return Admitted()
    if not desk.is_ready():
        return NOT_READY
    name = cut(device.assignment)
    faults = [*_pool_faults(device.assignment, device, desk), *_device_faults(device)]
    facts = {"pool": name}
    if faults:
        text = f"{device.name} cannot be assigned to pool {name}: {'; '.join(faults)}"
        return Denied(RefusalReason.INVALID_ASSIGNMENT, text, facts)
    return Admitted(audit={"pool": name}, facts=facts)


def _assignment_before(request: "Request") -> str | None:
    if request.operation is Operation.CREATE:
        return None
    before = decode_object(request.old_object, _decoder, KIND)
    return before.assignment if isinstance(before, GPUDevice) else None


def _device_faults(device: GPUDevice) -> "Iterator[str]":
    status = device.status
    if device.is_ignored:
        yield f"it is ignored: remove the label {IGNORE_LABEL} first"
    if not status.managed:
        yield "it is not managed: its node opts out of GPU management"
    missing = [
        field
        for field, value in (("uuid", status.uuid), ("pci.address", status.pci.address))
        if not value
    ]
    if missing:
        yield f"its inventory lacks {' and '.join(missing)}: wait until the node has reported it"
    owner = status.pool_ref
    if owner is not None and owner.name != device.assignment:
        yield (
            f"pool {owner.name} owns it: remove the annotation {ASSIGNMENT_ANNOTATION}, and wait"
            " until status.poolRef is gone (once no pod uses the device) before you assign it anew"
        )


def _pool_faults(assignment: str, device: GPUDevice, desk: "AdmissionDesk") -> "Iterator[str]":
    name_fault = pool_name_fault(assignment)
    if name_fault is not None:
        yield f"that is no name of a pool: {name_fault}"
        return
    pool = desk.catalog.pools.get(PoolName(assignment))
    if pool is None:
        known = desk.catalog.pools
        yield f"pool not found; there is {listed(known)}" if known else "there is no pool at all"
        return
    if pool.metadata.deletion_timestamp is not None:
        yield "the pool is being deleted"
    yield from _selector_faults(pool, device, desk)


def _selector_faults(pool: "GPUPool", device: GPUDevice, desk: "AdmissionDesk") -> "Iterator[str]":
    match mismatch(pool.spec.device_selector, device.status):
        case NotIncluded(check=check):
            yield f"the pool's deviceSelector.include.{_said(check)}"
        case Excluded(checks=checks):
            yield f"the pool's deviceSelector.exclude.{' and '.join(map(_said, checks))}"
        case None:  # pragma: no branch  # mypy proves that no case is missing
            pass
    node = desk.books.index.node(device.node)
    selector = pool.spec.node_selector
    if node is not None and selector is not None and not selector.matches(node.labels):
        yield f"the pool's nodeSelector does not select node {node.name}"


def _said(check: "Check") -> str:
    has = f'"{cut(check.actual)}"' if check.actual else "a value that is not known yet"
    return f"{check.category.value} is {listed(check.wanted)}, the device has {has}"
