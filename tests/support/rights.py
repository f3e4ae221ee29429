"""What our roles allow, and what a request would have to be allowed."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs

from http_edge.reviews import kube_reviews
from manifests import constants
from manifests.install.rbac import PolicyRule
from manifests.install.server_policy import OwnObjects
from reconciler.kernelcache import cache_node_cleanup, cache_status
from reconciler.node_software import built_in_rights as rights
from reconciler.scaling import node_claim_watch
from reconciler.scaling.backends import signal_pods
from reconciler.scaling.demand import place_reader
from reconciler.sinks import gkm_cache
from server.configuration import config_store
from server.rbac import build_roles
from simulator.apiserver.requestlog import LoggedRequest
from tests.support.running_server import SERVER_USER

Right = tuple[str, str, str, str, str]
"""Namespace, group, resource, name, verb; `*` for all namespaces and for every name."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def granted_by(document: dict[str, Any]) -> set[Right]:
    namespace = document["metadata"].get("namespace", "*")
    return {
        (namespace, group, resource, name, verb)
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ["*"])
        for verb in rule["verbs"]
    }


def our_rights() -> set[Right]:
    roles = [
        document
        for document in build_roles(OwnObjects())
        if document["kind"] in {"ClusterRole", "Role"}
        and document["metadata"]["name"] == constants.NAME
    ]
    assert {role["kind"] for role in roles} == {"ClusterRole", "Role"}
    return set().union(*map(granted_by, roles))


def rights_of_operands(namespace: str = constants.DEFAULT_NAMESPACE) -> set[Right]:
    """Return the rights of `node.operands`: on all that operands may have, and those that it grants to them."""
    return rights_of([(rights.RBAC, "*"), (rights.NAMESPACED_RBAC, namespace)])


def rights_of_autoscaling(namespace: str = constants.DEFAULT_NAMESPACE) -> set[Right]:
    """Return the rights on signals, and on NodeClaims that never became useful."""
    return rights_of([(node_claim_watch.RBAC, "*"), (signal_pods.NAMESPACED_RBAC, namespace)])


def rights_of_volumes() -> set[Right]:
    """Return the rights to read the volumes of waiting pods."""
    return rights_of([(place_reader.RBAC, "*")])


def rights_of_kernel_caches(_namespace: str = constants.DEFAULT_NAMESPACE) -> set[Right]:
    """Return the rights on kernel caches and on the nodes' objects of them."""
    rules = (gkm_cache.RBAC, cache_status.RBAC, cache_node_cleanup.RBAC)
    return rights_of([(of, "*") for of in rules])


def rights_of_reviews(_namespace: str = constants.DEFAULT_NAMESPACE) -> set[Right]:
    """Return the rights to ask who a reader of /metrics/usage is, and whether it may."""
    return rights_of([(kube_reviews.RBAC, "*")])


def rights_of_settings(namespace: str = constants.DEFAULT_NAMESPACE) -> set[Right]:
    """Return the rights on the objects that have settings, and on the Deployment, which has those of the installation."""
    return rights_of([(config_store.RBAC, "*"), (config_store.NAMESPACED_RBAC, namespace)])


def rights_of(of: Iterable[tuple[Iterable[PolicyRule], str]]) -> set[Right]:
    return {
        (place, rule.group, resource, name, verb)
        for rules, place in of
        for rule in rules
        for resource in rule.resources
        for name in rule.names or ("*",)
        for verb in rule.verbs
    }


def asked_by(request: LoggedRequest) -> set[Right]:
    """Return the rights that a request takes.

    An apply of a whole object takes the right to create it, too, where it is not there.
    """
    parts = request.path.strip("/").split("/")
    is_of_group = len(parts) > 1 and parts[0] == "apis"
    group, remaining = (parts[1], parts[3:]) if is_of_group else ("", parts[2:])
    if not remaining:
        return set()  # discovery, which every account may read
    namespace = "*"
    if len(remaining) > 2 and remaining[0] == "namespaces":
        namespace, remaining = remaining[1], remaining[2:]
    elif len(remaining) == 2 and remaining[0] == "namespaces":
        namespace = remaining[1]  # of a Namespace the API server takes its own name
    name = remaining[1] if len(remaining) > 1 else ""
    resource = "/".join((remaining[0], *remaining[2:]))
    verbs: tuple[str, ...]
    if request.method == "GET":
        verbs = ("get",) if name else ("watch",) if "watch=" in request.query else ("list",)
    elif request.method == "PATCH" and "force=" in request.query and len(remaining) == 2:
        verbs = ("create", "patch")
    else:
        verbs = (_VERBS[request.method],)
    if not name:
        # The API server takes a list or a watch of one name for a request for that object.
        (selector,) = parse_qs(request.query).get("fieldSelector", [""])
        name = selector.removeprefix("metadata.name=") if "metadata.name=" in selector else ""
    return {(namespace, group, resource, name, verb) for verb in verbs}


def allows(granted: Right, asked: Right) -> bool:
    return (
        granted[0] in {"*", asked[0]}
        and granted[1:3] == asked[1:3]
        and granted[3] in {"*", asked[3]}
        and granted[4] == asked[4]
    )


def asked_in(requests: Iterable[LoggedRequest]) -> set[Right]:
    return {
        right for request in requests if request.user == SERVER_USER for right in asked_by(request)
    }
