"""The rule by which one of several pools serves a resource that all of them name: the index, explanations and trials use it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pool.model import PoolFacts


def serving_pool(pools: "Iterable[PoolFacts]", resource: str) -> "PoolFacts | None":
    """Return the oldest pool that names the resource, or the first by name of those; None where no pool does."""
    claims = (pool for pool in pools if pool.resource == resource)
    return min(claims, key=lambda pool: (pool.created, pool.name), default=None)
