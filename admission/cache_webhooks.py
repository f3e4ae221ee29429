"""The webhooks for caches: bytes in, an `AdmissionResult` out. Mutation awaits registries.

None of them raises for its input.
"""

from typing import TYPE_CHECKING

from admission.caches.mutation import mutate_cache
from admission.caches.request import (
    CACHE_KIND,
    CLUSTER_CACHE_KIND,
    CacheRequest,
    read_cache_request,
)
from admission.caches.validation import validate_cache
from admission.decision import Admitted, Denied
from admission.review import (
    AdmissionResult,
    Malformed,
    decode_review,
    encode_decision,
    encode_malformed,
)
from admission.webhooks import facts_of

if TYPE_CHECKING:
    from admission.caches.context import CacheAdmissionContext
    from admission.decision import Decision
    from admission.review import AdmissionRequest, GroupVersionKind


async def mutate_gkmcache(body: bytes, context: "CacheAdmissionContext") -> AdmissionResult:
    return await _mutate(body, context, CACHE_KIND)


async def mutate_clustergkmcache(body: bytes, context: "CacheAdmissionContext") -> AdmissionResult:
    return await _mutate(body, context, CLUSTER_CACHE_KIND)


def validate_gkmcache(body: bytes, context: "CacheAdmissionContext") -> AdmissionResult:
    return _validate(body, context, CACHE_KIND)


def validate_clustergkmcache(body: bytes, context: "CacheAdmissionContext") -> AdmissionResult:
    return _validate(body, context, CLUSTER_CACHE_KIND)


async def _mutate(
    body: bytes, context: "CacheAdmissionContext", kind: "GroupVersionKind"
) -> AdmissionResult:
    request = decode_review(body, kind)
    if isinstance(request, Malformed):
        return encode_malformed(request)
    read = read_cache_request(request, kind)
    if isinstance(read, CacheRequest):
        return _encode(request, await mutate_cache(read, context))
    return _encode(request, read or Admitted())


def _validate(
    body: bytes, context: "CacheAdmissionContext", kind: "GroupVersionKind"
) -> AdmissionResult:
    request = decode_review(body, kind)
    if isinstance(request, Malformed):
        return encode_malformed(request)
    read = read_cache_request(request, kind)
    if isinstance(read, CacheRequest):
        return _encode(request, validate_cache(read, context))
    return _encode(request, read or Admitted())


def _encode(request: "AdmissionRequest", decision: "Decision | Denied") -> AdmissionResult:
    return encode_decision(request.uid, decision, facts_of(request))
