"""Writing to registries: blobs that are not there yet, then the manifest that names them.

github.com/opencontainers/distribution-spec, spec.md, "Push". A blob goes up in one PUT; one that breaks off is
begun again, since many registries keep nothing of it. The manifest comes last, so that a tag never names what is
not there.
"""

from typing import TYPE_CHECKING, final

from api.image_reference import Digest, ImageReference, parse_digest
from kernelcache.image_format import BlobDescriptor
from oci.errors import DigestMismatch, RegistryError
from oci.registry_authorization import AccessScope
from oci.registry_calls import RegistryCalls
from oci.registry_connections import RegistryConnections, RegistryRequest, follow_location

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiohttp

    from api.clock import Clock
    from oci.blob_source import BlobSource
    from oci.docker_config import DockerConfig


@final
class RegistryPush:
    """Writes with one set of credentials. Raises errors of `oci.errors`; cancellation passes through."""

    def __init__(
        self, connections: RegistryConnections, credentials: "DockerConfig", clock: "Clock"
    ) -> None:
        self._connections = connections
        self._calls = RegistryCalls(connections, credentials, clock)

    async def push(
        self, reference: ImageReference, blobs: "Sequence[BlobSource]", manifest: "BlobSource"
    ) -> BlobDescriptor:
        """Push an image, or any manifest with its blobs, under the reference; idempotent.

        Raises:
            OSError: the file of a blob cannot be read.
        """
        for blob in blobs:
            await self._push_blob(reference, blob)
        return await self._push_manifest(reference, manifest)

    async def _push_blob(self, reference: ImageReference, blob: "BlobSource") -> None:
        repetition = self._calls.repetition()
        while True:
            try:
                return await self._upload(reference, blob)
            except RegistryError as error:
                await repetition.wait_or_raise(error)

    async def _is_there(self, reference: ImageReference, blob: "BlobSource") -> bool:
        name = str(reference.with_digest(blob.descriptor.digest))
        base = self._connections.registry_url(reference.registry)
        url = base.joinpath(reference.repository, f"blobs/{blob.descriptor.digest}")
        request = RegistryRequest(name=name, method="HEAD", url=url)
        async with self._calls.deadline(name):
            response = await self._calls.send_once(request, _push(reference), accepted=(200, 404))
        response.release()
        return response.status == 200 and response.content_length == blob.descriptor.size

    async def _upload(self, reference: ImageReference, blob: "BlobSource") -> None:
        if await self._is_there(reference, blob):
            return
        digest = blob.descriptor.digest
        name = str(reference.with_digest(digest))
        base = self._connections.registry_url(reference.registry)
        # A registry that finds the blob in another repository of ours by its digest answers 201, others 202.
        start = base.joinpath(reference.repository, "blobs/uploads/").with_query(mount=digest)
        request = RegistryRequest(
            name=name, method="POST", url=start, headers={"Content-Length": "0"}
        )
        async with self._calls.deadline(name):
            response = await self._calls.send_once(request, _push(reference), accepted=(201, 202))
        response.release()
        if response.status == 201:
            return
        location = follow_location(name, response.url, response.headers.get("Location", ""))
        put = RegistryRequest(
            name=name,
            method="PUT",
            url=location.update_query(digest=digest),
            headers={
                "Content-Length": str(blob.descriptor.size),
                "Content-Type": "application/octet-stream",
            },
            body=blob.stream,
        )
        async with self._calls.transfer_deadline(name):
            response = await self._calls.send_once(put, _push(reference), accepted=(201, 204))
        response.release()
        _check_stored(name, response, digest)

    async def _push_manifest(
        self, reference: ImageReference, manifest: "BlobSource"
    ) -> BlobDescriptor:
        descriptor = manifest.descriptor
        if not isinstance(manifest.content, bytes):
            raise TypeError("a manifest is in memory")
        named = reference if reference.tag else reference.with_digest(descriptor.digest)
        base = self._connections.registry_url(reference.registry)
        tag_or_digest = reference.tag or descriptor.digest
        request = RegistryRequest(
            name=str(named),
            method="PUT",
            url=base.joinpath(reference.repository, f"manifests/{tag_or_digest}"),
            headers={"Content-Type": descriptor.media_type},
            body=manifest.content,
        )
        async with self._calls.deadline(str(named)):
            response = await self._calls.send(request, _push(reference), accepted=(201,))
        response.release()
        _check_stored(str(named), response, descriptor.digest)
        return descriptor


def _push(reference: ImageReference) -> AccessScope:
    return AccessScope(reference=reference, actions="pull,push")


def _check_stored(name: str, response: "aiohttp.ClientResponse", digest: Digest) -> None:
    stored = parse_digest(response.headers.get("Docker-Content-Digest", ""))
    if stored is not None and stored != digest:
        raise DigestMismatch(
            name,
            f"the registry has stored {stored}",
            "look into what is between here and the registry",
        )
