"""GPUDevices: assignments to pools are validated, and who decides on a device is recorded on it.

Only a change of the assignment annotation to a name is validated; removing it is not, nor is any other change of the
object. `inventory.assignment.eligibility` has the rules, for this webhook and for
`device.assignment`, which applies them again before it takes the device. Temporary obstacles, and those that the
user cannot mend (the node's readiness, the device's health, maxDevicesPerNode, errors of the pool), are not denied:
the device's condition Assigned shows them. A device of another pool may be annotated: its owner releases it in an
orderly way first.
"""

from typing import TYPE_CHECKING, Final

from admission.decision import NOT_READY, Admitted, Decision, Denied
from admission.object_decoder import ObjectDecoder
from admission.review import GroupVersionKind, Operation
from api.kinds.gpudevice import GPUDevice
from api.names import DECIDED_BY_ANNOTATION, GROUP, VERSION, PoolName
from api.text import MAX_WARNING_LENGTH, pointer_token, truncate
from inventory.assignment.eligibility import (
    exclusion_obstacles,
    incomplete,
    name_fault,
    node_selector_obstacles,
    selector_obstacles,
    terminating,
)
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.context import AdmissionContext
    from admission.review import AdmissionRequest

KIND: Final = GroupVersionKind(group=GROUP, version=VERSION, kind="GPUDevice")

_decoder: "Final[ObjectDecoder[GPUDevice]]" = ObjectDecoder(GPUDevice, KIND)


def validate(request: "AdmissionRequest", context: "AdmissionContext") -> Decision:
    """Admit the device, or deny it with every objection to its new assignment."""
    if request.operation not in {Operation.CREATE, Operation.UPDATE}:
        return Admitted()
    device = _decoder.decode(request.object_)
    if isinstance(device, Denied):
        return device
    before = _before(request)
    if device.assignment is None or (before is not None and device.assignment == before.assignment):
        return Admitted()
    if not context.is_ready():
        return NOT_READY
    name = truncate(device.assignment)
    # The API server drops the status of an object that is created: nothing is known of the device yet.
    is_known = request.operation is not Operation.CREATE
    faults = [
        *_pool_faults(device.assignment, device, context, is_known=is_known),
        *(obstacle.text for obstacle in exclusion_obstacles(device)),
        *(item.text for item in (incomplete(device) if is_known else ())),
    ]
    facts = {"pool": name}
    if faults:
        text = f"{device.name} cannot be assigned to pool {name}: {'; '.join(faults)}"
        return Denied(RefusalReason.INVALID_ASSIGNMENT, text, facts)
    return Admitted(warnings=tuple(_warnings(device)), audit={"pool": name}, facts=facts)


def mutate(request: "AdmissionRequest") -> Decision:
    """Record the user where the assignment or the label `ignore` changes, and restore the record otherwise."""
    if request.operation not in {Operation.CREATE, Operation.UPDATE}:
        return Admitted()
    device = _decoder.decode(request.object_)
    if isinstance(device, Denied):
        return device
    before = _before(request) or GPUDevice()
    is_decision = (device.assignment, device.is_ignored) != (before.assignment, before.is_ignored)
    record = truncate(request.user_info.username) if is_decision else before.decided_by
    if record == device.decided_by:
        return Admitted()
    path = "/metadata/annotations"
    key = f"{path}/{pointer_token(DECIDED_BY_ANNOTATION)}"
    if record is None:
        return Admitted(patch=({"op": "remove", "path": key},))
    if device.metadata.annotations is None:
        value = {DECIDED_BY_ANNOTATION: record}
        return Admitted(patch=({"op": "add", "path": path, "value": value},))
    return Admitted(patch=({"op": "add", "path": key, "value": record},))


def _before(request: "AdmissionRequest") -> GPUDevice | None:
    if request.operation is Operation.CREATE:
        return None
    before = _decoder.decode(request.old_object)
    return before if isinstance(before, GPUDevice) else None


def _warnings(device: GPUDevice) -> "Iterator[str]":
    owner = device.status.pool_ref
    if owner is not None and owner.name != device.assignment:
        text = (
            f"pool {owner.name} has it until no pod uses it; then pool {device.assignment} has it"
        )
        yield truncate(text, MAX_WARNING_LENGTH)


def _pool_faults(
    assignment: str, device: GPUDevice, context: "AdmissionContext", *, is_known: bool
) -> "Iterator[str]":
    unnameable = name_fault(assignment)
    if unnameable is not None:
        yield unnameable.text
        return
    pool = context.catalog.pools.get(PoolName(assignment))
    if pool is None:
        yield "pool not found; `kubectl get gpupools` lists those there are"
        return
    node = context.index.nodes.get(device.node)
    obstacles = (
        *terminating(pool),
        *(selector_obstacles(pool, device) if is_known else ()),
        *(node_selector_obstacles(pool, node.name, node.labels) if node is not None else ()),
    )
    yield from (obstacle.text for obstacle in obstacles)
