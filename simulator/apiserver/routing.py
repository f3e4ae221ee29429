"""Routing: kind, namespace, name and subresource of a URL path."""

from typing import TYPE_CHECKING, Any, Final

from simulator.apiserver.errors import no_such_path
from simulator.apiserver.resource_types import BINDINGS, DEPLOYMENTS, PODS
from simulator.apiserver.write.request_body import RequestTarget

if TYPE_CHECKING:
    from simulator.apiserver.resource_types import Registry

_OF_NAMESPACES: Final = frozenset({"status", "finalize"})

_SCALED = frozenset({"nodepools"})
"""Custom resources with the subresource scale, as their definitions have it."""


def discover(path: str, registry: "Registry") -> "dict[str, Any] | None":
    """Return the `APIResourceList` of a group version's path, or the `APIGroupList`, by names alone; None for any other path.

    Raises:
        StatusError: 404, nothing of the group version is served.
    """
    match [part for part in path.split("/") if part]:
        case ["api", version]:
            group = ""
        case ["apis", group, version]:
            pass
        case ["apis"]:
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [
                    {"name": group, "versions": [{"groupVersion": f"{group}/{version}"}]}
                    for group, version in registry.group_versions()
                ],
            }
        case _:
            return None
    found = registry.of_group(group, version)
    if not found:
        raise no_such_path()
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [
            {"name": resource.plural, "kind": resource.kind, "namespaced": resource.namespaced}
            for resource in found
        ],
    }


def resolve(path: str, registry: "Registry") -> RequestTarget:
    """Return the target of a path.

    Raises:
        StatusError: 404, nothing that is served.
    """
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, *remaining]:
            group = ""
        case ["apis", group, version, *remaining]:
            pass
        case _:
            raise no_such_path()
    namespace = ""
    if len(remaining) >= 3 and remaining[0] == "namespaces" and remaining[2] not in _OF_NAMESPACES:
        namespace, remaining = remaining[1], remaining[2:]
    if not 1 <= len(remaining) <= 3:
        raise no_such_path()
    plural, name, subresource = (*remaining, "", "")[:3]
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
