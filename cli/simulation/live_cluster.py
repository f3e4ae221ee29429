"""Objects of a live cluster, through its API server alone: LISTs, and nothing is written.

A list that the account may not read makes the snapshot partial, and is named.
"""

from typing import TYPE_CHECKING, Any, Final

from cli.simulation.cluster_objects import LISTED, ClusterObjects
from cli.simulation.errors import BadInputError
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from kube.errors import Forbidden, KubeError, NotFound, Unauthorized
from pool.model import UnitlessPod

if TYPE_CHECKING:
    from api.clock import Clock
    from cli.simulation.cluster_objects import ListedKind

PAGE_SIZE: Final = 500


async def read_live_cluster(
    clock: "Clock", *, kubeconfig: str | None, context: str | None
) -> ClusterObjects:
    """Read a cluster by a kubeconfig, or by the service account of the pod.

    Raises:
        BadInputError: the cluster cannot be reached, or has no pools or devices that may be read.
        BadConfigurationError: there are no usable credentials.
    """
    configuration = await load_configuration(clock, kubeconfig=kubeconfig, context=context)
    async with KubeClient(configuration, clock, user_agent="gpu-control-plane-simulate") as client:
        return await read_lists(client, origin=f"the cluster at {configuration.host}")


async def read_lists(client: KubeClient, *, origin: str) -> ClusterObjects:
    """Read what the account may read.

    Raises:
        BadInputError: the API server cannot be reached, or pools or devices cannot be read.
    """
    found = ClusterObjects(origin=origin)
    needed: list[str] = []
    for kind in LISTED:
        fault = await _read(client, kind, found)
        if fault is None:
            continue
        found.gaps.append(f"{fault}: {kind.without}")
        if kind.is_needed:
            needed.append(kind.resource.plural)
    if needed:
        raise BadInputError(_useless(found, needed))
    return found


async def _read(client: KubeClient, kind: "ListedKind", found: ClusterObjects) -> str | None:
    """Read one list; return why it cannot be read."""
    resource = kind.resource
    try:
        listing = await client.list_as(
            resource, kind.item_type, _projection(kind), page_size=PAGE_SIZE
        )
    except Forbidden:
        return f"{resource.plural} may not be listed with this account"
    except NotFound:
        if kind.is_optional:
            return None
        return f"the API server does not serve {resource.plural}"
    except Unauthorized as error:
        raise BadInputError(f"{found.origin} accepts no credentials of this account") from error
    except KubeError as error:
        raise BadInputError(
            f"{resource.plural} of {found.origin} cannot be read: {error}"
        ) from error
    found.of(kind).extend(listing.items)
    if listing.undecodable:
        found.gaps.append(
            f"{listing.undecodable} {resource.plural} cannot be decoded and are skipped"
        )
    return None


def _projection(kind: "ListedKind") -> "Any":  # noqa: ANN401  # of the kind's own types
    return kind.project


def _useless(found: ClusterObjects, needed: "list[str]") -> str:
    pods = [pod for pod in found.pods if not isinstance(pod, UnitlessPod)]
    suffix = (
        f" (partial: of {len(found.pods)} pods {len(pods)} name a pool,"
        f" {sum(pod.node is None for pod in pods)} of them wait)"
        if found.pods
        else ""
    )
    cure = "grant `list` on them, or give their objects as files with --cluster"
    return f"{'; '.join(found.gaps)}{suffix}; a simulation needs {' and '.join(needed)}: {cure}"
