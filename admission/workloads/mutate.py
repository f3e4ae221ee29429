"""Decision on a workload whose pod templates name a pool, or did before.

A user whose groups open the pool is recorded on the template with a signature, and everybody else is refused, unless
the pool is open to the pods for another reason. The annotation changes with the rest of the template alone, because
another template replaces the pods; from half of its validity on, the same template written again gets a new one.
Templates of controllers are compared, and never changed: a Deployment whose ReplicaSets differ from it makes others
without end.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from admission.decision import NOT_READY, Admitted, Decision, Denied
from admission.pods.access import is_open
from admission.review import Operation
from admission.workload_access import (
    NotInherited,
    controller_of,
    inherited_access,
    shared_groups,
    signed_access,
)
from admission.workloads.templates import read_workload
from api.names import ACCESS_ANNOTATION
from api.text import listed, pointer_token, truncate
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from admission.decision import PatchOperation
    from admission.review import AdmissionRequest
    from admission.workload_access import WorkloadIdentity
    from admission.workloads.templates import TemplatePlace, Workload
    from api.annotations import AccessNote
    from api.kinds.gpupool import GPUPool
    from api.workload_kinds import WorkloadKind

_EXTEND: Final = "ask its operator to extend spec.access"


def mutate(
    request: "AdmissionRequest", kind: "WorkloadKind", context: "AdmissionContext"
) -> Decision:
    """Admit the workload with the annotations of its templates, or deny it."""
    if request.operation not in {Operation.CREATE, Operation.UPDATE}:
        return Admitted()
    workload = read_workload(request.object_, request, kind)
    if isinstance(workload, Denied):
        return workload
    if not context.is_ready():
        return NOT_READY
    before = _before(request, kind)
    patch: list[PatchOperation] = []
    for place in workload.places:
        pool = _closed_pool(place, context)
        if isinstance(pool, Denied):
            return pool
        change = _Change(
            request=request,
            kind=kind,
            workload=workload,
            place=place,
            before=before.get(place.pointer),
            context=context,
        )
        note = change.of_controller(pool) if change.is_of_controller else change.of_user(pool)
        if isinstance(note, Denied):
            return note
        patch += _annotate(place, note)
    return Admitted(patch=tuple(patch))


def _before(request: "AdmissionRequest", kind: "WorkloadKind") -> "dict[str, TemplatePlace]":
    """Return the places of the stored object; what cannot be read of it counts as changed."""
    if request.operation is not Operation.UPDATE:
        return {}
    workload = read_workload(request.old_object, request, kind)
    return {} if isinstance(workload, Denied) else {item.pointer: item for item in workload.places}


def _closed_pool(place: "TemplatePlace", context: "AdmissionContext") -> "GPUPool | Denied | None":
    """Return the pool that the pods ask for, where its groups alone may open it to them."""
    found: dict[str, GPUPool] = {}
    resources: set[str] = set()
    for pod in place.pods:
        demand = pod.demand()
        if isinstance(demand, Denied):
            return demand
        served = None if demand is None else context.served_pool(demand.resource)
        if demand is None or served is None:
            continue
        resources.add(demand.resource)
        _, pool = served
        if pool.spec.access.groups and not is_open(pool, pod, context.catalog):
            found[pool.name] = pool
    if found and len(resources) > 1:
        text = f"the templates ask for several GPU pools: {listed(sorted(resources))}; split the object"
        return Denied(RefusalReason.MIXED_POOLS, text)
    return next(iter(found.values()), None)


def _annotate(place: "TemplatePlace", note: str | None) -> "list[PatchOperation]":
    if note == place.note:
        return []
    metadata, annotations = f"{place.pointer}/metadata", f"{place.pointer}/metadata/annotations"
    path = f"{annotations}/{pointer_token(ACCESS_ANNOTATION)}"
    if note is None:
        return [{"op": "remove", "path": path}]
    if not place.has_metadata:
        value: object = {"annotations": {ACCESS_ANNOTATION: note}}
        return [{"op": "add", "path": metadata, "value": value}]
    if place.metadata.annotations is None:
        return [{"op": "add", "path": annotations, "value": {ACCESS_ANNOTATION: note}}]
    return [{"op": "add", "path": path, "value": note}]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A template as a client writes it, beside the stored one."""

    request: "AdmissionRequest"
    kind: "WorkloadKind"
    workload: "Workload"
    place: "TemplatePlace"
    before: "TemplatePlace | None"
    context: "AdmissionContext"

    @property
    def is_same(self) -> bool:
        return self.before is not None and self.before.content == self.place.content

    @property
    def controller(self) -> "WorkloadIdentity | None":
        return controller_of(self.workload.metadata.owner_references)

    @property
    def is_of_controller(self) -> bool:
        return self.request.user_info.username in self.context.workloads.controllers

    def of_controller(self, pool: "GPUPool | None") -> str | Denied | None:
        """Return the annotation as it is, where the object inherits access or had it before."""
        note = self.place.note
        if pool is None or shared_groups(pool, self.request.user_info.groups):
            return note
        if self.is_same and self.before is not None and self.before.note == note:
            return note
        holders = [self.controller]
        if self.before is not None:
            holders.append(self.workload.identity)
        found = [self._inherited(note, pool, holder) for holder in holders]
        missing = [item for item in found if isinstance(item, NotInherited)]
        if len(missing) < len(found):
            return note
        text = f"pool {pool.name} is not open to {self._ref}: {missing[0].text}, or {_EXTEND}"
        return Denied(RefusalReason.ACCESS_DENIED, text, {"pool": pool.name})

    def of_user(self, pool: "GPUPool | None") -> str | Denied | None:
        """Return the annotation of the stored template where it is the same, or of the new one."""
        user = self.request.user_info
        is_member = pool is not None and bool(shared_groups(pool, user.groups))
        if self.is_same and self.before is not None:
            if not is_member or pool is None or not self._may_renew(self.before.note, pool):
                return self.before.note
        elif pool is None:
            return None
        elif not is_member:
            text = (
                f"pool {pool.name} is not open to {self._ref}: namespace {self.request.namespace}, service account"
                f" {self.place.pods[0].service_account}, written by {truncate(user.username) or 'unknown'};"
                f" have a member of its groups write the template, leave the pool out, or {_EXTEND}"
            )
            return Denied(RefusalReason.ACCESS_DENIED, text, {"pool": pool.name})
        return signed_access(
            pool, self.workload.identity, request=self.request, context=self.context
        )

    def _may_renew(self, note: str | None, pool: "GPUPool") -> bool:
        """Say whether the stored template needs a signature, and another one replaces no template of a controller."""
        if self.kind.is_fixed or self.controller is not None:
            return False
        found = self._inherited(note, pool, self.workload.identity)
        return isinstance(found, NotInherited) or self.context.now().utc >= found.ages_at

    def _inherited(
        self, note: str | None, pool: "GPUPool", holder: "WorkloadIdentity | None"
    ) -> "AccessNote | NotInherited":
        return inherited_access(
            note, pool, holder, namespace=self.request.namespace, context=self.context
        )

    @property
    def _ref(self) -> str:
        return truncate(f"{self.kind.kind} {self.request.namespace}/{self.workload.identity.name}")
