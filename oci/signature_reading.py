"""All signatures that a registry shows of an image, in both forms.

What is malformed, missing or too large is a problem of that signature, and the others still count: anybody who can
push to the repository can add one that is broken. A registry that fails, or refuses us, has not said what there is,
and so its error passes through.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec

from kernelcache.signatures.material import (
    BUNDLE_ARTIFACT_TYPE,
    MAX_SIGNATURES,
    SignatureBlob,
    SignatureMaterial,
    SignatureMaterialError,
    read_bundle_manifest,
    read_simple_signing_manifest,
)
from kernelcache.signatures.verification import SignatureFault, SignatureProblem
from oci.errors import ContentNotFound, ContentTooLarge, UnusableContent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from api.image_reference import Digest, ImageReference
    from oci.platforms import IndexEntry
    from oci.registry_client import RegistryClient

MAX_TOTAL_BYTES: Final = 8 << 20
"""Most bytes of all signatures of one image; several images are verified at once."""
_AT_A_TIME: Final = 8
_OTHER_TYPES: Final = frozenset(
    {
        "",
        "application/vnd.oci.empty.v1+json",
        "application/vnd.oci.image.config.v1+json",
    }
)
"""What go-containerregistry lists for a bundle, the type of its configuration: the manifest decides."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSignatures:
    """The signatures of an image; nothing about them is verified but the digests of their blobs."""

    materials: tuple[SignatureMaterial, ...]
    problems: tuple[SignatureProblem, ...]
    """Problems of signatures that could not be read, for `verify_signatures`."""


class _Manifest(msgspec.Struct, frozen=True, rename="camel"):
    artifact_type: str = ""


async def read_signatures(
    client: "RegistryClient", reference: "ImageReference", digest: "Digest"
) -> FoundSignatures:
    """Read the signatures of the manifest, or index, with this digest.

    Raises:
        RegistryError: the registry, not what is in it.
    """
    reading = _Reading(client, reference, digest)
    await reading.attempt_all((reading.read_simple_signing(), reading.read_bundles()))
    return FoundSignatures(materials=tuple(reading.materials), problems=tuple(reading.problems))


@final
class _Reading:
    def __init__(
        self, client: "RegistryClient", reference: "ImageReference", digest: "Digest"
    ) -> None:
        self._client = client
        self._reference = reference
        self._digest = digest
        self._size_bytes = 0
        self._number = 0
        self._slots = asyncio.Semaphore(_AT_A_TIME)
        self.materials: list[SignatureMaterial] = []
        self.problems: list[SignatureProblem] = []

    async def attempt_all(self, readings: "Iterable[Awaitable[None]]") -> None:
        """Read at the same time, and keep what is wrong with the content as problems."""
        try:
            async with asyncio.TaskGroup() as group:
                for reading in readings:
                    group.create_task(self._attempt(reading))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _attempt(self, reading: "Awaitable[None]") -> None:
        try:
            await reading
        except ContentTooLarge as error:
            self._problem(SignatureFault.TOO_LARGE, str(error))
        except (UnusableContent, ContentNotFound, SignatureMaterialError) as error:
            self._problem(SignatureFault.MALFORMED, str(error))

    async def read_simple_signing(self) -> None:
        found = await self._client.signature_manifest(self._reference, self._digest)
        if found is None:
            return
        blobs = read_simple_signing_manifest(found.content)
        await self.attempt_all(self._read_blob(blob) for blob in blobs)

    async def read_bundles(self) -> None:
        listed = await self._client.referrers(self._reference, self._digest)
        possible = [item for item in listed if _may_be_bundle(item)]
        if len(possible) > MAX_SIGNATURES:
            self._problem(
                SignatureFault.TOO_MANY,
                f"{len(possible)} manifests refer to it that may be signatures; at most"
                f" {MAX_SIGNATURES} are read: remove those that are not needed",
            )
        await self.attempt_all(self._read_bundle(item) for item in possible[:MAX_SIGNATURES])

    async def _read_bundle(self, entry: "IndexEntry") -> None:
        async with self._slots:
            manifest = await self._client.manifest(self._reference, entry.descriptor.digest)
        try:
            blob = read_bundle_manifest(manifest)
        except SignatureMaterialError:
            if _artifact_type(manifest) == BUNDLE_ARTIFACT_TYPE:
                raise
            return  # something else that refers to the image
        await self._read_blob(blob)

    async def _read_blob(self, blob: SignatureBlob) -> None:
        self._number += 1
        if self._number > MAX_SIGNATURES:
            raise SignatureMaterialError(
                f"{blob.digest} is not read: at most {MAX_SIGNATURES} signatures are; remove those"
                " that are not needed"
            )
        self._size_bytes += blob.size
        if self._size_bytes > MAX_TOTAL_BYTES:
            raise SignatureMaterialError(
                f"{blob.digest} is not read: the signatures of an image may have {MAX_TOTAL_BYTES}"
                " bytes together; remove those that are not needed"
            )
        async with self._slots:
            content = await self._client.small_blob(self._reference, blob.descriptor)
        self.materials.append(blob.material(content))

    def _problem(self, fault: SignatureFault, detail: str) -> None:
        self.problems.append(SignatureProblem(fault, detail))


def _may_be_bundle(entry: "IndexEntry") -> bool:
    return entry.artifact_type == BUNDLE_ARTIFACT_TYPE or entry.artifact_type in _OTHER_TYPES


def _artifact_type(manifest: bytes) -> str:
    try:
        return msgspec.json.decode(manifest, type=_Manifest).artifact_type
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SignatureMaterialError(
            f"a manifest that refers to it is malformed: {error}"
        ) from None
