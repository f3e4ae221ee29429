"""The name of a kernel cache: of a GKMCache in a namespace, or of a ClusterGKMCache.

Names become paths on a node and keys of objects, so that text from a pod's volume is checked before it is a name.
"""

import re
from dataclasses import dataclass
from typing import Final, final

from api.text import truncate

MAX_CACHE_NAME_LENGTH: Final = 246
"""`gkm.io.<name>`, the first part of a finalizer, has at most 253 characters."""
_MAX_NAMESPACE_LENGTH: Final = 63
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class CacheNameError(ValueError):
    """The text cannot name a kernel cache; the message says why."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CacheName:
    """The name of a GKMCache, or without a namespace of a ClusterGKMCache; made by `parse_cache_name`."""

    namespace: str
    """Empty for a ClusterGKMCache."""
    name: str

    def __str__(self) -> str:
        kind = "GKMCache" if self.namespace else "ClusterGKMCache"
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


def parse_cache_name(namespace: str, name: str) -> CacheName:
    """Return the cache's name; without a namespace it is a ClusterGKMCache's.

    Raises:
        CacheNameError: one of them is no name that Kubernetes accepts, as `..` or `a/b`.
    """
    if namespace and not (
        len(namespace) <= _MAX_NAMESPACE_LENGTH and _NAMESPACE.fullmatch(namespace)
    ):
        raise CacheNameError(f'"{truncate(namespace)}" is no name of a namespace')
    if not (len(name) <= MAX_CACHE_NAME_LENGTH and _NAME.fullmatch(name)):
        raise CacheNameError(
            f'"{truncate(name)}" is no name of a kernel cache: lower-case letters, digits, "-" and'
            f' "." are possible, at most {MAX_CACHE_NAME_LENGTH}'
        )
    return CacheName(namespace=namespace, name=name)
