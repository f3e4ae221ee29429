"""What the API server says of a viewer's token: whose it is, and what its user may list."""

from typing import TYPE_CHECKING, Final, final

from console.edge.token_login import ReviewedViewer
from http_edge.reviews.kube_reviews import may_list, review_token
from http_edge.reviews.review_cache import TokenRefusal
from kube.errors import KubeError
from kube.resources import GPU_DEVICES, GPU_POOLS, NODES, PODS
from telemetry.console_metrics import REVIEWS

if TYPE_CHECKING:
    from http_edge.reviews.kube_reviews import TokenUser
    from kube.client import KubeClient

_ACCEPTED: Final = "accepted"
_FAILED: Final = "failed"
_REFUSED: Final = {
    TokenRefusal.UNAUTHENTICATED: "unauthenticated",
    TokenRefusal.FORBIDDEN: "forbidden",
}

for _outcome in (_ACCEPTED, _FAILED, *_REFUSED.values()):
    REVIEWS.labels(_outcome)


@final
class ConsoleReviews:
    """Asks the API server: one TokenReview, and a SubjectAccessReview for each right. Implements `ViewerReviews`."""

    def __init__(self, client: "KubeClient") -> None:
        self._client = client

    async def review(self, token: str) -> ReviewedViewer | TokenRefusal:
        try:
            found = await self._review(token)
        except KubeError:
            REVIEWS.labels(_FAILED).inc()
            raise
        REVIEWS.labels(_REFUSED[found] if isinstance(found, TokenRefusal) else _ACCEPTED).inc()
        return found

    async def may_list_pods(self, user: "TokenUser", namespace: str) -> bool:
        return await may_list(self._client, user, PODS, namespace=namespace)

    async def _review(self, token: str) -> ReviewedViewer | TokenRefusal:
        user = await review_token(self._client, token)
        if user is None:
            return TokenRefusal.UNAUTHENTICATED
        for resource in (GPU_POOLS, GPU_DEVICES):
            if not await may_list(self._client, user, resource):
                return TokenRefusal.FORBIDDEN
        return ReviewedViewer(
            user=user,
            nodes=await may_list(self._client, user, NODES),
            pods=await may_list(self._client, user, PODS),
        )
