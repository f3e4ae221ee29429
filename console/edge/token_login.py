"""Login in a cluster: the bearer token of each request, which the API server reviews."""

from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol, final

from console.edge.console_answers import RefusedError, sent_bytes
from console.edge.viewer_login import LoggedIn
from console.rows import ViewerRow
from console.visibility import Visibility
from http_edge.reviews.review_cache import ReviewCache, TokenRefusal
from http_edge.reviews.reviewed_tokens import ReviewedTokens, bearer_token

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp import web

    from api.clock import Clock
    from console.console_data import DeviceDecisions
    from console.edge.viewer_login import Decide
    from http_edge.reviews.kube_reviews import TokenUser

_REFUSALS: Final = {
    TokenRefusal.UNAUTHENTICATED: (
        HTTPStatus.UNAUTHORIZED,
        "the API server does not accept the token: it may have expired; log in with another one",
        {"WWW-Authenticate": "Bearer"},
    ),
    TokenRefusal.FORBIDDEN: (
        HTTPStatus.FORBIDDEN,
        "the user of this token may not list gpupools and gpudevices of gpu.deckhouse.io, without which there is"
        " nothing to see; a ClusterRoleBinding to view gives both rights",
        {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
    ),
    TokenRefusal.UNAVAILABLE: (
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the API server does not say now whose token this is; try again in some seconds",
        {"Retry-After": "5"},
    ),
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedViewer:
    """The user of a token that may list pools and devices, and what else it may list in the whole cluster."""

    user: "TokenUser"
    nodes: bool
    pods: bool


class ViewerReviews(Protocol):
    """The API server's part; both raise KubeError where it does not answer."""

    async def review(self, token: str) -> ReviewedViewer | TokenRefusal:
        """Return whose token it is, and what its user may list."""

    async def may_list_pods(self, user: "TokenUser", namespace: str) -> bool:
        """Say whether the user may list the pods of a namespace; False also where there is no such namespace."""


@final
class TokenLogin:
    """A `ViewerLogin` by bearer tokens; a browser sends none by itself, so that pages of other sites have none."""

    def __init__(
        self,
        reviews: ViewerReviews,
        clock: "Clock",
        *,
        hosts: "Collection[str]" = (),
        decisions: "DeviceDecisions | None" = None,
    ) -> None:
        """Take the API server's part.

        Args:
            reviews: are asked at a bounded rate.
            clock: of the process.
            hosts: names, without ports, that requests may be for; any where there are none.
            decisions: writes those of viewers, with their tokens; None where this console takes none.
        """
        self._decisions = decisions
        self._reviews = reviews
        self._hosts = frozenset(host.lower() for host in hosts)
        self._tokens: ReviewedTokens[ReviewedViewer] = ReviewedTokens(
            reviews, clock, lambda viewer: viewer.user.username
        )
        self._namespaces: ReviewCache[str] = ReviewCache(clock, str)
        # the user that may list its pods

    def check_host(self, host: str) -> None:
        if self._hosts and _without_port(host) not in self._hosts:
            raise RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, "this console is not served under that host"
            )

    def log_in(self, request: "web.BaseRequest") -> "web.Response":
        """Refuse: there is no state of a login."""
        raise RefusedError(
            HTTPStatus.NOT_FOUND, "each request carries its token in the header Authorization"
        )

    async def viewer(self, request: "web.BaseRequest", namespace: str | None) -> LoggedIn:
        """Return the user of the request's token."""
        token = bearer_token(sent_bytes(request.headers.get("Authorization", "")))
        if token is None:
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                "log in with a token of Kubernetes, for instance of `kubectl create token`",
                {"WWW-Authenticate": "Bearer"},
            )
        result = await self._tokens.review(token)
        if isinstance(result, TokenRefusal):
            raise _refused(result)
        user = result.value
        decide = self._decide_with(token)
        if user.pods or namespace is None:
            return _logged_in(user, None, until=result.until, decide=decide)
        until = await self._may_list_until(token, user.user, namespace)
        if until is None:
            return _logged_in(user, None, until=result.until, decide=decide)
        return _logged_in(user, namespace, until=min(result.until, until), decide=decide)

    def _decide_with(self, token: bytes) -> "Decide | None":
        if self._decisions is None:
            return None
        return partial(self._decisions.write, token=token.decode("latin-1"))

    async def _may_list_until(
        self, token: bytes, user: "TokenUser", namespace: str
    ) -> float | None:
        """Return until when the right to list the pods of a namespace is kept; None without the right."""

        async def ask() -> str | TokenRefusal:
            is_allowed = await self._reviews.may_list_pods(user, namespace)
            return user.username if is_allowed else TokenRefusal.FORBIDDEN

        result = await self._namespaces.find(
            b"%b %b" % (token, namespace.encode()), ask, user=user.username
        )
        if result is TokenRefusal.FORBIDDEN:
            return None
        if isinstance(result, TokenRefusal):
            raise _refused(result)
        return result.until


def _logged_in(
    viewer: ReviewedViewer, namespace: str | None, *, until: float, decide: "Decide | None"
) -> LoggedIn:
    row = ViewerRow(
        name=viewer.user.username,
        namespace=namespace or "",
        all_namespaces=viewer.pods,
        nodes=viewer.nodes,
        can_choose_namespace=not viewer.pods,
        can_decide=decide is not None,
    )
    seen = None if viewer.pods else frozenset({namespace} if namespace else ())
    return LoggedIn(
        row=row,
        visibility=Visibility(namespaces=seen, nodes=viewer.nodes),
        until=until,
        decide=decide,
    )


def _refused(refusal: TokenRefusal) -> RefusedError:
    status, text, headers = _REFUSALS[refusal]
    return RefusedError(status, text, headers)


def _without_port(host: str) -> str:
    """Return the name of `name:port`, or the address of `[address]:port`."""
    name, separator, port = host.rpartition(":")
    return name if separator and port.isdecimal() else host
