"""The kinds of requests that a server makes, by name, and faults that pick one kind.

A kind is verb and resource, with what tells requests of the two apart: `WATCH pods of operands`,
`GET secrets gpu-control-plane-tls`, `PATCH gpupools/status by pool-life`. What is patched without a field
manager is a merge patch.
"""

import re

from simulator.apiserver.injection import Breakage, InjectedError
from simulator.apiserver.requestlog import LoggedRequest
from tests.support.running_server import SERVER_USER, Cluster

DISCOVERY = "GET discovery"
"""Which resources a version of an API group has."""
_OF_PODS = {
    "that are bound": "(?=.*fieldSelector=)",
    "that are signals": "(?=.*labelSelector=[^&]*scale-signal)",
    "of operands": "(?=.*labelSelector=)(?!.*labelSelector=[^&]*scale-signal)",
    "": "(?!.*(field|label)Selector=)",
}
"""Which pods are listed and watched, by the query."""
_BY = re.compile("fieldManager=[^&]*/([^&/]+)")


def kind_of(request: LoggedRequest) -> str:
    """Return the name of a request's kind."""
    resource, name, subresource = _parts_of(request.path)
    if not resource:
        return DISCOVERY
    verb, selection, manager = request.method, "", ""
    if verb == "GET" and not name:
        verb = "WATCH" if "watch=" in request.query else "LIST"
        if resource == "pods":
            selection = next(
                item for item, query in _OF_PODS.items() if re.match(query, request.query)
            )
    if resource == "secrets":
        selection = name
    if (match := _BY.search(request.query)) is not None:
        manager = f"by {match[1]}"
    target = " ".join(filter(None, (resource, selection)))
    path = f"{target}/{subresource}" if subresource else target
    return " ".join(filter(None, (verb, path, manager)))


def requests_of_ours(cluster: Cluster) -> list[LoggedRequest]:
    """Return every request that our server made so far."""
    return [request for request in cluster.api.requests if request.user == SERVER_USER]


def fault_of_kind(kind: str, breakage: Breakage, *, nth: int = 1, times: int = 1) -> InjectedError:
    """Return what lets the nth request of a kind fail, and those behind it."""
    verb, _, remaining = kind.partition(" ")
    remaining, _, manager = remaining.partition(" by ")
    target, _, subresource = remaining.partition("/")
    resource, _, selection = target.partition(" ")
    path, query = f"/{resource}/{selection or '[^/]+'}", ""
    match verb:
        case "LIST" | "WATCH":
            path = f"/{resource}"
            query = "(?=.*watch=)" if verb == "WATCH" else "(?!.*watch=)"
            query += _OF_PODS[selection] if resource == "pods" else ""
        case _ if kind == DISCOVERY:
            path = "/apis/[^/]+/[^/]+"
        case "POST" if not subresource:
            path = f"/{resource}"
        case "PATCH":
            query = f"(?=.*fieldManager=[^&]*/{manager}(&|$))" if manager else "(?!.*fieldManager=)"
        case _:
            pass
    return InjectedError(
        breakage=breakage,
        method="GET" if verb in {"LIST", "WATCH"} else verb,
        path=re.compile(f"{path}{'/' if subresource else ''}{subresource}$"),
        query=re.compile(f"^{query}"),
        user=SERVER_USER,
        nth=nth,
        times=times,
    )


def _parts_of(path: str) -> tuple[str, str, str]:
    parts = path.strip("/").split("/")
    remaining = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(remaining) > 2 and remaining[0] == "namespaces":
        remaining = remaining[2:]
    resource, name, subresource, *_ = *remaining, "", "", ""
    return resource, name, subresource
