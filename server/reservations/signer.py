"""Signature of reservations and of workloads' access: each replica recognises the annotation that another one wrote.

The key has a Secret of its own, apart from the certificates: those may come from files, and they are rotated by
other rules. The first replica creates it. It is never rotated: no reservation outlives its pool's TTL, and the
annotation of a template cannot be written anew without a roll-out. To change it, delete the Secret and restart the
replicas: until all have the new key, a pod whose two webhook calls go to different replicas is refused once, and the
next pods of workloads that inherit access are refused until a member applies these again.
"""

import base64
import functools
import hashlib
import hmac
from typing import TYPE_CHECKING, Final, NoReturn, final

from manifests.constants import RESERVATION_KEY_SECRET
from manifests.install.rbac import PolicyRule
from server.signing.shared_keys import SharedKeys

if TYPE_CHECKING:
    from kube.client import KubeClient

KEY: Final = "key"
"""Key of the Secret's data."""
_SIGNATURE_BYTES: Final = 16
"""Bytes of a signature, of the 32 of HMAC-SHA256: 22 characters in an annotation, and 128 bits cannot be guessed."""

NAMESPACED_RBAC: Final = (
    PolicyRule(resources=("secrets",), verbs=("create",)),
    PolicyRule(resources=("secrets",), verbs=("get",), names=(RESERVATION_KEY_SECRET,)),
)


@final
class ReservationSigner:
    """Signs once the key is loaded; replicas with the same key make the same signature."""

    def __init__(self, client: "KubeClient", namespace: str) -> None:
        self._shared = SharedKeys(client, namespace, RESERVATION_KEY_SECRET, signing=KEY)

    def __call__(self, content: bytes) -> str:
        """Return the signature of these bytes.

        Raises:
            RuntimeError: the key is not loaded.
        """
        key = self._shared.keys.get(KEY)
        if key is None:
            raise RuntimeError("the reservation key is not loaded")
        keyed = _keyed(key).copy()
        keyed.update(content)
        digest = keyed.digest()[:_SIGNATURE_BYTES]
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")

    def is_loaded(self) -> bool:
        return bool(self._shared.keys)

    async def run(self) -> NoReturn:
        """Load the key, create it where it is missing, and keep it there, until cancelled."""
        await self._shared.run()


@functools.lru_cache(maxsize=1)
def _keyed(key: bytes) -> hmac.HMAC:
    """Return the HMAC of no content, with a copy of which each signature begins."""
    return hmac.new(key, digestmod=_sha256)


def _sha256(content: bytes = b"") -> "hashlib._Hash":
    """Return the hash; by a function of its own, since with OpenSSL's the HMAC is OpenSSL's, too, which takes twice the time."""
    return hashlib.sha256(content)
