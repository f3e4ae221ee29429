"""Access of workloads: a user whose groups open a pool writes a template, and the pods of its controllers inherit it.

A person creates a Deployment, and controllers the rest, so the API server names the person for the Deployment alone.
Admission of the template signs for that object who wrote it, and a pod carries the signature in its annotation. The
signature opens nothing by itself: any client that reaches the port can have one made. It counts because admission
has judged every template of these kinds that names a pool: it removes the annotation from those that it did not sign
for this object, and refuses those of everybody else. Templates of controllers are compared with their controller
reference, by uid where the signature has one. So the template of a pod's controller, and of every object above it, has
the signature of the object at which the references end. Kinds beside these may copy the annotation, and their
controllers may make pods of it: hence a pod's controller must be of a kind whose templates are admitted.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

import msgspec

from admission.signed_annotation import has_signature, with_signature
from api.annotations import AccessNote, decode_access
from api.names import ACCESS_ANNOTATION
from api.text import truncate
from api.workload_kinds import MADE_OF

if TYPE_CHECKING:
    from collections.abc import Iterable

    from admission.context import AdmissionContext
    from admission.review import AdmissionRequest
    from api.kinds.gpupool import GPUPool
    from api.meta import OwnerReference

MAX_GROUPS: Final = 16
"""Groups of a user that a signature has: any of them keeps it valid."""
_encode: Final = msgspec.json.Encoder().encode


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadIdentity:
    """A workload, by its own metadata or by a reference to it."""

    group: str
    kind: str
    name: str
    """May end with `*`, in the place of a generated part."""
    uid: str

    def __str__(self) -> str:
        return f"{truncate(self.kind)} {truncate(self.name)}"


class AccessFault(Enum):
    """Why an object does not inherit access."""

    NO_CONTROLLER = "NoController"
    NOT_SIGNED = "NotSigned"
    FORGED = "Forged"
    OTHER_POOL = "OtherPool"
    OTHER_OBJECT = "OtherObject"
    EXPIRED = "Expired"
    GROUPS_CHANGED = "GroupsChanged"


@final
@dataclass(frozen=True, slots=True)
class NotInherited:
    """No access is inherited."""

    fault: AccessFault
    holder: WorkloadIdentity | None = None
    """The object from which it would be inherited."""
    note: AccessNote | None = None

    @property
    def text(self) -> str:
        """Return the cause and the cure."""
        return _TEXTS[self.fault].format(
            holder=self.holder,
            note=self.note and truncate(self.note.workload),
            user=self.note and truncate(self.note.user),
            until=self.note and f"{self.note.until:%Y-%m-%d %H:%M} UTC",
            annotation=ACCESS_ANNOTATION,
        )


_AGAIN: Final = (
    "let a member of its groups apply {note} again, or restart it (`kubectl rollout restart`)"
)
_TEXTS: Final[dict[AccessFault, str]] = {
    AccessFault.NO_CONTROLLER: (
        "no controller reference leads to an object of a kind whose templates are admitted"
        " (setting workloads.kinds)"
    ),
    AccessFault.NOT_SIGNED: "no member of its groups wrote the template of {holder}: let one apply it again",
    AccessFault.FORGED: (
        "annotation {annotation} of {holder} is not of this control plane, or of another namespace: let a member of"
        " the pool's groups apply it again"
    ),
    AccessFault.OTHER_POOL: "annotation {annotation} of {holder} is for another pool",
    AccessFault.OTHER_OBJECT: "annotation {annotation} of {holder} is a copy of that of {note}",
    AccessFault.EXPIRED: f"the access that {{user}} gave {{note}} ended at {{until}}: {_AGAIN}",
    AccessFault.GROUPS_CHANGED: f"the groups of {{user}}, who wrote {{note}}, do not open the pool any more: {_AGAIN}",
}


def _about(namespace: str) -> tuple[str, str]:
    return ACCESS_ANNOTATION, namespace


def controller_of(references: "Iterable[OwnerReference] | None") -> WorkloadIdentity | None:
    """Return the object that controls the one with these references."""
    for reference in references or ():
        if reference.controller:
            group, _, _ = reference.api_version.rpartition("/")
            return WorkloadIdentity(
                group=group, kind=reference.kind, name=reference.name, uid=reference.uid
            )
    return None


def shared_groups(pool: "GPUPool", groups: "Iterable[str] | None") -> set[str]:
    """Return the groups that open the pool."""
    return set(pool.spec.access.groups or ()).intersection(groups or ())


def signed_access(
    pool: "GPUPool",
    workload: WorkloadIdentity,
    *,
    request: "AdmissionRequest",
    context: "AdmissionContext",
) -> str:
    """Return the annotation for a template that a user wrote whose groups open the pool."""
    now, user = context.now().utc.replace(microsecond=0), request.user_info
    note = AccessNote(
        pool=pool.name,
        group=workload.group,
        kind=workload.kind,
        name=workload.name,
        uid=workload.uid,
        user=truncate(user.username),
        groups=tuple(sorted(shared_groups(pool, user.groups))[:MAX_GROUPS]),
        since=now,
        until=now + context.workloads.validity,
    )
    return with_signature(_encode(note), _about(request.namespace), context.sign)


def inherited_access(
    text: str | None,
    pool: "GPUPool",
    holder: WorkloadIdentity | None,
    *,
    namespace: str,
    context: "AdmissionContext",
) -> AccessNote | NotInherited:
    """Return the access that an annotation proves for what `holder` controls, or for itself."""
    if holder is None or (holder.group, holder.kind) not in context.workloads.kinds:
        return NotInherited(AccessFault.NO_CONTROLLER, holder)
    if text is None:
        return NotInherited(AccessFault.NOT_SIGNED, holder)
    note = decode_access(text)
    if note is None or not has_signature(text, _about(namespace), context.sign):
        return NotInherited(AccessFault.FORGED, holder)
    fault = _fault_of(note, pool, holder, context=context)
    return note if fault is None else NotInherited(fault, holder, note)


def _fault_of(
    note: AccessNote, pool: "GPUPool", holder: WorkloadIdentity, *, context: "AdmissionContext"
) -> AccessFault | None:
    if note.pool != pool.name:
        return AccessFault.OTHER_POOL
    if (note.group, note.kind) not in context.workloads.kinds:
        return AccessFault.NO_CONTROLLER
    if not _may_control(note, holder):
        return AccessFault.OTHER_OBJECT
    if context.now().utc >= note.until:
        return AccessFault.EXPIRED
    return None if shared_groups(pool, note.groups) else AccessFault.GROUPS_CHANGED


def _may_control(note: AccessNote, holder: WorkloadIdentity) -> bool:
    """Say whether controller references can lead from this object to the signed one.

    Admission judged each reference between, but not of objects that are older than the setting which names their kind.
    So what Kubernetes' own controllers make of the signed object is compared again; of other kinds nothing is known.
    """
    signed, held = (note.group, note.kind), (holder.group, holder.kind)
    if signed == held:
        return is_about(note, holder)
    prefix, star, _ = note.name.partition("*")
    beginning = prefix if star else f"{prefix}-"
    return signed not in MADE_OF or (held == MADE_OF[signed] and holder.name.startswith(beginning))


def is_about(note: AccessNote, workload: WorkloadIdentity) -> bool:
    """Say whether the signed object is this one."""
    prefix, star, _ = note.name.partition("*")
    return (
        (note.group, note.kind) == (workload.group, workload.kind)
        and (workload.name.startswith(prefix) if star else workload.name == note.name)
        and (not note.uid or note.uid == workload.uid)
    )
