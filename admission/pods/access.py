"""Access rules of pools (docs/access.md says what each rule can see)."""

from typing import TYPE_CHECKING

from admission.workload_access import (
    NotInherited,
    controller_of,
    inherited_access,
    shared_groups,
)
from api.annotations import AccessNote
from api.names import ACCESS_ANNOTATION
from api.text import truncate

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from admission.pods.request import PodRequest
    from api.kinds.gpupool import Access, GPUPool
    from pool.catalog import Catalog


def is_open(pool: "GPUPool", request: "PodRequest", catalog: "Catalog") -> bool:
    """Say whether the pool is open to the pod, or a pod of a template, by any creator."""
    access = pool.spec.access
    return (
        access.is_open
        or request.namespace in (access.namespaces or ())
        or _selects_namespace(access, request.namespace, catalog)
        or request.service_account in (access.service_accounts or ())
    )


def may_use(pool: "GPUPool", request: "PodRequest", context: "AdmissionContext") -> bool:
    """Say whether a rule of the pool matches; a pool without rules is open to every pod."""
    return (
        is_open(pool, request, context.catalog)
        or bool(shared_groups(pool, request.request.user_info.groups))
        or isinstance(_inherited(pool, request, context), AccessNote)
    )


def refusal_text(pool: "GPUPool", request: "PodRequest", context: "AdmissionContext") -> str:
    """Name the caller; the pool's rules are not disclosed."""
    user = truncate(request.request.user_info.username) or "unknown"
    inherited = _inherited(pool, request, context)
    cause = f"{inherited.text}, or " if isinstance(inherited, NotInherited) else ""
    return (
        f"pool {pool.name} is not open to this pod: namespace {request.namespace}, service account"
        f" {request.service_account}, created by {user}; {cause}ask its operator to extend spec.access"
    )


def _inherited(
    pool: "GPUPool", request: "PodRequest", context: "AdmissionContext"
) -> AccessNote | NotInherited | None:
    """Return what a pod of a controller inherits where the pool has groups."""
    user = request.request.user_info.username
    if not pool.spec.access.groups or user not in context.workloads.controllers:
        return None
    meta = request.pod.metadata
    return inherited_access(
        meta.annotation(ACCESS_ANNOTATION),
        pool,
        controller_of(meta.owner_references),
        namespace=request.namespace,
        context=context,
    )


def _selects_namespace(access: "Access", namespace: str, catalog: "Catalog") -> bool:
    selector = access.namespace_selector
    if selector is None:
        return False
    labels = catalog.labels_by_namespace.get(namespace)
    return labels is not None and selector.matches(labels)
