"""Nodes that keep a cache warm before a pod asks for it: all that it fits, none, or a number of them.

For a number, every node has a place in an order of the cache's own, which anyone can compute from both names. The
control plane publishes the place of the last chosen node; a node compares its own with that. So nodes that come and
go move at most as many caches as they are, and no list of nodes is stored.
"""

import hashlib
from typing import TYPE_CHECKING, Final

from api.kinds.gkmcache import WarmPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.kinds.gkmcache import GKMCache
    from api.names import NodeName

_PLACE_BYTES: Final = 8


def warm_below(cache_uid: str, fitting: "Iterable[NodeName]", count: int) -> str:
    """Return the place of the last of `count` nodes, or of all if there are fewer; empty without any.

    Args:
        cache_uid: UID of the cache's object.
        fitting: nodes with a device that the cache fits.
        count: number of nodes, at least 1.
    """
    places = sorted(_place(cache_uid, node) for node in fitting)
    return places[min(count, len(places)) - 1] if places else ""


def keeps_warm(cache: "GKMCache", node: "NodeName") -> bool:
    """Say whether a node that the cache fits keeps it without a pod that asks for it."""
    match cache.spec.warm_nodes:
        case WarmPolicy.ALL:
            return True
        case WarmPolicy.DEMAND:
            return False
        case _:
            return _place(cache.metadata.uid, node) <= cache.status.warm_below


def _place(cache_uid: str, node: "NodeName") -> str:
    return hashlib.blake2b(f"{cache_uid}/{node}".encode(), digest_size=_PLACE_BYTES).hexdigest()
