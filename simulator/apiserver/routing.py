"""Routing: kind, namespace, name and subresource of a URL path."""

from typing import TYPE_CHECKING, Final

from simulator.apiserver.errors import no_such_path
from simulator.apiserver.resource_types import BINDINGS, DEPLOYMENTS, PODS
from simulator.apiserver.write.request_body import RequestTarget

if TYPE_CHECKING:
    from simulator.apiserver.resource_types import Registry

_OF_NAMESPACES: Final = frozenset({"status", "finalize"})

_SCALED = frozenset({"nodepools"})
"""Custom resources with the subresource scale, as their definitions have it."""


def resolve(path: str, registry: "Registry") -> RequestTarget:
    """Return the target of a path.

    Raises:
        StatusError: 404, nothing that is served.
    """
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise no_such_path()
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        raise no_such_path()
    plural, name, subresource = (*rest, "", "")[:3]
    resource = registry.find(group, version, plural)
    if resource is None or (namespace and not resource.namespaced):
        raise no_such_path()
    if name and resource.namespaced and not namespace:
        raise no_such_path()
    is_served = (
        not subresource
        or (subresource == "status" and resource.has_status)
        or (subresource in {"binding", "eviction"} and resource is PODS)
        # As a patch of the object itself: spec.replicas has the same place in both.
        or (subresource == "scale" and (resource is DEPLOYMENTS or resource.plural in _SCALED))
    )
    if not is_served or (resource is BINDINGS and name):
        raise no_such_path()
    return RequestTarget(resource=resource, namespace=namespace, name=name, subresource=subresource)
