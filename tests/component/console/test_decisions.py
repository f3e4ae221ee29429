"""The approval of a device by the page: which requests are decisions, and that each has the viewer's rights alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest

from api.kinds.gpudevice import GPUDevice
from api.names import ASSIGNMENT_ANNOTATION
from console.console_data import DecisionRefusedError, DeviceDecision
from console.data.console_cluster import ConsoleCluster
from console.edge.console_application import COST_OF_DECISION, VIEWER_BURST
from console.edge.decisions import BODY_WITHIN_S, MAX_BODY, OFF
from console.edge.local_login import LocalLogin
from console.edge.token_login import ReviewedViewer, TokenLogin
from console.processes.cluster_console import ConsoleReviews, client_of_viewer
from console.processes.local_console import viewer_of
from console.rows import DecisionAnswer
from http_edge.reviews.kube_reviews import TokenUser
from http_edge.reviews.review_cache import TokenRefusal
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, GPU_DEVICES
from manifests.install.crds import build_crds
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from tests.support.canned_console import ALL_SEEN, Heard, ServedConsole, log_in, served_console
from tests.support.cluster_objects import a_device_object
from tests.support.console_feed import WHOLE
from tests.support.loop_clock import LoopClock
from tests.support.polling import until

pytestmark = pytest.mark.looptime(noop_cycles=10)

PATH = "/api/v1/decisions"
FOR_TRAINING = {"device": "n1-0", "pool": "training"}
OF_THE_PAGE = {"Content_Type": "application/json", "X_GPU_Console": "decision"}
CONSOLE = "system:serviceaccount:gpu-control-plane:gpu-console"


@dataclass
class NotedDecisions:
    """Takes every decision, and writes none."""

    taken: list[tuple[DeviceDecision, str | None]] = field(default_factory=list)
    refusal: DecisionRefusedError | None = None

    async def write(self, decision: DeviceDecision, token: str | None) -> DecisionAnswer:
        if self.refusal is not None:
            raise self.refusal
        self.taken.append((decision, token))
        return DecisionAnswer(
            device=decision.device, node="n1", version="7", patch="{}", text="approved"
        )


class NamedViewers:
    """Every token is its user's name."""

    async def review(self, token: str) -> ReviewedViewer | TokenRefusal:
        if token == "nobody":
            return TokenRefusal.UNAUTHENTICATED
        return ReviewedViewer(user=TokenUser(username=token), nodes=True, pods=True)

    async def may_list_pods(self, user: TokenUser, namespace: str) -> bool:
        return True


@asynccontextmanager
async def console_of(decisions: NotedDecisions | None) -> AsyncIterator[ServedConsole]:
    async with served_console(
        lambda _, clock: TokenLogin(NamedViewers(), clock, decisions=decisions)
    ) as console:
        console.headers["Authorization"] = "Bearer alice"
        yield console


async def send(console: ServedConsole, document: Any = FOR_TRAINING, **headers: str) -> Heard:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return await console.send(PATH, "POST", body, OF_THE_PAGE | headers)


async def test_a_decision_is_passed_on_with_the_token_of_its_request() -> None:
    decisions = NotedDecisions()
    async with console_of(decisions) as console:
        same = f"http://127.0.0.1:{console.port}"
        heard = await send(console, Origin=same, Sec_Fetch_Site="same-origin")
        assert (heard.status, heard.json["text"]) == (200, "approved")
        tried = {**FOR_TRAINING, "version": "12", "isDry": True}
        assert (await send(console, tried, Authorization="Bearer bob")).status == 200
    assert decisions.taken == [
        (DeviceDecision(device="n1-0", pool="training"), "alice"),
        (DeviceDecision(device="n1-0", pool="training", version="12", is_dry=True), "bob"),
    ]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"X_GPU_Console": ""}, 403, id="no own header"),
        pytest.param({"X_GPU_Console": "1"}, 403, id="another value of it"),
        pytest.param({"Content_Type": "application/x-www-form-urlencoded"}, 415, id="form"),
        pytest.param({"Content_Type": "text/plain"}, 415, id="text, as a form can have"),
        pytest.param({"Content_Type": "application/merge-patch+json"}, 415, id="another JSON"),
        pytest.param({"Origin": "https://evil.example"}, 403, id="origin of another site"),
        pytest.param({"Origin": "null"}, 403, id="origin of a sandboxed frame"),
        pytest.param({"Origin": "http://127.0.0.1:1"}, 403, id="origin of another port"),
        pytest.param({"Sec_Fetch_Site": "cross-site"}, 403, id="of another site"),
        pytest.param({"Sec_Fetch_Site": "same-site"}, 403, id="of a sibling host"),
        pytest.param({"Authorization": ""}, 401, id="no token"),
        pytest.param({"Authorization": "Bearer nobody"}, 401, id="token of no user"),
    ],
)
async def test_a_request_that_another_page_could_send_is_refused(
    headers: dict[str, str], status: int
) -> None:
    decisions = NotedDecisions()
    async with console_of(decisions) as console:
        heard = await send(console, **headers)
        assert (heard.status, bool(heard.error)) == (status, True)
        assert (await send(console)).status == 200
    assert len(decisions.taken) == 1


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "the body is cut"),
        (b"device=n1-0&pool=training", 400, "is no decision"),
        (b"\xff\xfe", 400, "is no decision"),
        (b"[]", 400, "is no decision"),
        ({"device": "n1-0"}, 400, "`pool`"),
        ({**FOR_TRAINING, "namespace": "x"}, 400, "`namespace`"),
        ({**FOR_TRAINING, "pool": 1}, 400, "is no decision"),
        ({**FOR_TRAINING, "device": "../gpupools/x"}, 400, "is no name of a device"),
        ({**FOR_TRAINING, "pool": "a b"}, 400, "is no name of a pool"),
        ({**FOR_TRAINING, "version": "1 2"}, 400, "version is none of a dry run"),
        ({**FOR_TRAINING, "version": "1" * 65}, 400, "version is none of a dry run"),
        (b" " * (MAX_BODY + 1), 413, "at most 1024 bytes"),
    ],
)
async def test_what_is_no_decision_is_refused(
    body: bytes | dict[str, object], status: int, said: str
) -> None:
    decisions = NotedDecisions()
    async with console_of(decisions) as console:
        heard = await send(console, body)
        assert heard.status == status
        assert said in heard.error
    assert decisions.taken == []


async def test_only_a_post_without_a_query_decides() -> None:
    decisions = NotedDecisions()
    async with console_of(decisions) as console:
        for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
            heard = await console.send(PATH, method, b"{}", OF_THE_PAGE)
            assert (heard.status, heard.headers["Allow"]) == (405, "POST")
            assert not [name for name in heard.headers if name.startswith("Access-Control")]
        heard = await console.send(f"{PATH}?pool=x", "POST", b"{}", OF_THE_PAGE)
        assert heard.status == 400
    assert decisions.taken == []


async def said_to(console: ServedConsole, more: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", console.port)
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nAuthorization: Bearer alice\r\n"
        f"X-GPU-Console: decision\r\nContent-Type: application/json\r\nConnection: close\r\n{more}"
    )
    writer.write(head.encode())
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_body_without_end_is_not_waited_for() -> None:
    decisions = NotedDecisions()
    async with console_of(decisions) as console:
        chunks = "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        assert (await said_to(console, chunks)).startswith(b"HTTP/1.1 411 ")
        before = console.clock.monotonic()
        assert (await said_to(console, "Content-Length: 9\r\n\r\n{")).startswith(b"HTTP/1.1 408 ")
        assert BODY_WITHIN_S <= console.clock.monotonic() - before < 2 * BODY_WITHIN_S
    assert decisions.taken == []


async def test_a_console_that_takes_no_decisions_names_the_setting() -> None:
    async with console_of(None) as console:
        heard = await send(console)
        assert (heard.status, heard.error) == (403, OFF)
        async with console.stream():
            ((viewer, _),) = console.data.asked
        assert not viewer.can_decide  # type: ignore[attr-defined]
    async with console_of(NotedDecisions()) as console, console.stream():
        ((viewer, _),) = console.data.asked
        assert viewer.can_decide  # type: ignore[attr-defined]


async def test_decisions_of_a_viewer_come_at_a_bounded_rate() -> None:
    decisions = NotedDecisions()
    async with console_of(decisions) as console:
        statuses = [(await send(console)).status for _ in range(20)]
        burst = int(VIEWER_BURST / COST_OF_DECISION)
        assert statuses[:burst] == [200] * burst
        assert 429 in statuses
        assert (await send(console, Authorization="Bearer bob")).status == 200
        assert len(decisions.taken) == statuses.count(200) + 1


async def test_a_refusal_has_its_status_and_no_text_that_turns_another() -> None:
    text = "denied by policy \u202eevil\u2066"
    decisions = NotedDecisions(
        refusal=DecisionRefusedError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after_s=1.5)
    )
    async with console_of(decisions) as console:
        heard = await send(console)
        assert (heard.status, heard.headers["Retry-After"]) == (429, "2")
        assert heard.error == "denied by policy ?evil?"


@dataclass
class RealDecisions:
    """A console in front of an API server in memory, in which alice may patch what is there."""

    api: InMemoryApiServer
    admin: KubeClient
    console: ServedConsole
    tokens: dict[str, User]
    cluster: ConsoleCluster

    async def assignment(self) -> str | None:
        return (await self.admin.get(GPU_DEVICES, GPUDevice, "n1-0")).assignment

    def told_assignment(self) -> str | None:
        """The approval as the page shows it."""
        detail = self.cluster.device("n1-0", ALL_SEEN)
        return detail.assignment if detail is not None else None

    @property
    def patches(self) -> list[tuple[str, bool]]:
        return [(item.user, item.dry_run) for item in self.api.requests if item.method == "PATCH"]


@asynccontextmanager
async def real_decisions(*, is_local: bool = False) -> AsyncIterator[RealDecisions]:
    tokens = {
        "admin": User(name="admin"),
        "console": User(name=CONSOLE),
        "alice": User(name="alice"),
    }
    clock = LoopClock()
    async with (
        InMemoryApiServer(clock, tokens=tokens) as api,
        KubeClient(StaticConnection(api.url, token="admin"), clock) as admin,
        KubeClient(StaticConnection(api.url, token="console"), clock) as client,
    ):
        for definition in build_crds():
            await admin.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        for number, ref in enumerate((None, {"name": "inference"})):
            device = a_device_object("n1", number, poolRef=ref)
            await admin.create(GPU_DEVICES, device)
            name, status = device["metadata"]["name"], {"status": device["status"]}
            await admin.merge_patch(GPU_DEVICES, status, name=name, subresource="status")
        api.requests.clear()
        resources = ("gpupools.gpu.deckhouse.io", "gpudevices.gpu.deckhouse.io")
        api.reviewer.listers = {("alice", resource, "") for resource in resources}
        cluster = ConsoleCluster(client, clock, scope=WHOLE, origin="API server")
        connection = StaticConnection(api.url, token="console")
        own = cluster.decisions(partial(client_of_viewer, connection, clock))
        local = viewer_of(WHOLE, cluster.decisions(lambda _: nullcontext(client)))
        async with (
            asyncio.TaskGroup() as group,
            served_console(
                lambda port, clock: (
                    LocalLogin(local, port, clock)
                    if is_local
                    else TokenLogin(ConsoleReviews(client), clock, decisions=own)
                )
            ) as console,
        ):
            task = group.create_task(cluster.run())
            await until(lambda: cluster.is_ready)
            console.headers["Authorization"] = "Bearer alice"
            yield RealDecisions(api, admin, console, tokens, cluster)
            task.cancel()


async def test_the_device_is_approved_by_the_viewer_and_never_by_the_console() -> None:
    async with real_decisions() as real:
        tried = await send(real.console, {**FOR_TRAINING, "isDry": True})
        assert (tried.status, await real.assignment()) == (200, None)
        version = tried.json["version"]
        assert json.loads(tried.json["patch"]) == {
            "metadata": {
                "annotations": {"gpu.deckhouse.io/assignment": "training"},
                "uid": (await real.admin.get(GPU_DEVICES, GPUDevice, "n1-0")).metadata.uid,
            }
        }
        assert (tried.json["node"], tried.json["isDry"]) == ("n1", True)
        heard = await send(real.console, {**FOR_TRAINING, "version": version})
        assert (heard.status, heard.json["text"]) == (200, "approved for pool training")
        assert await real.assignment() == "training"
        assert real.patches == [("alice", True), ("alice", False)]
        (written,) = [
            item for item in real.api.requests if item.method == "PATCH" and not item.dry_run
        ]
        assert written.query == "fieldManager=gpu-console"


async def test_an_approval_is_taken_away_as_it_was_given() -> None:
    async with real_decisions() as real:
        await send(real.console)
        await until(lambda: real.told_assignment() == "training")
        heard = await send(real.console, {"device": "n1-0", "pool": None})
        assert (heard.status, heard.json["text"]) == (200, "no longer approved for pool training")
        assert await real.assignment() is None
        await until(lambda: real.told_assignment() == "")


async def test_on_the_users_machine_the_process_has_the_users_rights() -> None:
    async with real_decisions(is_local=True) as real:
        console = real.console
        assert isinstance(console.login, LocalLogin)
        assert (await send(console)).status == 401
        await log_in(console, console.login.address.partition("#token=")[2])
        assert (await send(console, X_GPU_Console="")).status == 403
        assert await real.assignment() is None
        assert (await send(console)).status == 200
        assert await real.assignment() == "training"


async def test_a_device_that_has_changed_since_it_was_seen_is_left_as_it_is() -> None:
    async with real_decisions() as real:
        version = (await send(real.console, {**FOR_TRAINING, "isDry": True})).json["version"]
        other = {"metadata": {"annotations": {ASSIGNMENT_ANNOTATION: "inference"}}}
        await real.admin.merge_patch(GPU_DEVICES, other, name="n1-0")
        await until(lambda: real.told_assignment() == "inference")
        heard = await send(real.console, {**FOR_TRAINING, "version": version})
        assert heard.status == 409
        assert "its pool or its approval has changed since: try again" in heard.error
        assert await real.assignment() == "inference"


async def test_a_write_of_its_status_is_no_change_of_a_device() -> None:
    async with real_decisions() as real:
        version = (await send(real.console, {**FOR_TRAINING, "isDry": True})).json["version"]
        status = {"status": {"product": "NVIDIA-H100"}}
        await real.admin.merge_patch(GPU_DEVICES, status, name="n1-0", subresource="status")
        assert (await send(real.console, {**FOR_TRAINING, "version": version})).status == 200
        assert await real.assignment() == "training"


async def test_another_device_of_the_same_name_is_left_as_it_is() -> None:
    async with real_decisions() as real:
        version = (await send(real.console, {**FOR_TRAINING, "isDry": True})).json["version"]
        await real.admin.delete(GPU_DEVICES, "n1-0")
        await real.admin.create(GPU_DEVICES, a_device_object("n1", 0))
        # Refused by the console or by the API server, whether the watch has shown the new device or not.
        heard = await send(real.console, {**FOR_TRAINING, "version": version})
        assert heard.status in {404, 409}
        assert await real.assignment() is None


@pytest.mark.parametrize(
    ("document", "status", "said"),
    [
        ({"device": "n9-0", "pool": "training"}, 404, "there is no device n9-0"),
        (
            {"device": "n1-1", "pool": "training"},
            409,
            "GPUDevice n1-1 is left as it is: it is in pool inference: `kubectl gpu move n1-1 training`",
        ),
        (
            {"device": "n1-0", "pool": None},
            409,
            "GPUDevice n1-0 is left as it is: it has no approval",
        ),
    ],
)
async def test_what_cannot_be_approved_is_not_sent(
    document: dict[str, str | None], status: int, said: str
) -> None:
    async with real_decisions() as real:
        heard = await send(real.console, document)
        assert (heard.status, heard.error) == (status, said)
        assert real.patches == []


@pytest.mark.parametrize("status", [400, 403, 404, 422, 429])
async def test_a_refusal_of_the_api_server_is_answered_with_its_status_and_words(
    status: int,
) -> None:
    async with real_decisions() as real:
        real.api.faults.fail("PATCH", "/gpudevices/n1-0$", status)
        heard = await send(real.console)
        assert heard.status == status
        assert f"refuses to change GPUDevice n1-0: {status}" in heard.error
        assert heard.error.endswith(f"status {status} on request of a test")
        assert await real.assignment() is None


async def test_a_token_that_ends_after_its_review_approves_nothing() -> None:
    async with real_decisions() as real:
        assert (await send(real.console, {**FOR_TRAINING, "isDry": True})).status == 200
        del real.tokens["alice"]
        heard = await send(real.console)
        assert (heard.status, heard.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert await real.assignment() is None


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        pytest.param(499, "nothing was written", id="no status of HTTP"),
        pytest.param(408, "it may have been written", id="time-out of a proxy"),
        pytest.param(500, "it may have been written", id="fault of the server"),
    ],
)
async def test_a_status_that_is_no_refusal_says_whether_it_may_have_been_written(
    status: int, outcome: str
) -> None:
    async with real_decisions() as real:
        real.api.faults.fail("PATCH", "/gpudevices/n1-0$", status)
        heard = await send(real.console)
        assert heard.status == 502
        assert f"{outcome}: {status}" in heard.error


@pytest.mark.parametrize(
    ("breakage", "assigned"), [("reset_after", "training"), ("reset_before", None)]
)
async def test_an_answer_that_does_not_come_is_no_refusal(
    breakage: str, assigned: str | None
) -> None:
    async with real_decisions() as real:
        getattr(real.api.faults, breakage)("PATCH", "/gpudevices/n1-0$")
        heard = await send(real.console)
        assert heard.status == 502
        assert "it may have been written" in heard.error
        assert await real.assignment() == assigned
