"""Signing an image in a registry: both forms are written, each beside what is there.

The manifest of the older form, and the list of referrers of registries without the API, are read, grown and written
back; the distribution protocol has no way to do so only if nobody else has written meanwhile. So each is read once
more: where our entry is missing, another client has overwritten it, and it is done again. Of two clients that sign
the same image at the same moment one can still lose its entry after that; it is to sign again.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, final

from api.image_reference import ImageReference
from kernelcache.image_format import OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, BlobDescriptor
from kernelcache.signatures import image_signing
from kernelcache.signatures.image_signatures import verify_signatures
from kernelcache.signatures.material import (
    BUNDLE_ARTIFACT_TYPE,
    SIMPLE_SIGNING_TYPE,
    SignatureMaterialError,
    SigstoreBundle,
    SimpleSigning,
    read_simple_signing_manifest,
)
from kernelcache.signatures.policy import SignaturePolicy
from kernelcache.signatures.verification import SignatureVerified
from oci.blob_source import BlobSource
from oci.errors import UnusableContent
from oci.registry_client import referrers_tag, signature_tag, with_tag
from oci.signature_reading import FoundSignatures, read_signatures

if TYPE_CHECKING:
    from kernelcache.signatures.material import SignatureMaterial
    from kernelcache.signatures.signing_keys import SigningKey
    from oci.registry_client import RegistryClient
    from oci.registry_push import RegistryPush

_ATTEMPTS: Final = 5


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureForms:
    """Forms of which a signature was missing, and is there now."""

    has_added_payload: bool
    has_added_bundle: bool


@final
class SignaturePush:
    """Signs with one set of credentials. Raises errors of `oci.errors`; cancellation passes through."""

    def __init__(self, client: "RegistryClient", push: "RegistryPush") -> None:
        self._client = client
        self._push = push

    async def image_of(self, reference: ImageReference) -> BlobDescriptor:
        """Return the manifest, or index, that is to be signed; its content is that of its digest."""
        found = await self._client.resolve(reference)
        content = await self._client.manifest(reference, found.digest)
        return BlobDescriptor(media_type=found.media_type, digest=found.digest, size=len(content))

    async def sign(
        self, reference: ImageReference, image: BlobDescriptor, key: "SigningKey"
    ) -> SignatureForms:
        """Add the key's signature in each form in which it is missing; idempotent.

        Raises:
            SignatureListError: a present list of signatures is malformed, or full.
        """
        current = await read_signatures(self._client, reference, image.digest)
        forms = SignatureForms(
            has_added_payload=not _has_signed(key, image, current, form=SimpleSigning),
            has_added_bundle=not _has_signed(key, image, current, form=SigstoreBundle),
        )
        if forms.has_added_payload:
            await self._add_payload(reference, image, key)
        if forms.has_added_bundle:
            await self._add_bundle(reference, image, key)
        return forms

    async def _add_payload(
        self, reference: ImageReference, image: BlobDescriptor, key: "SigningKey"
    ) -> None:
        signed = image_signing.sign_payload(key, reference, image.digest)
        payload = BlobSource.of(SIMPLE_SIGNING_TYPE, signed.payload)
        tagged = with_tag(reference, signature_tag(image.digest))
        for _ in range(_ATTEMPTS):
            present = await self._client.signature_manifest(reference, image.digest)
            layers = image_signing.payload_layers(
                present and present.content, payload.descriptor, signed.signature
            )
            config = BlobSource.of(OCI_CONFIG, image_signing.payloads_config(layers))
            manifest = image_signing.payloads_manifest(config.descriptor, layers)
            await self._push.push(tagged, [payload, config], BlobSource.of(OCI_MANIFEST, manifest))
            stored = await self._client.signature_manifest(reference, image.digest)
            if stored is not None and signed.signature in _signatures_in(stored.content):
                return
        _overwritten(tagged)

    async def _add_bundle(
        self, reference: ImageReference, image: BlobDescriptor, key: "SigningKey"
    ) -> None:
        bundle = BlobSource.of(BUNDLE_ARTIFACT_TYPE, image_signing.sign_bundle(key, image.digest))
        config = BlobSource.of(image_signing.EMPTY_CONFIG_TYPE, image_signing.EMPTY_CONFIG)
        manifest = BlobSource.of(
            OCI_MANIFEST, image_signing.bundle_manifest(image, config.descriptor, bundle.descriptor)
        )
        untagged = ImageReference(registry=reference.registry, repository=reference.repository)
        await self._push.push(untagged, [config, bundle], manifest)
        if not await self._client.has_referrers_api(reference, image.digest):
            await self._list(reference, image, manifest.descriptor)

    async def _list(
        self, reference: ImageReference, image: BlobDescriptor, manifest: BlobDescriptor
    ) -> None:
        tagged = with_tag(reference, referrers_tag(image.digest))
        for _ in range(_ATTEMPTS):
            present = await self._client.referrers_list(reference, image.digest)
            grown = image_signing.grown_referrers(present and present.content, manifest)
            await self._push.push(tagged, [], BlobSource.of(OCI_INDEX, grown))
            listed = await self._client.referrers(reference, image.digest)
            if any(item.descriptor.digest == manifest.digest for item in listed):
                return
        _overwritten(tagged)


def _has_signed(
    key: "SigningKey",
    image: BlobDescriptor,
    current: FoundSignatures,
    *,
    form: "type[SignatureMaterial]",
) -> bool:
    policy = SignaturePolicy(keys=(key.public,), identities=frozenset())
    materials = [material for material in current.materials if isinstance(material, form)]
    result = verify_signatures(image.digest, materials, policy=policy, trust_root=None)
    return isinstance(result, SignatureVerified)


def _signatures_in(manifest: bytes) -> set[str]:
    try:
        blobs = read_simple_signing_manifest(manifest)
    except SignatureMaterialError:
        return set()
    return {blob.signature for blob in blobs}


def _overwritten(tagged: ImageReference) -> NoReturn:
    raise UnusableContent(
        str(tagged),
        "another client writes it at the same time, and our signature is not in it",
        "sign again when the other is done",
    )
