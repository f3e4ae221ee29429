"""Reading from registries: tags, manifests, indices, blobs, referrers.

github.com/opencontainers/distribution-spec, spec.md. What a digest names is checked while it is read; nothing here
knows what an image is for. A client is made for each set of credentials and is cheap; the connections are shared.
"""

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import aiohttp
import yarl

from api.image_reference import Digest, ImageReference, parse_digest
from kernelcache.image_format import (
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    MAX_MANIFEST_BYTES,
    OCI_INDEX,
    OCI_MANIFEST,
    BlobDescriptor,
)
from oci import errors
from oci.platforms import ImagePlatform, IndexEntry, choose_platform, read_index
from oci.registry_authorization import AccessScope
from oci.registry_calls import RegistryCalls
from oci.registry_connections import RegistryConnections, RegistryRequest, read_bounded, unreachable
from oci.registry_settings import MAX_REFERRERS, MAX_SMALL_BLOB_BYTES
from oci.verified_stream import VerifiedStream, digest_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from api.clock import Clock
    from oci.docker_config import DockerConfig

_MANIFEST_TYPES: Final = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX)
_ACCEPT: Final = {"Accept": ", ".join(_MANIFEST_TYPES)}
_NO_REFERRERS_API: Final = frozenset({400, 404, 405})
"""404 is the specification's word for it; older registries have others."""
_CORRECT: Final = "check that this is an OCI registry"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedManifest:
    """A manifest whose content is that of its digest."""

    descriptor: BlobDescriptor
    content: bytes


@final
class RegistryClient:
    """Reads with one set of credentials. Raises errors of `oci.errors`; cancellation passes through."""

    def __init__(
        self, connections: RegistryConnections, credentials: "DockerConfig", clock: "Clock"
    ) -> None:
        self._connections = connections
        self._calls = RegistryCalls(connections, credentials, clock)
        self._clock = clock

    async def resolve(self, reference: ImageReference) -> BlobDescriptor:
        """Return the manifest, or index, that a reference stands for now.

        A registry that answers HEAD is believed: `manifest` checks the content when it is fetched. Where HEAD
        is refused or says no digest, the manifest is read and hashed.
        """
        name = str(reference)
        async with self._calls.deadline(name):
            found = await self._head(name, reference)
            if found is None:
                found = (await self._fetch(name, reference)).descriptor
        return found

    async def manifest(self, reference: ImageReference, digest: Digest) -> bytes:
        """Return the content of a manifest or index by its digest."""
        named = reference.with_digest(digest)
        async with self._calls.deadline(str(named)):
            return (await self._fetch(str(named), named)).content

    async def image_manifest(
        self, reference: ImageReference, digest: Digest, platform: ImagePlatform
    ) -> FetchedManifest:
        """Return the manifest of an image: the one of this digest, or that of its index for the platform."""
        named = reference.with_digest(digest)
        async with self._calls.deadline(str(named)):
            found = await self._fetch(str(named), named)
            entries = read_index(str(named), found.descriptor.media_type, found.content)
            if entries is None:
                return found
            chosen = choose_platform(str(named), entries, platform)
            inner = reference.with_digest(chosen.digest)
            found = await self._fetch(str(inner), inner)
            if read_index(str(inner), found.descriptor.media_type, found.content) is not None:
                raise errors.UnusableContent(
                    str(named), "its index names another index", "push the image without it"
                )
            return found

    async def small_blob(self, reference: ImageReference, descriptor: BlobDescriptor) -> bytes:
        """Return a blob as a whole, such as an image's configuration."""
        name = str(reference.with_digest(descriptor.digest))
        if descriptor.size > MAX_SMALL_BLOB_BYTES:
            raise errors.ContentTooLarge(
                name,
                f"it has {descriptor.size} bytes; at most {MAX_SMALL_BLOB_BYTES} are read",
                "check that this is the image meant",
            )
        async with self._calls.deadline(name):
            return b"".join([chunk async for chunk in self.blob(reference, descriptor)])

    async def blob(
        self, reference: ImageReference, descriptor: BlobDescriptor
    ) -> "AsyncGenerator[bytes, None]":
        """Iterate over a blob, resuming where an answer breaks off.

        The bytes are those of the descriptor only when the iteration ends without an error: its last step
        compares the digest. Never more bytes are yielded than the descriptor says.
        """
        stream = VerifiedStream(str(reference.with_digest(descriptor.digest)), descriptor)
        repetition = self._calls.repetition()
        ends_at = self._clock.monotonic() + self._connections.settings.transfer_timeout_s
        while not stream.is_complete:  # noqa: PLR1702  # a part ends before its last byte is acted on
            before = stream.received
            try:
                async with aclosing(self._part(reference, stream)) as part:
                    async for chunk in part:
                        yield chunk
                        self._check_time(stream.name, ends_at)
            except (errors.RegistryUnreachable, errors.RegistryRefusal) as error:
                self._check_time(stream.name, ends_at)
                if stream.received > before:
                    repetition.progress()
                await repetition.wait_or_raise(error)
        stream.check_digest()

    async def referrers(self, reference: ImageReference, digest: Digest) -> tuple[IndexEntry, ...]:
        """Return what refers to a manifest: by the API, or where there is none by the tag `sha256-<hex>`."""
        named = reference.with_digest(digest)
        name = f"referrers of {named}"
        async with self._calls.deadline(name):
            try:
                return await self._listed_referrers(name, reference, digest)
            except (errors.ContentNotFound, errors.UnexpectedAnswer) as error:
                if error.status not in _NO_REFERRERS_API:
                    raise
                found = await self._tagged(reference, referrers_tag(digest))
        if found is None:
            return ()
        return _bounded(name, read_index(name, found.descriptor.media_type, found.content) or ())

    async def has_referrers_api(self, reference: ImageReference, digest: Digest) -> bool:
        """Say whether the registry itself lists what refers to a manifest."""
        name = f"referrers of {reference.with_digest(digest)}"
        async with self._calls.deadline(name):
            try:
                await self._listed_referrers(name, reference, digest)
            except (errors.ContentNotFound, errors.UnexpectedAnswer) as error:
                if error.status not in _NO_REFERRERS_API:
                    raise
                return False
        return True

    async def referrers_list(
        self, reference: ImageReference, digest: Digest
    ) -> FetchedManifest | None:
        """Return the list that clients keep under the tag `sha256-<hex>`, if there is one."""
        tag = referrers_tag(digest)
        async with self._calls.deadline(str(with_tag(reference, tag))):
            return await self._tagged(reference, tag)

    async def signature_manifest(
        self, reference: ImageReference, digest: Digest
    ) -> FetchedManifest | None:
        """Return the manifest of cosign's older signatures, of the tag `sha256-<hex>.sig`, if there is one."""
        tag = signature_tag(digest)
        async with self._calls.deadline(str(with_tag(reference, tag))):
            return await self._tagged(reference, tag)

    async def _tagged(self, reference: ImageReference, tag: str) -> FetchedManifest | None:
        tagged = with_tag(reference, tag)
        try:
            return await self._fetch(str(tagged), tagged)
        except errors.ContentNotFound:
            return None

    async def _head(self, name: str, reference: ImageReference) -> BlobDescriptor | None:
        request = RegistryRequest(
            name=name, method="HEAD", url=self._manifest_url(reference), headers=_ACCEPT
        )
        try:
            response = await self._calls.send(request, _pull(reference))
        except errors.UnexpectedAnswer:  # 405, or a proxy that knows no HEAD
            return None
        response.release()
        digest = parse_digest(response.headers.get("Docker-Content-Digest", ""))
        length = response.content_length
        if digest is None or not length or response.content_type not in _MANIFEST_TYPES:
            return None
        _check_named(name, reference, digest)
        return BlobDescriptor(media_type=response.content_type, digest=digest, size=length)

    async def _fetch(self, name: str, reference: ImageReference) -> FetchedManifest:
        """Return the manifest of a tag or a digest, hashed."""
        request = RegistryRequest(
            name=name, method="GET", url=self._manifest_url(reference), headers=_ACCEPT
        )
        response, content = await self._read(request, reference)
        digest = Digest(digest_of(content))
        _check_named(name, reference, digest)
        announced = parse_digest(response.headers.get("Docker-Content-Digest", ""))
        if announced is not None and announced != digest:
            raise errors.DigestMismatch(
                name, f"its content is {digest}, announced as {announced}", _CORRECT
            )
        if response.content_type not in _MANIFEST_TYPES:
            raise errors.UnusableContent(
                name,
                f"its type is {response.content_type}, which is no image's",
                "push the image again with a present tool",
            )
        descriptor = BlobDescriptor(
            media_type=response.content_type, digest=digest, size=len(content)
        )
        return FetchedManifest(descriptor=descriptor, content=content)

    async def _read(
        self, request: RegistryRequest, reference: ImageReference
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        """Return the head and the body of an answer, repeating the request while that helps."""
        repetition = self._calls.repetition()
        while True:
            try:
                async with await self._calls.send_once(request, _pull(reference)) as response:
                    return response, await read_bounded(response, request.name, MAX_MANIFEST_BYTES)
            except errors.RegistryError as error:
                await repetition.wait_or_raise(error)

    async def _part(
        self, reference: ImageReference, stream: VerifiedStream
    ) -> "AsyncGenerator[bytes, None]":
        """Yield what one answer brings of the rest."""
        url = self._url(reference, f"blobs/{stream.descriptor.digest}")
        # Both ends: go-containerregistry refuses a range without the last.
        remaining = f"bytes={stream.received}-{stream.descriptor.size - 1}"
        headers = {"Range": remaining} if stream.received else {}
        request = RegistryRequest(name=stream.name, method="GET", url=url, headers=headers)
        async with self._calls.deadline(stream.name):
            response = await self._calls.send_once(request, _pull(reference), accepted=(200, 206))
        try:
            skipped = _start_of(response, stream)
            async for chunk in response.content.iter_any():
                new = chunk[skipped:]
                skipped -= len(chunk) - len(new)
                if new:
                    stream.feed(new)
                    yield new
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(stream.name, response.url, error) from error
        finally:
            # Of an answer that was read to its end the connection is in the pool again already.
            response.close()
        if not stream.is_complete:
            raise errors.RegistryUnreachable(
                stream.name,
                f"its content ends after {stream.received} of {stream.descriptor.size} bytes",
                "look into what is between here and the registry",
            )

    async def _listed_referrers(
        self, name: str, reference: ImageReference, digest: Digest
    ) -> tuple[IndexEntry, ...]:
        url = self._url(reference, f"referrers/{digest}")
        found: tuple[IndexEntry, ...] = ()
        while True:
            request = RegistryRequest(
                name=name, method="GET", url=url, headers={"Accept": OCI_INDEX}
            )
            response, content = await self._read(request, reference)
            entries = read_index(name, response.content_type, content)
            if entries is None:
                raise errors.UnexpectedAnswer(
                    name, "the list of referrers is no index", _CORRECT, status=response.status
                )
            found = _bounded(name, found + entries)
            following = response.links.get("next")
            if following is None or not entries:
                return found
            url = self._same_registry(name, reference, url.join(yarl.URL(following["url"])))

    def _same_registry(self, name: str, reference: ImageReference, url: yarl.URL) -> yarl.URL:
        """Return the address of a further page, which another host must not name: it sees our credentials."""
        ours = self._connections.registry_url(reference.registry)
        if url.origin() != ours.origin():
            raise errors.AddressRefused(
                name, f"its next page is on another host, {url.host}", _CORRECT
            )
        return url

    def _check_time(self, name: str, ends_at: float) -> None:
        if self._clock.monotonic() >= ends_at:
            seconds = self._connections.settings.transfer_timeout_s
            raise errors.RegistryTimedOut(
                name, f"it was not read within {seconds:g} s", "check registry and network"
            )

    def _manifest_url(self, reference: ImageReference) -> yarl.URL:
        return self._url(reference, f"manifests/{reference.tag_or_digest}")

    def _url(self, reference: ImageReference, path: str) -> yarl.URL:
        base = self._connections.registry_url(reference.registry)
        return base.joinpath(reference.repository, path)


def referrers_tag(digest: Digest) -> str:
    """Return the tag under which clients keep the list of referrers of registries without the API."""
    return digest.replace(":", "-")


def signature_tag(digest: Digest) -> str:
    """Return the tag under which cosign up to version 2 keeps the signatures of an image."""
    return f"{digest.replace(':', '-')}.sig"


def with_tag(reference: ImageReference, tag: str) -> ImageReference:
    """Return the reference of another tag of the same repository."""
    return ImageReference(registry=reference.registry, repository=reference.repository, tag=tag)


def _pull(reference: ImageReference) -> AccessScope:
    return AccessScope(reference=reference, actions="pull")


def _check_named(name: str, reference: ImageReference, digest: Digest) -> None:
    if reference.digest is not None and reference.digest != digest:
        raise errors.DigestMismatch(
            name,
            f"the registry gives {digest} for it",
            "push the image again, or look into what is between here and the registry",
        )


def _bounded(name: str, entries: tuple[IndexEntry, ...]) -> tuple[IndexEntry, ...]:
    if len(entries) > MAX_REFERRERS:
        raise errors.UnusableContent(
            name,
            f"there are more than {MAX_REFERRERS}",
            "remove signatures and attestations that are not needed",
        )
    return entries


def _start_of(response: aiohttp.ClientResponse, stream: VerifiedStream) -> int:
    """Return how many bytes of the answer have come before, and check what it announces."""
    if response.status == 200:
        length = response.content_length
        stream.check_remaining(None if length is None else length - stream.received)
        return stream.received
    start = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    if start != str(stream.received):
        raise errors.UnexpectedAnswer(
            stream.name,
            f"asked for the bytes from {stream.received} on, the registry sends those from {start or '?'}",
            _CORRECT,
            status=response.status,
        )
    stream.check_remaining(response.content_length)
    return 0
