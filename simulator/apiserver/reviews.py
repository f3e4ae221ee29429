"""TokenReview and SubjectAccessReview: answered and never stored.

There is no RBAC: a test says who may read what.
"""

from typing import TYPE_CHECKING, Any, Final, final

from simulator.apiserver.errors import bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulator.apiserver.webhooks.chain import User

Json = dict[str, Any]

_PATHS: Final = {
    "/apis/authentication.k8s.io/v1/tokenreviews": ("authentication.k8s.io/v1", "TokenReview"),
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": (
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
    ),
}


@final
class Reviewer:
    """Knows the users of tokens, and their rights."""

    def __init__(self, tokens: "Mapping[str, User]") -> None:
        self.tokens = dict(tokens)
        """Bearer token -> user: tokens of callers of others, too."""
        self.readers: set[tuple[str, str]] = set()
        """(user, path): may `get` it."""
        self.listers: set[tuple[str, str, str]] = set()
        """(user, resource as `pods` or `gpupools.gpu.deckhouse.io`, namespace): may list it, without a namespace in the
        whole cluster."""

    def is_asked(self, method: str, path: str) -> bool:
        return method == "POST" and path in _PATHS

    def review(self, path: str, body: Json) -> Json:
        """Return the review with its status."""
        version, kind = _PATHS[path]
        if (body.get("apiVersion"), body.get("kind")) != (version, kind):
            raise bad_request(f"no {kind} of {version}")
        spec = body.get("spec", {})
        status = self._of_token(spec) if kind == "TokenReview" else self._of_access(spec)
        # The real server does not send the token back either.
        sent_back = {name: value for name, value in spec.items() if name != "token"}
        return {**body, "spec": sent_back, "status": status}

    def _of_token(self, spec: Json) -> Json:
        user = self.tokens.get(spec.get("token", ""))
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user.info}

    def _of_access(self, spec: Json) -> Json:
        return {"allowed": self._is_allowed(spec.get("user", ""), spec)}

    def _is_allowed(self, user: str, spec: Json) -> bool:
        path = spec.get("nonResourceAttributes") or {}
        if path:
            return path.get("verb") == "get" and (user, path.get("path")) in self.readers
        asked = spec.get("resourceAttributes") or {}
        group = asked.get("group", "")
        resource = f"{asked.get('resource')}.{group}" if group else asked.get("resource")
        places = {"", asked.get("namespace", "")}
        return asked.get("verb") == "list" and any(
            (user, resource, place) in self.listers for place in places
        )
