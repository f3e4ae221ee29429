"""The page in a cluster: each request has a token, the API server says what its user may see, and streams follow that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from console.edge.token_login import ReviewedViewer, TokenLogin
from console.rows import ViewerRow
from console.visibility import Visibility
from http_edge.reviews.kube_reviews import TokenUser
from http_edge.reviews.review_cache import ALLOWED_S, BURST, REFUSED_S, TokenRefusal
from kube.errors import KubeError, Unreachable
from tests.support.canned_console import SNAPSHOT, ServedConsole, served_console
from tests.support.polling import until

pytestmark = pytest.mark.looptime(noop_cycles=10)

DEVICE = "/api/v1/devices/gpu-0-0"
ALICE, BOB = TokenUser(username="alice"), TokenUser(username="bob", groups=("ml-team",))
AWAY = Unreachable("refused", request_sent=False)


class CannedViewerReviews:
    """Knows a viewer of all pods, one of a namespace's, and one who lacks the rights."""

    def __init__(self) -> None:
        self.viewers: dict[str, ReviewedViewer | TokenRefusal] = {
            "alice": ReviewedViewer(user=ALICE, nodes=True, pods=True),
            "bob": ReviewedViewer(user=BOB, nodes=False, pods=False),
            "carol": TokenRefusal.FORBIDDEN,
        }
        self.namespaces = {("bob", "ml-team")}
        self.asked: list[str] = []
        self.fault: KubeError | None = None

    async def review(self, token: str) -> ReviewedViewer | TokenRefusal:
        self.asked.append(token)
        self._fail()
        return self.viewers.get(token, TokenRefusal.UNAUTHENTICATED)

    async def may_list_pods(self, user: TokenUser, namespace: str) -> bool:
        self.asked.append(f"{user.username} {namespace}")
        self._fail()
        return (user.username, namespace) in self.namespaces

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault


@asynccontextmanager
async def cluster_console(
    *hosts: str,
) -> AsyncIterator[tuple[ServedConsole, CannedViewerReviews]]:
    reviews = CannedViewerReviews()
    async with served_console(
        lambda _, clock: TokenLogin(reviews, clock, hosts=hosts), has_probes=True
    ) as console:
        yield console, reviews


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_viewer_of_all_pods_sees_all() -> None:
    async with (
        cluster_console() as (console, reviews),
        console.stream("?namespace=x", **bearer("alice")),
    ):
        row = ViewerRow(name="alice", all_namespaces=True, nodes=True)
        assert console.data.asked == [(row, Visibility(namespaces=None, nodes=True))]
        assert reviews.asked == ["alice"]


async def test_a_viewer_sees_the_pods_of_the_namespace_that_is_looked_at() -> None:
    async with cluster_console() as (console, _):
        async with console.stream("?namespace=ml-team", **bearer("bob")):
            row = ViewerRow(name="bob", namespace="ml-team", can_choose_namespace=True)
            seen = Visibility(namespaces=frozenset({"ml-team"}), nodes=False)
            assert console.data.asked == [(row, seen)]
        await console.ask("/api/v1/pods/ml-team/big", **bearer("bob"))
        await console.ask(f"{DEVICE}?namespace=ml-team", **bearer("bob"))
        assert [visibility for _, visibility in console.data.asked] == [seen] * 3


async def test_a_namespace_that_is_not_allowed_is_as_one_that_is_not_there() -> None:
    async with cluster_console() as (console, reviews):
        for query in ("", "?namespace=secret", "?namespace=no-such"):
            async with console.stream(query, **bearer("bob")):
                pass
        row = ViewerRow(name="bob", can_choose_namespace=True)
        none = Visibility(namespaces=frozenset(), nodes=False)
        assert console.data.asked == [(row, none)] * 3
        assert reviews.asked == ["bob", "bob secret", "bob no-such"]
        answers = [
            await console.ask(f"/api/v1/pods/{namespace}/big", **bearer("bob"))
            for namespace in ("secret", "no-such")
        ]
        assert {answer.status for answer in answers} == {404}
        assert len({answer.error.replace("no-such", "secret") for answer in answers}) == 1


async def test_a_token_is_reviewed_once_a_minute() -> None:
    async with cluster_console() as (console, reviews):
        for _ in range(5):
            assert (await console.ask(DEVICE, **bearer("alice"))).status == 200
        assert reviews.asked == ["alice"]
        await asyncio.sleep(ALLOWED_S)
        assert (await console.ask(DEVICE, **bearer("alice"))).status == 200
        assert reviews.asked == ["alice"] * 2


@pytest.mark.parametrize("path", [DEVICE, "/api/v1/stream", "/api/v1/what-if?pool=a&units=1"])
@pytest.mark.parametrize(
    "header",
    ["", "Basic YWxpY2U6eA==", "Bearer", "Bearer alice bob", "Bearer al\u00efce", "Bearer al\udcffce", "Bearer unknown",
     "Bearer " + "x" * 8_000],
)  # fmt: skip
async def test_who_shows_no_good_token_has_to_log_in(path: str, header: str) -> None:
    async with cluster_console() as (console, _):
        heard = await console.ask(path, Authorization=header)
        assert heard.status == 401
        assert heard.headers["WWW-Authenticate"] == "Bearer"
        assert "log in with" in heard.error
        assert console.data.asked == []


async def test_who_lacks_a_right_is_told_which() -> None:
    async with cluster_console() as (console, _):
        heard = await console.ask(DEVICE, **bearer("carol"))
        assert heard.status == 403
        assert "may not list gpupools and gpudevices" in heard.error
        # RFC 6750, 3.1: the page asks for another token.
        assert heard.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope"'
        assert console.data.asked == []


async def test_an_api_server_that_is_away_is_said_and_asked_again() -> None:
    async with cluster_console() as (console, reviews):
        reviews.fault = AWAY
        for token in ("alice", "bob"):
            heard = await console.ask(DEVICE, **bearer(token))
            assert (heard.status, heard.headers["Retry-After"]) == (503, "5")
        reviews.fault = None
        assert (await console.ask(DEVICE, **bearer("bob"))).status == 200
        reviews.fault = AWAY
        heard = await console.ask(f"{DEVICE}?namespace=ml-team", **bearer("bob"))
        assert heard.status == 503


async def test_a_flood_of_tokens_is_not_passed_on() -> None:
    async with cluster_console() as (console, reviews):
        assert (await console.ask(DEVICE, **bearer("alice"))).status == 200
        statuses = [
            (await console.ask(DEVICE, **bearer(f"t{number}"))).status for number in range(60)
        ]
        assert statuses.count(401) == BURST - 1
        assert statuses.count(503) == 60 - BURST + 1
        assert len(reviews.asked) == BURST
        assert (await console.ask(DEVICE, **bearer("alice"))).status == 200


async def ended(console: ServedConsole, query: str, token: str, change: object) -> bytes:
    """Open a stream, change something, and return what comes after the snapshot."""
    async with console.stream(query, **bearer(token)) as reply:
        assert await reply.content.readuntil(b"\n\n") == SNAPSHOT
        assert callable(change)
        change()
        return await reply.content.read()


async def test_a_stream_ends_when_its_token_is_revoked() -> None:
    async with cluster_console() as (console, reviews):
        began = console.clock.monotonic()
        end = await ended(console, "", "alice", lambda: reviews.viewers.pop("alice"))
        assert end.startswith(b'event: end\ndata: {"message":"the API server does not accept')
        assert end.endswith(b'"isLoginNeeded":true}\n\n')
        assert console.clock.monotonic() - began == pytest.approx(ALLOWED_S, abs=1)
        heard = await console.ask("/api/v1/stream", **bearer("alice"))
        assert heard.status == 401


async def test_a_revoked_token_ends_its_streams_within_a_minute_of_its_last_review() -> None:
    """Not within two: a review that is kept is not as good as one that is made."""
    async with cluster_console() as (console, reviews):
        await console.ask(DEVICE, **bearer("alice"))
        began = console.clock.monotonic()
        await asyncio.sleep(ALLOWED_S - 5)
        await ended(console, "", "alice", lambda: reviews.viewers.pop("alice"))
        assert console.clock.monotonic() - began == pytest.approx(ALLOWED_S, abs=1)


async def test_a_stream_ends_when_a_right_is_taken_away() -> None:
    async with cluster_console() as (console, reviews):
        end = await ended(
            console, "", "alice", lambda: reviews.viewers.update(alice=TokenRefusal.FORBIDDEN)
        )
        assert end.endswith(b'"isLoginNeeded":true}\n\n')
        end = await ended(console, "?namespace=ml-team", "bob", reviews.namespaces.clear)
        assert end == b'event: end\ndata: {"message":"the viewer\'s rights have changed"}\n\n'


async def test_a_stream_begins_again_with_a_right_that_is_given() -> None:
    async with cluster_console() as (console, reviews):
        reviews.namespaces.clear()
        end = await ended(
            console,
            "?namespace=ml-team",
            "bob",
            lambda: reviews.namespaces.add(("bob", "ml-team")),
        )
        assert end == b'event: end\ndata: {"message":"the viewer\'s rights have changed"}\n\n'
        async with console.stream("?namespace=ml-team", **bearer("bob")):
            viewer, _ = console.data.asked[-1]
        assert isinstance(viewer, ViewerRow)
        assert viewer.namespace == "ml-team"


async def test_a_stream_outlives_an_api_server_that_goes_and_comes_back() -> None:
    async with cluster_console() as (console, reviews), console.stream(**bearer("alice")) as reply:
        assert await reply.content.readuntil(b"\n\n") == SNAPSHOT
        reviews.fault = AWAY
        await asyncio.sleep(ALLOWED_S + 120)
        assert len(reviews.asked) > 10
        reviews.fault = None
        await asyncio.sleep(2 * ALLOWED_S)
        console.data.streams[0].send(b"data: 1\n\n")
        assert await reply.content.readuntil(b"\n\n") == b"data: 1\n\n"


async def test_a_stream_ends_where_its_viewer_stays_unknown() -> None:
    async with cluster_console() as (console, reviews):
        began = console.clock.monotonic()
        end = await ended(console, "", "alice", lambda: setattr(reviews, "fault", AWAY))
        assert end.startswith(b'event: end\ndata: {"message":"the API server does not say now')
        assert b"isLoginNeeded" not in end
        assert console.clock.monotonic() - began == pytest.approx(ALLOWED_S + 300, abs=10)


async def test_hosts_are_checked_where_some_are_named() -> None:
    async with cluster_console("gpu.example.com") as (console, _):
        for host, status in (
            ("gpu.example.com", 200),
            ("GPU.example.com:8443", 200),
            ("evil.example", 421),
            ("gpu.example.com.evil.example", 421),
            ("[::1]:8443", 421),
        ):
            assert (await console.ask(DEVICE, Host=host, **bearer("alice"))).status == status, host
            # kubelet and Prometheus name addresses.
            assert (await console.ask("/readyz", Host=host)).status == 200
    async with cluster_console() as (console, _):
        assert (await console.ask(DEVICE, Host="any.example", **bearer("alice"))).status == 200


async def test_a_page_of_another_origin_is_refused() -> None:
    async with cluster_console() as (console, reviews):
        for headers, status in (
            ({"Origin": "https://gpu.example.com"}, 200),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "https://gpu.example.com:1"}, 403),
            ({"Sec_Fetch_Site": "cross-site"}, 403),
        ):
            heard = await console.ask(DEVICE, Host="gpu.example.com", **bearer("alice"), **headers)
            assert heard.status == status, headers
        assert reviews.asked == ["alice"]


async def test_there_is_no_state_of_a_login() -> None:
    async with cluster_console() as (console, _):
        heard = await console.ask("/api/v1/login", **bearer("alice"))
        assert heard.status == 404
        assert "Set-Cookie" not in heard.headers


async def test_probes_and_metrics_need_no_login() -> None:
    async with cluster_console() as (console, _):
        for path in ("/livez", "/healthz", "/readyz"):
            assert (await console.ask(path)).status == 200
        console.data.is_ready = False
        heard = await console.ask("/readyz")
        assert (heard.status, heard.error) == (503, "the lists of the cluster are not read yet")
        assert (await console.ask("/healthz")).status == 200
        heard = await console.ask("/metrics", Accept_Encoding="identity")
        assert heard.status == 200
        assert b"\ngpu_console_viewers 0.0\n" in heard.body
        assert b'gpu_console_streams_dropped_total{cause="unread"}' in heard.body
        packed = await console.ask("/metrics", Accept_Encoding="gzip")
        assert packed.headers["Content-Encoding"] == "gzip"


async def test_a_refusal_is_kept_for_seconds_only() -> None:
    async with cluster_console() as (console, reviews):
        assert (await console.ask(DEVICE, **bearer("carol"))).status == 403
        reviews.viewers["carol"] = ReviewedViewer(user=ALICE, nodes=True, pods=True)
        assert (await console.ask(DEVICE, **bearer("carol"))).status == 403
        await asyncio.sleep(REFUSED_S)
        assert (await console.ask(DEVICE, **bearer("carol"))).status == 200
        await until(lambda: reviews.asked == ["carol"] * 2)


async def test_questions_of_a_viewer_leave_those_of_others_their_share() -> None:
    async with cluster_console() as (console, reviews):
        reviews.viewers["dora"] = ReviewedViewer(
            user=TokenUser(username="dora"), nodes=True, pods=True
        )
        what_if = "/api/v1/what-if?pool=training&units=1&times=1000"
        asked = [await console.ask(what_if, **bearer("alice")) for _ in range(20)]
        assert [heard.status for heard in asked].count(200) == 1
        assert (await console.ask("/api/v1/pods/ml-team/big", **bearer("alice"))).status == 200
        assert (await console.ask(what_if, **bearer("dora"))).status == 200


async def test_namespaces_that_a_viewer_asks_for_keep_no_other_viewer_out() -> None:
    async with cluster_console() as (console, reviews):
        dora = TokenUser(username="dora")
        reviews.viewers["dora"] = ReviewedViewer(user=dora, nodes=False, pods=False)
        reviews.namespaces.add(("dora", "hers"))
        asked = [
            await console.ask(f"{DEVICE}?namespace=n-{number}", **bearer("bob"))
            for number in range(2 * BURST)
        ]
        assert {heard.status for heard in asked} == {200, 503}
        assert (await console.ask(f"{DEVICE}?namespace=hers", **bearer("dora"))).status == 200
