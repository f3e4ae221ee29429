"""Leaf and CA are replaced under 500 requests a second, and no call fails.

The callers are those of a cluster: the API server with connections that last, fresh connections that
trust the caBundle of that moment, and kube-scheduler with the certificate of that moment.
"""

import asyncio
import datetime as dt
import functools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest

from certs.bundle import CA_KEY, SERVING_CERTIFICATE, Bundle, Requirements, ServingBundle
from certs.rotation import CertificateRotation
from certs.tls import ServingContext, client_context
from http_edge.system_clock import SystemClock
from manifests.constants import FILTER_PATH, VALIDATE_DEVICES_PATH
from tests.component.certs.doubles import MemoryStore
from tests.support.polling import until
from tests.support.reviews import GPUDEVICE, a_device_object, a_review
from tests.support.scheduling import a_wire_pod, extender_args
from tests.support.served_app import ServedApp, TestAuthority, on_a_port

SECRET = ("gpu-system", "gpu-certificates")
REQUIRED = replace(
    Requirements.for_service("gpu", "gpu-system", extra_ip_addresses=["127.0.0.1"]),
    lookahead=dt.timedelta(seconds=6),
    leaf_lifetime=dt.timedelta(days=1),
    authority_lifetime=dt.timedelta(days=10),
)
"""A replaced CA signs no more after two seconds, and is trusted for six."""
REVIEW = a_review(a_device_object(None), kind=GPUDEVICE)
QUESTION = extender_args(a_wire_pod(whole=1), "n1")
TICK_S = 0.02
LASTING, FRESH = 9, 1
"""Requests a tick: ten in 20 ms are 500 a second."""
MOST_ASKED = 4 * (LASTING + FRESH)
"""Calls at a time. On a busy machine there are fewer a second: a caller that is kept for longer than a CA
waits would trust a CA that is dropped."""


@dataclass
class Served:
    app: ServedApp
    store: MemoryStore
    serving: ServingContext
    answered: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    asked: int = 0
    """Calls that are under way."""

    @property
    def bundle(self) -> Bundle:
        return self.store.bundle

    def serves_another_than(self, before: ServingBundle | None) -> bool:
        return self.serving.loaded != before

    def has_answered(self, count: int) -> bool:
        return self.answered.total() >= count

    async def call(
        self, session: aiohttp.ClientSession, path: str, kind: str, trusted: bytes | None = None
    ) -> None:
        """Ask; a failure counts, but for a call that has trusted since its begin what is replaced by now."""
        body = REVIEW if path == VALIDATE_DEVICES_PATH else QUESTION
        headers = {"Content-Type": "application/json"}
        try:
            async with session.post(self.app.url + path, data=body, headers=headers) as reply:
                await reply.read()
                assert reply.status == 200
        except (aiohttp.ClientError, TimeoutError, AssertionError) as error:
            if trusted is None or trusted == self.trust_of(kind):
                self.failed.append(f"{kind}: {error!r}")
        self.answered[kind] += 1

    async def counted(self, call: Awaitable[None]) -> None:
        self.asked += 1
        try:
            await call
        finally:
            self.asked -= 1

    def trust_of(self, kind: str) -> bytes:
        """Return the CAs that a new connection trusts: kube-scheduler's file, or caBundle, which the API server reads."""
        if kind == "scheduler":
            return self.bundle.trust_pem
        assert self.store.injected is not None
        return self.store.injected

    async def call_again(self, *, as_scheduler: bool) -> None:
        """Ask over a connection of its own, trusting what is to be trusted now."""
        kind = "scheduler" if as_scheduler else "fresh"
        trusted = self.trust_of(kind)
        context = client_context(trusted, self.bundle.client if as_scheduler else None)
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            path = FILTER_PATH if as_scheduler else VALIDATE_DEVICES_PATH
            await self.call(session, path, kind, trusted)

    def remove(self, *keys: str) -> None:
        """Take keys out of the Secret, so that they are issued again."""
        secret = self.store.secrets[SECRET]
        self.store.put(*SECRET, {key: secret.data[key] for key in secret.data if key not in keys})


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Served]:
    store, serving = MemoryStore(), ServingContext()
    rotation = CertificateRotation(
        store,
        serving,
        SystemClock(),
        namespace=SECRET[0],
        secret_name=SECRET[1],
        required=REQUIRED,
        interval_s=0.05,
    )
    app = ServedApp(TestAuthority(), folder / "no-token")
    app.serving = serving
    async with (
        on_a_port(app),
        asyncio.TaskGroup() as group,
    ):
        rotating = group.create_task(rotation.run())
        await rotation.ready.wait()
        try:
            yield Served(app, store, serving)
        finally:
            rotating.cancel()


@asynccontextmanager
async def under_load(served: Served) -> AsyncIterator[None]:
    """Ask 500 times a second until the end of the block."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        assert served.store.injected is not None
        trusted = client_context(served.store.injected)
        sessions = [
            await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted, limit=1))
            )
            for _ in range(LASTING)
        ]

        async def ask() -> None:
            number = 0
            while True:
                await asyncio.sleep(TICK_S)
                if served.asked > MOST_ASKED:
                    continue
                number += 1
                calls = [
                    *(
                        served.call(session, VALIDATE_DEVICES_PATH, "lasting")
                        for session in sessions
                    ),
                    *(served.call_again(as_scheduler=number % 4 == 0) for _ in range(FRESH)),
                ]
                for call in calls:
                    group.create_task(served.counted(call))

        asking = group.create_task(ask())
        try:
            yield
        finally:
            asking.cancel()


async def replace_leaf(served: Served) -> None:
    served.remove(SERVING_CERTIFICATE)


async def replace_authority(served: Served) -> None:
    """From the CA's loss to the day on which the old one is dropped."""
    old = served.bundle
    served.remove(CA_KEY)
    await until(lambda: served.bundle.trust_pem != old.trust_pem)
    assert served.bundle.trust_pem.endswith(old.trust_pem), "the old one is trusted meanwhile"
    await until(lambda: served.bundle.serving != old.serving)
    await until(lambda: old.trust_pem not in served.bundle.trust_pem)


@pytest.mark.parametrize(
    ("replace_them", "times"),
    [pytest.param(replace_leaf, 5, id="leaf"), pytest.param(replace_authority, 1, id="CA")],
)
async def test_no_call_fails_while_certificates_are_replaced(
    tmp_path: Path, replace_them: Callable[[Served], Awaitable[None]], times: int
) -> None:
    async with served(tmp_path) as subject, under_load(subject):
        for _ in range(times):
            before = subject.serving.loaded
            asked = subject.answered.total()
            await replace_them(subject)
            await until(functools.partial(subject.serves_another_than, before))
            # As many again are asked of the new certificate.
            await until(functools.partial(subject.has_answered, asked + 250))
    assert subject.failed == []
    assert set(subject.answered) == {"lasting", "fresh", "scheduler"}
