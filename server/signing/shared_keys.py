"""Keys with which every replica signs and verifies, in a Secret of their own: created once, and followed.

The first replica creates the Secret with a random key. What an operator changes in it is in force at every
replica within `CHECK_INTERVAL_S`; a Secret that was deleted is written again from memory.
"""

import asyncio
import secrets
from typing import TYPE_CHECKING, Final, NoReturn, final

import msgspec
import structlog

from api.meta import ObjectMeta
from kube.backoff import Backoff
from kube.errors import AlreadyExists, KubeError, NotFound
from kube.resources import SECRETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kube.client import KubeClient

KEY_BYTES: Final = 32
CHECK_INTERVAL_S: Final = 60.0

_log = structlog.get_logger()


class _Secret(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, bytes] = {}  # msgspec takes bytes from base64

    def __repr__(self) -> str:
        return f"_Secret({self.metadata.name})"


@final
class SharedKeys:
    """The keys of one Secret, by their names in its data."""

    def __init__(
        self, client: "KubeClient", namespace: str, secret: str, *, signing: str, minimum: int = 1
    ) -> None:
        """`signing` is the name of the key that must be there, with at least so many bytes."""
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._signing = signing
        self._minimum = minimum
        self._keys: Mapping[str, bytes] = {}

    @property
    def keys(self) -> "Mapping[str, bytes]":
        """Return the keys that are usable; empty until they are loaded, then always with the signing one."""
        return self._keys

    async def run(self) -> NoReturn:
        """Load the keys, create the Secret where it is missing, and keep it there, until cancelled."""
        backoff = Backoff(cap_s=CHECK_INTERVAL_S)
        while True:
            try:
                await self._check()
            except KubeError as error:
                delay_s = backoff.fail()
                _log.warning(
                    "signing key could not be read",
                    secret=f"{self._namespace}/{self._secret}",
                    cause=type(error).__name__,
                    error=str(error),
                    retry_in_s=round(delay_s, 1),
                )
            else:
                backoff.succeed()
                delay_s = CHECK_INTERVAL_S
            await asyncio.sleep(delay_s)

    async def _check(self) -> None:
        """Follow the Secret; recreate it from memory where it was deleted."""
        try:
            found = await self._read()
        except NotFound:
            found = await self._make()
        usable = {name: key for name, key in found.items() if len(key) >= self._minimum}
        if self._signing not in usable:
            # Only an operator can have emptied it, and knows why.
            _log.error(
                "Secret without a key: delete it, and a new one is created",
                secret=f"{self._namespace}/{self._secret}",
                requested=self._signing,
            )
            return
        self._keys = usable

    async def _read(self) -> "Mapping[str, bytes]":
        secret = await self._client.get(SECRETS, _Secret, self._secret, namespace=self._namespace)
        return secret.data

    async def _make(self) -> "Mapping[str, bytes]":
        keys = self._keys or {self._signing: secrets.token_bytes(KEY_BYTES)}
        body = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"namespace": self._namespace, "name": self._secret},
            "data": keys,
        }
        try:
            await self._client.create(SECRETS, body)
        except AlreadyExists:
            return await self._read()
        return keys
