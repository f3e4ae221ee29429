"""The keys under the annotations of caches, in a Secret of their own.

`current` signs; `previous` verifies beside it, and what it signed is signed again. To rotate, let every replica
know the new key before one signs with it: put it into `previous`, wait for two intervals of `SharedKeys`, and then
exchange the two.
"""

from typing import TYPE_CHECKING, Final, NoReturn, final

from api.kinds.gkmcache import GKMCache
from kernelcache.admitted_image import CacheRevision, ProvenImage, proven_image
from kernelcache.signatures.mutation import MIN_MUTATION_KEY_BYTES, MutationKeys
from manifests.constants import CACHE_KEY_SECRET
from manifests.install.rbac import PolicyRule
from server.signing.shared_keys import SharedKeys

if TYPE_CHECKING:
    from kube.client import KubeClient

CURRENT: Final = "current"
PREVIOUS: Final = "previous"

NAMESPACED_RBAC: Final = (
    # Creating it is a right of `server.reservations.signer`, since a rule for it cannot name the Secret.
    PolicyRule(resources=("secrets",), verbs=("get",), names=(CACHE_KEY_SECRET,)),
)


@final
class MutationKeySecret:
    """The keys, once they are loaded."""

    def __init__(self, client: "KubeClient", namespace: str) -> None:
        self._shared = SharedKeys(
            client, namespace, CACHE_KEY_SECRET, signing=CURRENT, minimum=MIN_MUTATION_KEY_BYTES
        )

    def keys(self) -> MutationKeys | None:
        """Return the keys, or None until they are loaded."""
        keys = self._shared.keys
        if CURRENT not in keys:
            return None
        return MutationKeys(current=keys[CURRENT], previous=keys.get(PREVIOUS))

    def is_loaded(self) -> bool:
        return self.keys() is not None

    def proven(self, cache: GKMCache) -> ProvenImage | str:
        """Return the image that the annotations of a stored cache prove, or why they prove none."""
        keys = self.keys()
        if keys is None:
            return "the key for the annotations of caches is not loaded yet"
        meta = cache.metadata
        revision = CacheRevision(
            name=cache.cache_name, generation=meta.generation, image=cache.spec.image
        )
        return proven_image(meta.annotations or {}, revision, keys)

    async def run(self) -> NoReturn:
        """Load the keys, create the Secret where it is missing, and follow it, until cancelled."""
        await self._shared.run()
