"""TokenReview and SubjectAccessReview at the API server: two requests for a token."""

from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from manifests.install.rbac import PolicyRule
from server.reviews.reviewed_tokens import TokenVerdict

if TYPE_CHECKING:
    from kube.client import KubeClient
    from kube.resources import Resource

RBAC: Final = (
    PolicyRule(group="authentication.k8s.io", resources=("tokenreviews",), verbs=("create",)),
    PolicyRule(
        group="authorization.k8s.io", resources=("subjectaccessreviews",), verbs=("create",)
    ),
)


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


@final
class KubeReviews:
    """Says whether the user of a token may `get` one non-resource URL."""

    def __init__(self, client: "KubeClient", path: str) -> None:
        self._client = client
        self._path = path

    async def review(self, token: str) -> TokenVerdict:
        """Ask the API server; raises KubeError where it does not answer."""
        found = await self._client.create(TOKEN_REVIEWS, _object(TOKEN_REVIEWS, {"token": token}))
        status = found.decode(_TokenReview).status
        if not status.authenticated or not status.user.username:
            return TokenVerdict.UNAUTHENTICATED
        user = status.user
        spec: dict[str, Any] = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": self._path, "verb": "get"},
        }
        asked = _object(SUBJECT_ACCESS_REVIEWS, spec)
        answer = await self._client.create(SUBJECT_ACCESS_REVIEWS, asked)
        may = answer.decode(_AccessReview).status.allowed
        return TokenVerdict.ALLOWED if may else TokenVerdict.FORBIDDEN


def _object(resource: "Resource", spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
