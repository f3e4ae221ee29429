"""Signatures of images in registries: made by a key, and judged as admission judges them."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from http_edge.system_clock import SystemClock
from kernelcache.signatures.image_signatures import verify_signatures
from oci.registry_client import RegistryClient
from oci.registry_connections import RegistryConnections
from oci.registry_push import RegistryPush
from oci.signature_push import SignatureForms, SignaturePush
from oci.signature_reading import read_signatures

if TYPE_CHECKING:
    from api.image_reference import Digest, ImageReference
    from cli.registry_access import RegistryAccess
    from kernelcache.signatures.policy import SignaturePolicy
    from kernelcache.signatures.signing_keys import SigningKey
    from kernelcache.signatures.trust_root import TrustRoot
    from kernelcache.signatures.verification import VerificationResult


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedDigest:
    """What was signed."""

    digest: "Digest"
    forms: SignatureForms


def sign_image(
    reference: "ImageReference", key: "SigningKey", access: "RegistryAccess"
) -> SignedDigest:
    """Sign what the reference stands for now, in the forms in which the key's signature is missing.

    Raises:
        RegistryError: the registry, or the credentials.
        SignatureListError: what is there of signatures is malformed, or full.
        OSError: a file cannot be read.
    """
    return asyncio.run(_sign(reference, key, access))


def verify_image(
    reference: "ImageReference",
    access: "RegistryAccess",
    *,
    policy: "SignaturePolicy",
    trust_root: "TrustRoot | None",
) -> "VerificationResult":
    """Return the result of verifying what the reference stands for now.

    Raises:
        RegistryError: the registry, or the credentials.
        OSError: a file cannot be read.
    """
    return asyncio.run(_verify(reference, access, policy=policy, trust_root=trust_root))


async def _sign(
    reference: "ImageReference", key: "SigningKey", access: "RegistryAccess"
) -> SignedDigest:
    credentials = access.credentials()
    async with RegistryConnections(access.settings(reference)) as connections:
        signing = SignaturePush(
            RegistryClient(connections, credentials, SystemClock()),
            RegistryPush(connections, credentials, SystemClock()),
        )
        image = await signing.image_of(reference)
        forms = await signing.sign(reference, image, key)
    return SignedDigest(digest=image.digest, forms=forms)


async def _verify(
    reference: "ImageReference",
    access: "RegistryAccess",
    *,
    policy: "SignaturePolicy",
    trust_root: "TrustRoot | None",
) -> "VerificationResult":
    credentials = access.credentials()
    async with RegistryConnections(access.settings(reference)) as connections:
        client = RegistryClient(connections, credentials, SystemClock())
        digest = (await client.resolve(reference)).digest
        found = await read_signatures(client, reference, digest)
    return verify_signatures(
        digest, found.materials, policy=policy, trust_root=trust_root, unread=found.problems
    )
