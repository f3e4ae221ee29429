"""Ids of requests for nodes: hashes of what they are for, so that an id that was asked for twice is one node."""

import hashlib
from typing import TYPE_CHECKING, Final

from autoscaling.scaling_model import RequestId

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pool.model import PoolFacts

_DIGITS: Final = 10
"""Digits of the hash: 40 bits, of which a pool uses hundreds at a time."""
_LONGEST_POOL: Final = 63 - 1 - _DIGITS
"""Characters of the pool's name: an id is the value of a label."""


def request_id(pool: "PoolFacts", first: str, shape: str, *, number: int = 0) -> RequestId:
    """Return the id of the node of this shape that is asked for because of a pod.

    Args:
        pool: the pool.
        first: uid of the first pod that it is for, or `warm/<n>`.
        shape: name of the shape.
        number: how many earlier ids of the same origin are in use.
    """
    origin = "\0".join((pool.uid, first, shape, str(number)))
    digest = hashlib.sha256(origin.encode()).hexdigest()[:_DIGITS]
    return RequestId(f"{pool.name[:_LONGEST_POOL].rstrip('.-')}-{digest}")


def new_request_id(
    pool: "PoolFacts", first: str, shape: str, *, used: "AbstractSet[RequestId]"
) -> RequestId:
    """Return the first id of this origin that is not in use."""
    number = 0
    while (found := request_id(pool, first, shape, number=number)) in used:
        number += 1
    return found


def is_id_of(pool: "PoolFacts", request: RequestId) -> bool:
    """Say whether an id has the form of those of the pool."""
    return bool(request) and pool_in_id(request) == pool.name[:_LONGEST_POOL].rstrip(".-")


def pool_in_id(request: str) -> str:
    """Return the pool's name in an id, cut to `_LONGEST_POOL` characters; empty where it has not the form of ours."""
    prefix, _, digest = request.rpartition("-")
    is_hash = len(digest) == _DIGITS and all(item in "0123456789abcdef" for item in digest)
    return prefix if is_hash else ""
