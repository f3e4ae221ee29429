"""The pull of a cache's layer from its registry: manifest by digest, configuration, and the layer's stream.

Everything is named by the proven digest; what the registry sends is checked against it while it is read.
"""

import contextlib
import platform
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from agent.kernelcache.content.errors import PullSecretError
from api.image_reference import Digest, parse_image_reference
from kernelcache.image_format import CacheImage, config_descriptor, read_cache_image
from kube.pull_secrets import PullSecretUnusableError
from oci.docker_config import DockerConfig, parse_docker_configs
from oci.errors import RegistryTimedOut
from oci.platforms import ImagePlatform
from oci.registry_client import RegistryClient
from telemetry.agent_metrics import CACHE_PULL_DURATION, CACHE_PULLED_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from api.clock import Clock
    from api.image_reference import ImageReference
    from api.kinds.gkmcache import GKMCache
    from kube.pull_secrets import PullSecretReader
    from oci.registry_connections import RegistryConnections

MIN_BYTES: Final = 2**20
MIN_BYTES_WITHIN_S: Final = 60.0
"""A registry that sends less in this time gives its slot to other caches; the time of our own disk does not count."""
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@final
@dataclass(slots=True, kw_only=True)
class PullProgress:
    """Bytes of a layer that have come; for answers to kubelet, since a status must not move with them."""

    received: int = 0
    total: int = 0


@final
class OpenedLayer:
    """A layer that can be read once for each call."""

    def __init__(
        self,
        client: RegistryClient,
        reference: "ImageReference",
        image: CacheImage,
        *,
        progress: PullProgress,
        clock: "Clock",
    ) -> None:
        self.image: Final = image
        self._client = client
        self._reference = reference
        self._progress = progress
        self._clock = clock

    def __call__(self) -> "AbstractAsyncContextManager[AsyncIterator[bytes]]":
        """Open the stream, which fails at its end where digest or length are wrong."""
        return aclosing(self._chunks())

    async def _chunks(self) -> "AsyncGenerator[bytes, None]":
        began = self._clock.monotonic()
        self._progress.received, self._progress.total = 0, self.image.layer.size
        async with aclosing(self._client.blob(self._reference, self.image.layer)) as blob:
            waited_s, since = 0.0, 0
            asked_at = self._clock.monotonic()
            async for chunk in blob:
                waited_s += self._clock.monotonic() - asked_at
                self._progress.received += len(chunk)
                CACHE_PULLED_BYTES.inc(len(chunk))
                since += len(chunk)
                if since >= MIN_BYTES:
                    waited_s, since = 0.0, 0
                elif waited_s > MIN_BYTES_WITHIN_S:
                    raise RegistryTimedOut(
                        str(self._reference),
                        f"its registry sent {since} bytes in {waited_s:.0f} s, and gives way to other caches",
                        "check the network to it",
                    )
                yield chunk
                asked_at = self._clock.monotonic()
        CACHE_PULL_DURATION.observe(self._clock.monotonic() - began)


@final
class LayerPull:
    """Opens the layers of caches, over connections that are shared."""

    def __init__(
        self, connections: "RegistryConnections", secrets: "CacheCredentials", clock: "Clock"
    ) -> None:
        """The connections are opened by `open_connections`."""
        self._connections = connections
        self._secrets = secrets
        self._clock = clock

    @contextlib.asynccontextmanager
    async def open_connections(self) -> "AsyncIterator[None]":
        """Keep the pool of connections open in the context.

        Raises:
            OSError: the file of authorities is missing or unusable.
        """
        async with self._connections:
            yield

    async def open(self, cache: "GKMCache", digest: Digest, progress: PullProgress) -> OpenedLayer:
        """Read what the image of this digest is.

        Raises:
            RegistryError: the registry's answer, or its absence.
            CacheImageError: the image is no kernel cache.
            PullSecretError: the cache's credentials cannot be read.
            ImageReferenceError: spec.image is none.
        """
        reference = parse_image_reference(cache.spec.image)
        client = RegistryClient(self._connections, await self._secrets.of(cache), self._clock)
        manifest = await client.image_manifest(reference, digest, node_platform())
        config = await client.small_blob(reference, config_descriptor(manifest.content))
        image = read_cache_image(manifest.content, config)
        return OpenedLayer(client, reference, image, progress=progress, clock=self._clock)


def node_platform() -> ImagePlatform:
    """Return what images of this node are for."""
    machine = platform.machine()
    return ImagePlatform(architecture=_ARCHITECTURES.get(machine, machine))


@final
class CacheCredentials:
    """Reads the Secrets that caches name."""

    def __init__(self, secrets: "PullSecretReader", *, allowed: frozenset[str]) -> None:
        """`allowed` are the Secrets of our namespace that ClusterGKMCaches may name."""
        self._secrets = secrets
        self._allowed = allowed

    async def of(self, cache: "GKMCache") -> DockerConfig:
        """Return the credentials of a cache; without pull secrets all access is anonymous.

        Raises:
            PullSecretError: a Secret cannot be read.
            UnusableCredentials: a Secret has no usable content.
        """
        namespace = cache.metadata.namespace
        names = [secret.name for secret in cache.spec.pull_secrets or ()]
        refused = [name for name in names if not namespace and name not in self._allowed]
        if refused:
            raise PullSecretError(
                f"pull secret {refused[0]} may not be used: the setting kernel_caches.pull_secrets"
                " does not list it"
            )
        try:
            return parse_docker_configs(await self._secrets.read(namespace, names))
        except PullSecretUnusableError as error:
            raise PullSecretError(str(error)) from error
