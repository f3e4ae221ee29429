"""Objects of several kinds at the API server, by kind and name: all that have a label.

They are read by lists, not watched: some ten kinds of a few objects each, which nothing but one controller and a mistake
changes. A kind that the cluster does not serve answers a list with 404, and discovery does not name it; no definition
is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from api.names import OPERAND_LABEL
from kube.errors import ApiError, NotFound
from operands.operand_state import OPTIONAL_KINDS, ServedKinds

if TYPE_CHECKING:
    from kube.client import KubeClient
    from kube.resources import Resource

Json = dict[str, Any]
ObjectName = tuple[str, str]
"""Kind and name: no two of an installation's objects share both."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LiveObjects:
    """What is there at one moment."""

    objects: Mapping[ObjectName, Json]
    served: ServedKinds
    unreadable: Mapping[str, ApiError] = field(default_factory=dict)
    """Kinds that the API server does not let us read, and its answer."""

    def of_kind(self, kind: str) -> dict[str, Json]:
        """Return the objects of a kind by name."""
        return {name: body for (of, name), body in self.objects.items() if of == kind}

    @property
    def states(self) -> frozenset[str]:
        """Return the states of operands that have an object."""
        labels = (item["metadata"].get("labels") or {} for item in self.objects.values())
        return frozenset(item[OPERAND_LABEL] for item in labels if OPERAND_LABEL in item)


async def list_objects(
    client: "KubeClient",
    resources: "Mapping[str, Resource]",
    *,
    namespace: str,
    label_selector: str,
) -> LiveObjects:
    """List every kind, within the namespace where it has one.

    Raises:
        KubeError: the API server gives no answer.
    """
    objects: dict[ObjectName, Json] = {}
    unreadable: dict[str, ApiError] = {}
    served = set()
    for kind, resource in resources.items():
        try:
            listing = await client.list_(
                resource,
                dict[str, Any],
                namespace=namespace if resource.namespaced else None,
                label_selector=label_selector,
            )
        except ApiError as error:
            if not (isinstance(error, NotFound) and not await client.serves(resource)):
                unreadable[kind] = error
            continue
        if kind in OPTIONAL_KINDS:
            served.add(kind)
        objects |= {(kind, item["metadata"]["name"]): item for item in listing.items}
    return LiveObjects(
        objects=objects, served=ServedKinds(kinds=frozenset(served)), unreadable=unreadable
    )
