"""Images of caches as their registries have them: the port of admission.

Each question is answered within the time of the settings, since the API server waits three seconds for a
webhook; what needs longer is refused so that the user's client tries again. The answer is either whole or a fault:
nothing half-known is admitted.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NoReturn, final
from weakref import WeakValueDictionary

import structlog

from admission.caches.images import (
    ImageFault,
    ImageQuestion,
    ResolvedImage,
    VerificationOutcome,
    decide,
)
from api.version import VERSION
from kernelcache.admitted_image import AdmittedImage
from kernelcache.image_format import CacheImageError, config_descriptor, facts_of, read_cache_image
from kernelcache.signatures.image_signatures import verify_signatures
from kernelcache.signatures.trust_root import TrustRoot, TrustRootError, read_trust_root
from kube.pull_secrets import PullSecretReader, PullSecretUnusableError
from oci.docker_config import parse_docker_configs
from oci.errors import PlatformMissing, RegistryError, RegistryTimedOut, RegistryUnreachable
from oci.platforms import ImagePlatform
from oci.registry_client import FetchedManifest, RegistryClient
from oci.registry_connections import RegistryConnections
from oci.registry_settings import RegistrySettings
from oci.signature_reading import read_signatures
from telemetry.kernel_cache_metrics import RESOLUTION_DURATION, VERIFICATIONS

if TYPE_CHECKING:
    from pathlib import Path

    from api.clock import Clock
    from api.image_reference import Digest, ImageReference
    from api.kinds.gkmcache import CacheImageFacts
    from kernelcache.signatures.verification import VerificationResult
    from kube.client import KubeClient
    from oci.signature_reading import FoundSignatures
    from pool.catalog import Catalog
    from server.kernel_cache_settings import KernelCacheSettings

POLL_EVERY_S: Final = 10.0
TIMEOUT_S: Final = 2.0
"""The API server waits three seconds for the webhook (`manifests.install.webhooks.TIMEOUT_S`)."""
AT_A_TIME: Final = 16
"""Questions that are asked at once; more wait, within their time."""
OF_A_NAMESPACE: Final = 4
"""Most questions at once of one namespace, and of ClusterGKMCaches: a registry that hangs keeps no
others out."""
_PLATFORMS: Final = tuple(ImagePlatform(architecture=item) for item in ("amd64", "arm64"))
"""Platforms of an index: nodes take the image of their own, and the facts are those of the first that there is."""
_UNKNOWN: Final = "unknown namespaces"
"""No namespace has such a name."""
_FAILED: Final = "failed"

_log = structlog.get_logger()


@final
class RegistryImages:
    """Asks registries while `run` does."""

    def __init__(
        self,
        settings: "KernelCacheSettings",
        client: "KubeClient",
        clock: "Clock",
        *,
        namespace: str,
        catalog: "Catalog",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Take the server's own namespace, the catalog of all, and the time to resolve and verify an image."""
        registries = settings.registries
        self._timeout_s = timeout_s
        self._settings = RegistrySettings(
            user_agent=f"gpu-control-plane/{VERSION}",
            ca_file=registries.ca_file,
            plain_http_hosts=frozenset(registries.plain_http),
            private_hosts=frozenset(registries.private),
            connect_timeout_s=timeout_s,
            read_timeout_s=timeout_s,
            # A little longer than the whole, which then has the say; the user's client repeats.
            operation_timeout_s=2 * timeout_s,
            attempts=1,
        )
        self._secrets = PullSecretReader(client, namespace)
        self._trust_root = TrustRootFile(settings.verification.trust_root_file, clock)
        self._clock = clock
        self._connections: RegistryConnections | None = None
        self._catalog = catalog
        self._slots = asyncio.Semaphore(AT_A_TIME)
        # Namespace -> its slots, while a question has or awaits one.
        self._slots_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        for outcome in (*(item.value for item in VerificationOutcome), _FAILED):
            VERIFICATIONS.labels(outcome)

    async def run(self) -> NoReturn:
        """Keep connections to registries until cancelled.

        Raises:
            OSError: the file of authorities cannot be used.
        """
        await self._trust_root.current()
        async with AsyncExitStack() as stack:
            connections = RegistryConnections(self._settings)
            try:
                self._connections = await stack.enter_async_context(connections)
            except OSError as error:
                file = str(self._settings.ca_file)
                _log.error("authorities of registries cannot be used", file=file, error=str(error))
                raise
            stack.callback(self._forget)
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

    def is_open(self) -> bool:
        """Return whether registries can be asked."""
        return self._connections is not None

    async def resolve(self, question: ImageQuestion) -> ResolvedImage | ImageFault:
        """Return what the registry says, or why nothing is known; counted and timed."""
        started = self._clock.monotonic()
        found = await self._within_time(question)
        outcome = _FAILED
        if isinstance(found, ResolvedImage):
            outcome = decide(question, found).outcome.value
        VERIFICATIONS.labels(outcome).inc()
        RESOLUTION_DURATION.labels(outcome).observe(self._clock.monotonic() - started)
        return found

    async def _within_time(self, question: ImageQuestion) -> ResolvedImage | ImageFault:
        name, registry = str(question.reference), question.reference.registry
        slots = self._slots_of.setdefault(
            self._owner_of_slots(question), asyncio.Semaphore(OF_A_NAMESPACE)
        )
        is_waiting = True
        try:
            async with asyncio.timeout(self._timeout_s), slots, self._slots:
                is_waiting = False
                return await self._ask(question)
        except TimeoutError:
            text = f"{name}: registry {registry} did not answer everything within {self._timeout_s:g} s"
            cure = "try again; if it stays so, look at the registry and the network to it"
            if is_waiting:
                text = f"{name}: {OF_A_NAMESPACE} images of the namespace, or {AT_A_TIME} of all, are being resolved"
                cure = "try again"
            return ImageFault(text=f"{text}: {cure}", is_transient=True)
        except RegistryError as error:
            # An error about a signature names the signature only.
            text = str(error) if name in str(error) else f"{name}: {error}"
            return ImageFault(text=text, is_transient=error.is_transient)
        except PullSecretUnusableError as error:
            return ImageFault(text=f"{name}: {error}", is_transient=error.is_transient)
        except CacheImageError as error:
            return ImageFault(text=f"{name}: {error}", is_transient=False)

    def _owner_of_slots(self, question: ImageQuestion) -> str:
        """Return the namespace; all that are not known share slots: they are new, or the review is forged."""
        namespace = question.cache.namespace
        is_known = not namespace or namespace in self._catalog.labels_by_namespace
        return namespace if is_known else _UNKNOWN

    async def _ask(self, question: ImageQuestion) -> ResolvedImage | ImageFault:
        if self._connections is None:
            text = f"{question.reference}: gpu-control-plane is starting; try again"
            return ImageFault(text=text, is_transient=True)
        # All of them are of one namespace.
        namespace = next((secret.namespace for secret in question.pull_secrets), "")
        names = [secret.name for secret in question.pull_secrets]
        credentials = parse_docker_configs(await self._secrets.read(namespace, names))
        client = RegistryClient(self._connections, credentials, self._clock)
        reference = question.reference
        digest = reference.digest or await self._digest(client, reference)
        facts, signatures = await _image_and_signatures(
            client, reference, digest, is_signed=bool(question.signers)
        )
        results: list[VerificationResult] = []
        if signatures is not None:
            results = await self._verify(question, digest, signatures)
        image = AdmittedImage(digest=digest, facts=facts)
        return ResolvedImage(image=image, results=tuple(results))

    async def _digest(self, client: RegistryClient, reference: "ImageReference") -> "Digest":
        try:
            return (await client.resolve(reference)).digest
        except RegistryTimedOut:
            raise
        except RegistryUnreachable:
            # The registry may have closed the connection that was kept from the question before.
            return (await client.resolve(reference)).digest

    async def _verify(
        self, question: ImageQuestion, digest: "Digest", signatures: "FoundSignatures"
    ) -> "list[VerificationResult]":
        trust_root = await self._trust_root.current()
        return [
            await asyncio.to_thread(
                verify_signatures,
                digest,
                signatures.materials,
                policy=signers.policy,
                trust_root=trust_root,
                unread=signatures.problems,
            )
            for signers in question.signers
        ]

    def _forget(self) -> None:
        self._connections = None


async def _image_and_signatures(
    client: RegistryClient, reference: "ImageReference", digest: "Digest", *, is_signed: bool
) -> "tuple[CacheImageFacts, FoundSignatures | None]":
    """Return what the image says, and its signatures where they matter, read at the same time."""
    if not is_signed:
        return await _facts(client, reference, digest), None
    try:
        async with asyncio.TaskGroup() as group:
            facts = group.create_task(_facts(client, reference, digest))
            signatures = group.create_task(read_signatures(client, reference, digest))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return facts.result(), signatures.result()


async def _facts(
    client: RegistryClient, reference: "ImageReference", digest: "Digest"
) -> "CacheImageFacts":
    manifest = await _manifest(client, reference, digest)
    config = await client.small_blob(reference, config_descriptor(manifest.content))
    return facts_of(read_cache_image(manifest.content, config))


async def _manifest(
    client: RegistryClient, reference: "ImageReference", digest: "Digest"
) -> FetchedManifest:
    for platform in _PLATFORMS[:-1]:
        try:
            return await client.image_manifest(reference, digest, platform)
        except PlatformMissing:
            continue
    return await client.image_manifest(reference, digest, _PLATFORMS[-1])


@final
class TrustRootFile:
    """Looks at the file when it is asked, at most every `POLL_EVERY_S`; without a file there is no trust root.

    A file that cannot be used is reported once, and the trust root before it stays good.
    """

    def __init__(self, path: "Path | None", clock: "Clock") -> None:
        self._path = path
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at: float | None = None
        self._changed_ns: int | None = None
        # modification time of what was read last, good or not
        self._trust_root: TrustRoot | None = None
        self._fault = ""

    async def current(self) -> TrustRoot | None:
        """Return the trust root; the first call with a file imports `sigstore`, some 0.6 s."""
        if self._path is None:
            return None
        async with self._lock:
            now = self._clock.monotonic()
            if self._read_at is None or now - self._read_at >= POLL_EVERY_S:
                self._read_at = now
                await self._load(self._path)
        return self._trust_root

    async def _load(self, path: "Path") -> None:
        try:
            changed_ns = (await asyncio.to_thread(path.stat)).st_mtime_ns
            if changed_ns == self._changed_ns:
                return
            content = await asyncio.to_thread(path.read_bytes)
            self._changed_ns = changed_ns
            self._trust_root = await asyncio.to_thread(read_trust_root, content)
        except OSError as error:
            self._note(error.strerror or str(error))
        except TrustRootError as error:
            self._note(str(error))
        else:
            self._fault = ""
            _log.info("trust root loaded", file=str(path))

    def _note(self, fault: str) -> None:
        if fault != self._fault:
            _log.error("trust root cannot be used", file=str(self._path), error=fault)
        self._fault = fault
