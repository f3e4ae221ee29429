"""Objects of operands at the API server, by kind: all that have the operands' label."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from api.names import OPERAND_LABEL
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
from reconciler.runtime.live_objects import LiveObjects, list_objects

if TYPE_CHECKING:
    from kube.client import KubeClient

RESOURCES: Final[Mapping[str, Resource]] = {
    item.kind: item
    for item in (
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
LABEL_SELECTOR: Final = OPERAND_LABEL


async def read_operands(client: "KubeClient", namespace: str) -> LiveObjects:
    """List every kind, within our namespace where it has one.

    Raises:
        KubeError: the API server gives no answer.
    """
    return await list_objects(client, RESOURCES, namespace=namespace, label_selector=LABEL_SELECTOR)
