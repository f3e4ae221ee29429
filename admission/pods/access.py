"""Access rules of pools (docs/access.md says what each rule can see)."""

from typing import TYPE_CHECKING

from api.text import truncate

if TYPE_CHECKING:
    from admission.pods.request import PodRequest
    from api.kinds.gpupool import Access, GPUPool
    from pool.catalog import Catalog


def may_use(pool: "GPUPool", request: "PodRequest", catalog: "Catalog") -> bool:
    """Say whether a rule of the pool matches; a pool without rules is open to every pod."""
    access = pool.spec.access
    if access.is_open:
        return True
    return (
        request.namespace in (access.namespaces or ())
        or _selects_namespace(access, request.namespace, catalog)
        or request.service_account in (access.service_accounts or ())
        or not set(access.groups or ()).isdisjoint(request.request.user_info.groups or ())
    )


def refusal_text(pool: "GPUPool", request: "PodRequest") -> str:
    """Name the caller; the pool's rules are not disclosed."""
    user = truncate(request.request.user_info.username) or "unknown"
    return (
        f"pool {pool.name} is not open to this pod: namespace {request.namespace}, service account"
        f" {request.service_account}, created by {user}; ask its operator to extend spec.access"
    )


def _selects_namespace(access: "Access", namespace: str, catalog: "Catalog") -> bool:
    selector = access.namespace_selector
    if selector is None:
        return False
    labels = catalog.labels_by_namespace.get(namespace)
    return labels is not None and selector.matches(labels)
