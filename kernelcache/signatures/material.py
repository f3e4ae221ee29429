"""What a registry shows of an image's signatures, and the blobs that are to be read for it.

Two forms exist. The older is a manifest under a tag made of the digest, each of whose layers is a payload with
its signature as an annotation. The newer are sigstore bundles: manifests that refer to the image, each with one
layer. Every client that can push to the repository can write both; nothing here is trusted before it is verified.
"""

import re
from dataclasses import dataclass
from typing import Final, NoReturn, final

import msgspec

from api.image_reference import Digest, parse_digest
from api.text import truncate
from kernelcache.image_format import BlobDescriptor

MAX_SIGNATURES: Final = 64
"""Most signatures of one image, both forms together."""
MAX_SIGNATURE_BYTES: Final = 1 << 20
"""Most bytes of one signature with its certificate, log entry and payload; cosign's have a few KiB."""
MAX_SIGNATURE_MANIFEST_BYTES: Final = 4 << 20
"""The limit of registries for a manifest."""

BUNDLE_ARTIFACT_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
"""Bundle artifact type of the referrers to ask for, and of their layer."""
SIMPLE_SIGNING_TYPE: Final = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE_ANNOTATION: Final = "dev.cosignproject.cosign/signature"
_CERTIFICATE: Final = "dev.sigstore.cosign/certificate"
_LOG_BUNDLE: Final = "dev.sigstore.cosign/bundle"


class SignatureMaterialError(ValueError):
    """A manifest of signatures is unusable; the message says why."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleSigning:
    """A signature in the older form.

    The annotation with the authority's chain is not read: authorities come from the trust root only.
    """

    payload: bytes
    signature: str
    """Base64."""
    certificate: str = ""
    """PEM; empty where a key has signed."""
    log_bundle: str = ""
    """The transparency log's promise, JSON; may be empty."""

    @property
    def size_bytes(self) -> int:
        annotations = (self.signature, self.certificate, self.log_bundle)
        return len(self.payload) + sum(map(len, annotations))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SigstoreBundle:
    """A signature in the newer form: the bundle's JSON."""

    content: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.content)


SignatureMaterial = SimpleSigning | SigstoreBundle


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureBlob:
    """A blob to be read: a payload with what its layer says of it, or a bundle (`annotations` is None)."""

    digest: Digest
    size: int
    annotations: dict[str, str] | None

    @property
    def descriptor(self) -> BlobDescriptor:
        media_type = BUNDLE_ARTIFACT_TYPE if self.annotations is None else SIMPLE_SIGNING_TYPE
        return BlobDescriptor(media_type=media_type, digest=self.digest, size=self.size)

    @property
    def signature(self) -> str:
        """Return the signature in the older form, Base64; empty for a bundle."""
        return "" if self.annotations is None else self.annotations[SIGNATURE_ANNOTATION]

    def material(self, content: bytes) -> SignatureMaterial:
        """Return the signature; the reader has checked the content's digest."""
        if self.annotations is None:
            return SigstoreBundle(content=content)
        return SimpleSigning(
            payload=content,
            signature=self.signature,
            certificate=self.annotations.get(_CERTIFICATE, ""),
            log_bundle=self.annotations.get(_LOG_BUNDLE, ""),
        )


class _Layer(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str
    digest: str
    size: int
    annotations: dict[str, str] = {}


class _Manifest(msgspec.Struct, frozen=True):
    layers: list[_Layer]


_decoder: Final = msgspec.json.Decoder(_Manifest)


def read_simple_signing_manifest(manifest: bytes) -> tuple[SignatureBlob, ...]:
    """Return the payloads of a manifest with signatures in the older form; other layers are left out.

    Raises:
        SignatureMaterialError: it is no manifest, or it has too many or too large signatures.
    """
    blobs = tuple(
        _blob(layer, annotations=layer.annotations)
        for layer in _layers(manifest)
        if layer.media_type == SIMPLE_SIGNING_TYPE and SIGNATURE_ANNOTATION in layer.annotations
    )
    if len(blobs) > MAX_SIGNATURES:
        raise SignatureMaterialError(
            f"the manifest has {len(blobs)} signatures; at most {MAX_SIGNATURES} are possible:"
            " remove those that are not needed"
        )
    return blobs


def read_bundle_manifest(manifest: bytes) -> SignatureBlob:
    """Return the bundle of a manifest of type `BUNDLE_ARTIFACT_TYPE` that refers to an image.

    Raises:
        SignatureMaterialError: it is no manifest with one bundle, or that is too large.
    """
    layers = _layers(manifest)
    if len(layers) != 1 or layers[0].media_type != BUNDLE_ARTIFACT_TYPE:
        _fail(f"it has {len(layers)} layers; one of type {BUNDLE_ARTIFACT_TYPE} is needed")
    return _blob(layers[0], annotations=None)


def _layers(manifest: bytes) -> list[_Layer]:
    if len(manifest) > MAX_SIGNATURE_MANIFEST_BYTES:
        _fail(f"more than {MAX_SIGNATURE_MANIFEST_BYTES} bytes")
    try:
        return _decoder.decode(manifest).layers
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        _fail(str(error))


def _blob(layer: _Layer, *, annotations: dict[str, str] | None) -> SignatureBlob:
    digest = parse_digest(layer.digest)
    if digest is None:
        _fail(f'the layer\'s digest "{layer.digest}" is no SHA-256 digest')
    if not 0 <= layer.size <= MAX_SIGNATURE_BYTES:
        raise SignatureMaterialError(
            f"the signature in {digest} has {layer.size} bytes; at most {MAX_SIGNATURE_BYTES} are possible"
        )
    return SignatureBlob(digest=digest, size=layer.size, annotations=annotations)


def _fail(cause: str) -> NoReturn:
    readable = re.sub(r"[^ -~]", "?", cause)
    raise SignatureMaterialError(f"the manifest of signatures cannot be read: {truncate(readable)}")
