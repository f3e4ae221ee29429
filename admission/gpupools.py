"""GPUPool validation: every error of a pool in one message, field by field.

Only a changed spec is validated: a pool that an older version admitted must stay deletable, and its metadata
changeable.
"""

from typing import TYPE_CHECKING, Any, Final

from admission.decision import NOT_READY, Admitted, Decision, Denied
from admission.object_decoder import ObjectDecoder
from admission.review import GroupVersionKind, Operation
from admission.strict_decoding import read
from api.field_errors import FieldError
from api.kinds.gpupool import GPUPool, GPUPoolSpec
from api.meta import Model, ObjectMeta
from api.names import GROUP, VERSION, pool_name_fault
from api.text import truncate
from inventory.pools.spec_rules import change_warnings, spec_faults, spec_warnings
from inventory.pools.validation import part_faults
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission.context import AdmissionContext
    from admission.review import AdmissionRequest

KIND: Final = GroupVersionKind(group=GROUP, version=VERSION, kind="GPUPool")

_OWN_NAME: Final = "spec.resource.name"


class _Envelope(Model, frozen=True):
    """A pool with an undecoded spec."""

    metadata: ObjectMeta
    spec: dict[str, Any] | None = None


_decoder: "Final[ObjectDecoder[_Envelope]]" = ObjectDecoder(_Envelope, KIND)


def validate(request: "AdmissionRequest", context: "AdmissionContext") -> Decision:
    """Admit the pool, or deny it with every error."""
    if request.operation not in {Operation.CREATE, Operation.UPDATE}:
        return Admitted()
    new = _decoder.decode(request.object_)
    if isinstance(new, Denied):
        return new
    old = _before(request)
    if old is not None and (old.spec == new.spec or new.metadata.deletion_timestamp is not None):
        return Admitted()
    if not context.is_ready():
        return NOT_READY
    spec, faults = read(new.spec or {}, GPUPoolSpec, "spec")
    pool = GPUPool(metadata=new.metadata, spec=spec)
    unread = {_section_of(fault.path) for fault in faults}
    faults += [
        fault
        for fault in (*spec_faults(spec), *part_faults(pool))
        if fault.path not in unread and _section_of(fault.path) not in unread
    ]
    if old is None:
        faults += _name_faults(pool)
    else:
        faults += _change_faults(pool, old)
    taken = _taken_text(pool, context)
    if faults:
        return Denied(RefusalReason.INVALID_POOL, _text([*faults, *taken]))
    if taken:
        return Denied(RefusalReason.POOL_NAME_TAKEN, _text(taken))
    warnings = [*spec_warnings(spec)]
    if old is not None:
        before, _ = read(old.spec or {}, GPUPoolSpec, "spec")
        warnings += change_warnings(before, spec)
    return Admitted(warnings=tuple(warnings))


def _before(request: "AdmissionRequest") -> _Envelope | None:
    if request.operation is Operation.CREATE:
        return None
    old = _decoder.decode(request.old_object)
    return old if isinstance(old, _Envelope) else None


def _section_of(path: str) -> str:
    """Return the list or object that a path leads into.

    Where part of it is unreadable, rules about the rest would guess, and items of a list would be miscounted.
    """
    list_path, bracket, _ = path.partition("[")
    return list_path if bracket else path.rpartition(".")[0]


def _name_faults(pool: GPUPool) -> "Iterator[FieldError]":
    fault = pool_name_fault(pool.metadata.name)
    if fault is not None:
        yield FieldError("metadata.name", fault)


def _change_faults(pool: GPUPool, old: _Envelope) -> "Iterator[FieldError]":
    """Deny another resource name: running pods use the old one."""
    spec, _ = read(old.spec or {}, GPUPoolSpec, "spec")
    before = GPUPool(metadata=old.metadata, spec=spec).resource_name
    if pool.resource_name != before:
        text = (
            f"cannot change from {truncate(before)} to {truncate(pool.resource_name)}, because running pods"
            " use the resource under it: create another pool"
        )
        yield FieldError(_OWN_NAME, text)


def _taken_text(pool: GPUPool, context: "AdmissionContext") -> list[FieldError]:
    """Refuse a resource name that another pool serves.

    Two pools created at the same moment may both pass; the older serves it then (the first by name, in one
    second), and the other is misconfigured (`inventory.pools.validation`).
    """
    is_taken = any(
        name != pool.name and other.resource_name == pool.resource_name
        for name, other in context.catalog.pools.items()
    )
    if not is_taken:
        return []
    text = f"{truncate(pool.resource_name)} is served by another pool: choose another name"
    return [FieldError(_OWN_NAME, text)]


def _text(faults: list[FieldError]) -> str:
    return "; ".join(str(fault) for fault in sorted(faults, key=lambda fault: fault.path))
