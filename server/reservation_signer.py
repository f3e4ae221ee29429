"""Signature of reservations: at validation each replica recognises the annotation that another one wrote.

The key has a Secret of its own, apart from the certificates: those may come from files, and they are rotated by
other rules. The first replica creates it. It is never rotated, because no reservation outlives its pool's TTL. To
change it, delete the Secret and restart the replicas: until all have the new key, a pod whose two webhook calls go to
different replicas is refused once.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final, NoReturn, final

import msgspec
import structlog

from api.meta import ObjectMeta
from kube.backoff import Backoff
from kube.errors import AlreadyExists, KubeError, NotFound
from kube.resources import SECRETS
from manifests.constants import RESERVATION_KEY_SECRET
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from kube.client import KubeClient

KEY: Final = "key"
"""Of the Secret's data."""
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 16
"""Of the 32 of HMAC-SHA256: 22 characters in an annotation, and 128 bits cannot be guessed."""
CHECK_INTERVAL_S: Final = 60.0

NAMESPACED_RBAC: Final = (
    PolicyRule(resources=("secrets",), verbs=("create",)),
    PolicyRule(resources=("secrets",), verbs=("get",), names=(RESERVATION_KEY_SECRET,)),
)

_log = structlog.get_logger()


class _Secret(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, bytes] = {}  # msgspec takes bytes from base64

    def __repr__(self) -> str:
        return f"_Secret({self.metadata.name})"


@final
class ReservationSigner:
    """Signs once the key is loaded; replicas with the same key make the same signature."""

    def __init__(self, client: "KubeClient", namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._key = b""

    def __call__(self, content: bytes) -> str:
        """Return the signature of these bytes.

        Raises:
            RuntimeError: the key is not loaded.
        """
        if not self._key:
            raise RuntimeError("the reservation key is not loaded")
        digest = hmac.digest(self._key, content, hashlib.sha256)[:_SIGNATURE_BYTES]
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")

    def is_loaded(self) -> bool:
        return bool(self._key)

    async def run(self) -> NoReturn:
        """Load the key, create it where it is missing, and keep it there, until cancelled."""
        backoff = Backoff(cap_s=CHECK_INTERVAL_S)
        while True:
            try:
                await self._check()
            except KubeError as error:
                delay_s = backoff.fail()
                _log.warning(
                    "reservation key could not be read",
                    secret=f"{self._namespace}/{RESERVATION_KEY_SECRET}",
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
            key = await self._read()
        except NotFound:
            key = await self._make()
        if not key:
            # Only an operator can have emptied it, and knows why.
            _log.error(
                "Secret without a key: delete it, and a new one is created",
                secret=f"{self._namespace}/{RESERVATION_KEY_SECRET}",
                wanted=KEY,
            )
            return
        self._key = key

    async def _read(self) -> bytes:
        secret = await self._client.get(
            SECRETS, _Secret, RESERVATION_KEY_SECRET, namespace=self._namespace
        )
        return secret.data.get(KEY, b"")

    async def _make(self) -> bytes:
        key = self._key or secrets.token_bytes(_KEY_BYTES)
        body = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"namespace": self._namespace, "name": RESERVATION_KEY_SECRET},
            "data": {KEY: key},
        }
        try:
            await self._client.create(SECRETS, body)
        except AlreadyExists:
            return await self._read()
        return key
