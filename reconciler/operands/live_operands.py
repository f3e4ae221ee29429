"""Objects of operands at the API server, by kind: all that have the operands' label.

They are read by lists, not watched: seven kinds of some ten objects together, which nothing but this controller
and a mistake changes. A kind that the cluster does not serve answers a list with 404, so no definition is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from api.names import OPERAND_LABEL
from kube.errors import ApiError, NotFound
from kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DAEMON_SETS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICE_MONITORS,
    SERVICES,
    VERTICAL_POD_AUTOSCALERS,
    Resource,
)
from manifests import constants
from operands.operand_state import OPTIONAL_KINDS, ServedKinds

if TYPE_CHECKING:
    from kube.client import KubeClient

Json = dict[str, Any]

RESOURCES: Final[Mapping[str, Resource]] = {
    one.kind: one
    for one in (
        SERVICE_ACCOUNTS,
        ROLES,
        CLUSTER_ROLES,
        ROLE_BINDINGS,
        CLUSTER_ROLE_BINDINGS,
        CONFIG_MAPS,
        SERVICES,
        DAEMON_SETS,
        SERVICE_MONITORS,
        VERTICAL_POD_AUTOSCALERS,
    )
}
"""Kinds of operands' objects."""
LABEL_SELECTOR: Final = f"{OPERAND_LABEL},app.kubernetes.io/part-of={constants.NAME}"
ObjectName = tuple[str, str]
"""Kind and name: no two of an installation's objects share both."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOperands:
    """What is there at one moment."""

    objects: Mapping[ObjectName, Json]
    served: ServedKinds
    unreadable: Mapping[str, ApiError] = field(default_factory=dict)
    """Kinds that the API server does not let us read, and its answer."""


async def read_operands(client: "KubeClient", namespace: str) -> LiveOperands:
    """List every kind, within our namespace where it has one.

    Raises:
        KubeError: the API server gives no answer.
    """
    objects: dict[ObjectName, Json] = {}
    unreadable: dict[str, ApiError] = {}
    served = set()
    for kind, resource in RESOURCES.items():
        try:
            listing = await client.list_(
                resource,
                dict[str, Any],
                namespace=namespace if resource.namespaced else None,
                label_selector=LABEL_SELECTOR,
            )
        except NotFound:
            continue
        except ApiError as error:
            unreadable[kind] = error
            continue
        if kind in OPTIONAL_KINDS:
            served.add(kind)
        objects |= {(kind, one["metadata"]["name"]): one for one in listing.items}
    return LiveOperands(
        objects=objects, served=ServedKinds(kinds=frozenset(served)), unreadable=unreadable
    )
