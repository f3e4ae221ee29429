"""A review of a cache: the object, the one before it, and the generation that it will have."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from admission.decision import Denied
from admission.object_decoder import ObjectDecoder
from admission.review import GroupVersionKind, Operation
from api.cache_name import CacheName, CacheNameError, parse_cache_name
from api.meta import Model, ObjectMeta
from api.names import GKM_GROUP, VERSION
from kernelcache.admitted_image import CacheRevision
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.review import AdmissionRequest

CACHE_KIND: Final = GroupVersionKind(group=GKM_GROUP, version=VERSION, kind="GKMCache")
CLUSTER_CACHE_KIND: Final = GroupVersionKind(
    group=GKM_GROUP, version=VERSION, kind="ClusterGKMCache"
)


class ReviewedCache(Model, frozen=True):
    """A cache with an undecoded spec."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] | None = None

    @property
    def image(self) -> str:
        """Return what spec.image says; empty where it says nothing, or no text."""
        found = (self.spec or {}).get("image")
        return found if isinstance(found, str) else ""

    @property
    def annotations(self) -> "Mapping[str, str]":
        return self.metadata.annotations or {}


_decoders: Final = {
    kind: ObjectDecoder(ReviewedCache, kind) for kind in (CACHE_KIND, CLUSTER_CACHE_KIND)
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRequest:
    """Creation of a cache, or a change of one."""

    name: CacheName
    user: str
    new: ReviewedCache
    old: ReviewedCache | None

    @property
    def is_deleting(self) -> bool:
        """Return whether the stored object is; what a request says of itself does not count."""
        return self.old is not None and self.old.metadata.deletion_timestamp is not None

    @property
    def has_same_spec(self) -> bool:
        return self.old is not None and _is_same(self.old.spec or {}, self.new.spec or {})

    @property
    def has_same_verification(self) -> bool:
        return self.old is not None and _is_same(
            (self.old.spec or {}).get("verification"), (self.new.spec or {}).get("verification")
        )

    @property
    def revision(self) -> CacheRevision:
        """Return the object as it will be stored: the API server counts generations after this."""
        generation = 1
        if self.old is not None:
            generation = self.old.metadata.generation + (not self.has_same_spec)
        return CacheRevision(name=self.name, generation=generation, image=self.new.image)

    @property
    def old_revision(self) -> CacheRevision | None:
        """Return the object as it is stored."""
        if self.old is None:
            return None
        generation = self.old.metadata.generation
        return CacheRevision(name=self.name, generation=generation, image=self.old.image)


def read_cache_request(
    request: "AdmissionRequest", kind: GroupVersionKind
) -> CacheRequest | Denied | None:
    """Return the request, a denial of what cannot be read, or None where there is nothing to decide."""
    if request.operation not in {Operation.CREATE, Operation.UPDATE}:
        return None
    new = _decoders[kind].decode(request.object_)
    if isinstance(new, Denied):
        return new
    old = None
    if request.operation is Operation.UPDATE:
        before = _decoders[kind].decode(request.old_object)
        if isinstance(before, Denied):
            return before
        old = before
    name = _name(request, kind, new if old is None else old)
    if isinstance(name, Denied):
        return name
    user = request.user_info.username
    if not user:
        return Denied(RefusalReason.MALFORMED_REQUEST, "the review names no user")
    return CacheRequest(name=name, user=user, new=new, old=old)


def _name(
    request: "AdmissionRequest", kind: GroupVersionKind, cache: ReviewedCache
) -> CacheName | Denied:
    if not cache.metadata.name:
        # It is made up after admission, and the digest is signed for the object of this name.
        text = "metadata.name is needed: metadata.generateName alone is not possible for a cache"
        return Denied(RefusalReason.INVALID_CACHE, text)
    is_namespaced = kind == CACHE_KIND
    if is_namespaced != bool(request.namespace):
        text = f"a {kind.kind} {'has a' if is_namespaced else 'has no'} namespace"
        return Denied(RefusalReason.MALFORMED_REQUEST, text)
    try:
        return parse_cache_name(request.namespace, cache.metadata.name)
    except CacheNameError as error:
        return Denied(RefusalReason.INVALID_CACHE, f"metadata.name: {error}")


def _is_same(first: object, second: object) -> bool:
    """Compare JSON as the API server does: 1, 1.0 and true are three things."""
    encode = msgspec.json.encode
    return encode(first, order="sorted") == encode(second, order="sorted")
