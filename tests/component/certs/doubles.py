"""Doubles of what rotation depends on: the API server's part, and time."""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Mapping

from certs.bundle import Bundle
from certs.errors import InjectionError, SecretConflictError
from certs.rotation import StoredSecret
from tests.unit.certs.builders import NOW


class SettableClock:
    """Time that moves when the test says so."""

    def __init__(self, now: dt.datetime = NOW) -> None:
        self.now = now

    def monotonic(self) -> float:
        return (self.now - NOW).total_seconds()

    def utc_now(self) -> dt.datetime:
        return self.now


class KilledError(Exception):
    """The process is gone at this point."""


class MemoryStore:
    """`CertificateStore` in memory, with versions as the API server keeps them.

    `fail_next[method]` are raised by the next calls of the method, before they do anything;
    `then_fail_next[method]` after they did. `meanwhile` runs between a caller's read and its write.
    """

    def __init__(self) -> None:
        self.secrets: dict[tuple[str, str], StoredSecret] = {}
        self.injected: bytes | None = None
        self.is_registered = True
        self.writes: list[str] = []
        self.calls = 0
        self.fail_next: dict[str, list[Exception]] = {}
        self.then_fail_next: dict[str, list[Exception]] = {}
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self._version = 0

    async def read_secret(self, namespace: str, name: str) -> StoredSecret | None:
        self._begin("read")
        await asyncio.sleep(0)
        found = self.secrets.get((namespace, name))
        self._end("read")
        return found

    async def write_secret(
        self,
        namespace: str,
        name: str,
        data: Mapping[str, bytes],
        *,
        resource_version: str | None,
    ) -> None:
        self._begin("write")
        await asyncio.sleep(0)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        stored = self.secrets.get((namespace, name))
        if (stored.resource_version if stored else None) != resource_version:
            raise SecretConflictError("has changed")
        self.put(namespace, name, {**(stored.data if stored else {}), **data})
        self.writes.append("secret")
        self._end("write")

    async def inject_ca_bundle(self, ca_pem: bytes) -> None:
        self._begin("inject")
        await asyncio.sleep(0)
        if not self.is_registered:
            raise InjectionError("MutatingWebhookConfiguration gpu: does not exist")
        if self.injected != ca_pem:
            self.injected = ca_pem
            self.writes.append("caBundle")
        self._end("inject")

    def put(self, namespace: str, name: str, data: Mapping[str, bytes]) -> None:
        self._version += 1
        self.secrets[namespace, name] = StoredSecret(
            data=dict(data), resource_version=str(self._version)
        )

    @property
    def bundle(self) -> Bundle:
        (secret,) = self.secrets.values()
        return Bundle.from_secret(secret.data)

    def _begin(self, method: str) -> None:
        self.calls += 1
        if failures := self.fail_next.get(method):
            raise failures.pop(0)

    def _end(self, method: str) -> None:
        if failures := self.then_fail_next.get(method):
            raise failures.pop(0)
