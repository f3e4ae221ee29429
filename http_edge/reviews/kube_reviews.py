"""TokenReview and SubjectAccessReview at the API server: who shows a token, and what its user may."""

from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from http_edge.reviews.review_cache import TokenRefusal
from kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from kube.client import KubeClient
    from kube.resources import Resource

RBAC: Final = (
    PolicyRule(group="authentication.k8s.io", resources=("tokenreviews",), verbs=("create",)),
    PolicyRule(
        group="authorization.k8s.io", resources=("subjectaccessreviews",), verbs=("create",)
    ),
)


class TokenUser(msgspec.Struct, frozen=True):
    """As a TokenReview says it, and a SubjectAccessReview wants it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: TokenUser = TokenUser()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


async def review_token(client: "KubeClient", token: str) -> TokenUser | None:
    """Return the user of a token; None where the API server does not accept it. Raises KubeError."""
    found = await client.create(TOKEN_REVIEWS, _object(TOKEN_REVIEWS, {"token": token}))
    status = found.decode(_TokenReview).status
    return status.user if status.authenticated and status.user.username else None


async def may_get_path(client: "KubeClient", user: TokenUser, path: str) -> bool:
    """Say whether a user may `get` a non-resource URL. Raises KubeError."""
    return await _is_allowed(client, user, {"nonResourceAttributes": {"path": path, "verb": "get"}})


async def may_list(
    client: "KubeClient", user: TokenUser, resource: "Resource", *, namespace: str = ""
) -> bool:
    """Say whether a user may list objects of a kind, without a namespace those of all. Raises KubeError."""
    attributes = {"verb": "list", "group": resource.group, "resource": resource.plural}
    if namespace:
        attributes["namespace"] = namespace
    return await _is_allowed(client, user, {"resourceAttributes": attributes})


@final
class KubeReviews:
    """Says whether the user of a token may `get` one non-resource URL."""

    def __init__(self, client: "KubeClient", path: str) -> None:
        self._client = client
        self._path = path

    async def review(self, token: str) -> TokenUser | TokenRefusal:
        """Ask the API server; raises KubeError where it does not answer."""
        user = await review_token(self._client, token)
        if user is None:
            return TokenRefusal.UNAUTHENTICATED
        is_allowed = await may_get_path(self._client, user, self._path)
        return user if is_allowed else TokenRefusal.FORBIDDEN


async def _is_allowed(client: "KubeClient", user: TokenUser, asked: dict[str, Any]) -> bool:
    spec: dict[str, Any] = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
        **asked,
    }
    answer = await client.create(SUBJECT_ACCESS_REVIEWS, _object(SUBJECT_ACCESS_REVIEWS, spec))
    return answer.decode(_AccessReview).status.allowed


def _object(resource: "Resource", spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
