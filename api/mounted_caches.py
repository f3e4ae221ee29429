"""The kernel caches that a pod mounts: its inline volumes of our CSI driver."""

import functools
from typing import TYPE_CHECKING, Final

from api.cache_name import CacheName, CacheNameError, parse_cache_name
from api.csi.names import CACHE_ATTRIBUTE, DRIVER_NAME, NAMESPACE_ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.foreign.core import Volume

MAX_CACHES: Final = 32
"""Most caches of one pod; more decide nothing about its placement."""


def mounted_caches(volumes: "Iterable[Volume]", namespace: str) -> tuple[CacheName, ...]:
    """Return the caches that the volumes of a pod name, in order and each once.

    A volume that names a cache of another namespace than the pod's, or no possible name, is left out: CSI refuses it.
    """
    found: set[CacheName] = set()
    for volume in volumes:
        csi = volume.csi
        if csi is None or csi.driver != DRIVER_NAME:
            continue
        attributes = csi.volume_attributes or {}
        of = attributes.get(NAMESPACE_ATTRIBUTE, "")
        name = _parsed(of, attributes.get(CACHE_ATTRIBUTE, "")) if of in {"", namespace} else None
        if name is not None:
            found.add(name)
            if len(found) == MAX_CACHES:
                break
    return tuple(sorted(found))


@functools.lru_cache(maxsize=4096)
def _parsed(namespace: str, name: str) -> CacheName | None:
    try:
        return parse_cache_name(namespace, name)
    except CacheNameError:
        return None
