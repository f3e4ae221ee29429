"""Whatever a registry answers: a declared error in one line, or an image; accepted is only what was signed.

One signed cache is the truth. Its documents are changed, with their digests or without, as are heads and statuses of
answers; then the cache is pulled as a node and admission would pull it, or signed as the command would.
"""

import asyncio
import json
import resource
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any, Final, final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.image_reference import Digest, ImageReference
from api.kinds.gkmcache import Verification
from http_edge.system_clock import SystemClock
from kernelcache.image_format import (
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    BlobDescriptor,
    CacheImageError,
    config_descriptor,
    descriptor_json,
    read_cache_image,
)
from kernelcache.signatures import image_signing
from kernelcache.signatures.image_signatures import verify_signatures
from kernelcache.signatures.material import BUNDLE_ARTIFACT_TYPE, SIMPLE_SIGNING_TYPE
from kernelcache.signatures.policy import read_signature_policy
from kernelcache.signatures.signing_keys import SigningKey
from kernelcache.signatures.verification import SignatureVerified
from oci.docker_config import DockerConfig
from oci.errors import RegistryError
from oci.platforms import ImagePlatform
from oci.registry_client import RegistryClient, referrers_tag, signature_tag
from oci.registry_connections import RegistryConnections
from oci.registry_push import RegistryPush
from oci.registry_settings import RegistrySettings
from oci.signature_push import SignaturePush
from oci.signature_reading import read_signatures
from simulator.registry.content import sha256
from tests.support.registry_double import Cut, Fault, Lie, RegistryDouble, Status
from tests.support.sigstore_instance import new_key, public_pem
from tests.support.strategies import json_values

MANY, FEW = 20_000, 200
MOST_TEXT = 4096
MOST_MIB = 128
"""Of memory more than before, with the registry in the same process."""
MOST_MIB_OF_HYPOTHESIS = 384
"""The same where it remembers many examples."""
REPOSITORY, TAG = "team/cache", "1"

_PRIVATE = new_key()
KEY = SigningKey.from_pem(_PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
POLICY = read_signature_policy(Verification(keys=[public_pem(_PRIVATE)]))
LAYER = b"layer" * 100
CONFIG: Final = {
    "architecture": "amd64",
    "os": "linux",
    "config": {
        "Labels": {
            "cache.triton.image/entry-count": "1",
            "cache.triton.image/cache-size-bytes": "100",
            "cache.triton.image/summary": json.dumps(
                {"targets": [{"backend": "cuda", "arch": "90", "warp_size": 32}]}
            ),
        }
    },
}
DOCUMENTS = (
    "config",
    "layer",
    "manifest",
    "index",
    "payload",
    "payloads manifest",
    "bundle",
    "bundle manifest",
    "referrers",
)
OTHER_DIGEST = f"sha256:{'0' * 64}"


@final
@dataclass(frozen=True)
class Change:
    """A change of a document."""

    of: Callable[[bytes], bytes]
    is_rehashed: bool
    """Whether what refers to it names the changed bytes; else the registry lies about them."""


@final
@dataclass(frozen=True)
class Malice:
    changes: dict[str, Change]
    faults: list[tuple[str, str, Fault]]
    has_index: bool
    has_referrers_api: bool


def set_at(content: bytes, path: list[int], value: object) -> bytes:
    """Replace what a walk of the numbers leads to; binary content stays."""
    try:
        found = json.loads(content)
    except ValueError:
        return content
    root = [deepcopy(found)]
    parent: Any = root
    key: Any = 0
    for number in path:
        inner = parent[key]
        if not isinstance(inner, dict | list) or not inner:
            break
        parent = inner
        key = sorted(inner)[number % len(inner)] if isinstance(inner, dict) else number % len(inner)
    parent[key] = value
    return json.dumps(root[0]).encode()


def many_times(content: bytes, member: str, times: int) -> bytes:
    try:
        found = json.loads(content)
    except ValueError:
        return content
    if isinstance(found, dict) and isinstance(found.get(member), list):
        found[member] *= times
    return json.dumps(found).encode()


VALUES = (
    json_values()
    | st.sampled_from(
        [
            OTHER_DIGEST,
            "sha512:00",
            "sha256:../../x",
            -1,
            2**63,
            2**53,
            1e300,
            "\ud800",
            "a\nb",
            "x" * 10_000,
            OCI_INDEX,
            OCI_MANIFEST,
            BUNDLE_ARTIFACT_TYPE,
        ]
    )
    | st.lists(st.just({}), max_size=600)
)


def replaced(content: bytes, by: bytes) -> bytes:
    return by


def without_byte(content: bytes, at: int) -> bytes:
    return content[:at] + content[at + 1 :]


WAYS: st.SearchStrategy[Callable[[bytes], bytes]] = st.one_of(
    st.builds(
        partial, st.just(set_at), path=st.lists(st.integers(0, 20), max_size=6), value=VALUES
    ),
    st.builds(partial, st.just(replaced), by=st.binary(max_size=64)),
    st.builds(
        partial, st.just(replaced), by=json_values().map(lambda item: json.dumps(item).encode())
    ),
    st.builds(
        partial,
        st.just(replaced),
        by=st.sampled_from([10, 100_000]).map(lambda depth: b'{"layers":' + b"[" * depth),
    ),
    st.builds(partial, st.just(without_byte), at=st.integers(0, 200)),
    st.builds(
        partial,
        st.just(many_times),
        member=st.sampled_from(["layers", "manifests", "subject"]),
        times=st.sampled_from([0, 2, 70, 300]),
    ),
)
CHANGES = st.builds(Change, WAYS, st.booleans())


HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "Content-Type",
            "Docker-Content-Digest",
            "Link",
            "Location",
            "Retry-After",
            "WWW-Authenticate",
            "Content-Range",
            "Content-Encoding",
        ]
    ),
    st.sampled_from(
        [
            "",
            OTHER_DIGEST,
            OCI_INDEX,
            OCI_MANIFEST,
            "text/html",
            "/v2/",
            "http://[",
            "file:///etc/passwd",
            "http://192.0.2.1/",
            '<http://192.0.2.1/>; rel="next"',
            '<?>; rel="next"',
            "Basic",
            'Bearer realm="http://192.0.2.1/token"',
            'Bearer realm="',
            "bytes 5-6/7",
            "99999999999999999999",
            "Fri, 31 Dec 9999 23:59:59 GMT",
            "gzip",
            "é" * 100,
        ]
    ),
    max_size=2,
)
STATUSES = st.sampled_from(
    [200, 201, 202, 204, 206, 301, 307, 308, 400, 401, 403, 404, 405, 416, 418, 429, 500, 503]
)
FAULTS: st.SearchStrategy[Fault] = (
    st.builds(Status, STATUSES, HEADERS, st.text(max_size=50) | st.just('{"errors":[{"code":1}]}'))
    | st.builds(Cut, st.integers(0, 30))
    | st.builds(Lie, HEADERS, st.none() | st.binary(max_size=30))
    | st.builds(Lie, without=st.just("Docker-Content-Digest"))
    | st.builds(Lie, is_chunked=st.just(True))
)
MALICE = st.builds(
    Malice,
    changes=st.dictionaries(st.sampled_from(DOCUMENTS), CHANGES, max_size=2),
    faults=st.lists(
        st.tuples(
            st.sampled_from(["GET", "GET", "HEAD", "POST", "PUT"]),
            st.sampled_from(["/manifests/", "/blobs/", "/referrers/", ".sig", "/v2/"]),
            FAULTS,
        ),
        max_size=2,
    ),
    has_index=st.booleans(),
    has_referrers_api=st.booleans(),
)


@final
class Shelf:
    """The documents in the registry, each changed as told."""

    def __init__(self, registry: RegistryDouble, malice: Malice) -> None:
        self._registry = registry
        self._malice = malice

    def fill(self) -> Digest:
        """Store all, and return the digest that was signed."""
        self._registry.content.has_referrers = self._malice.has_referrers_api
        config = self._blob("config", OCI_CONFIG, json.dumps(CONFIG).encode())
        layer = self._blob("layer", OCI_LAYER, LAYER)
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": descriptor_json(config),
            "layers": [descriptor_json(layer)],
        }
        has_index = self._malice.has_index
        image = self._manifest("manifest", OCI_MANIFEST, json.dumps(manifest).encode(), TAG)
        if has_index:
            platform = {"os": "linux", "architecture": "amd64"}
            entry = {**descriptor_json(image), "platform": platform}
            index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}
            image = self._manifest("index", OCI_INDEX, json.dumps(index).encode(), TAG)
        return self._sign(image)

    def _sign(self, image: BlobDescriptor) -> Digest:
        reference = self._registry.reference(REPOSITORY, TAG)
        honest = image.digest
        signed = image_signing.sign_payload(KEY, reference, honest)
        payload = self._blob("payload", SIMPLE_SIGNING_TYPE, signed.payload)
        layers = image_signing.payload_layers(None, payload, signed.signature)
        config = self._registry.add_blob(image_signing.payloads_config(layers), OCI_CONFIG)
        manifest = image_signing.payloads_manifest(config, layers)
        self._manifest("payloads manifest", OCI_MANIFEST, manifest, signature_tag(honest))
        bundle = self._blob("bundle", BUNDLE_ARTIFACT_TYPE, image_signing.sign_bundle(KEY, honest))
        empty = self._registry.add_blob(image_signing.EMPTY_CONFIG, image_signing.EMPTY_CONFIG_TYPE)
        referrer = self._manifest(
            "bundle manifest",
            OCI_MANIFEST,
            image_signing.bundle_manifest(image, empty, bundle),
            None,
        )
        listed = image_signing.grown_referrers(None, referrer)
        if self._malice.has_referrers_api:
            current = self._changed("referrers", listed).decode("utf-8", "replace")
            answer = Status(200, {"Content-Type": OCI_INDEX}, current)
            self._registry.will_fail(answer, "GET", "/referrers/", times=10)
        else:
            self._manifest("referrers", OCI_INDEX, listed, referrers_tag(honest))
        return honest

    def _changed(self, name: str, content: bytes) -> bytes:
        change = self._malice.changes.get(name)
        return content if change is None else change.of(content)

    def _is_lie(self, name: str) -> bool:
        change = self._malice.changes.get(name)
        return change is not None and not change.is_rehashed

    def _blob(self, name: str, media_type: str, content: bytes) -> BlobDescriptor:
        changed = self._changed(name, content)
        if not self._is_lie(name):
            return self._registry.add_blob(changed, media_type)
        honest = self._registry.add_blob(content, media_type)
        self._registry.blobs[honest.digest] = changed
        return honest

    def _manifest(
        self, name: str, media_type: str, content: bytes, tag: str | None
    ) -> BlobDescriptor:
        changed = self._changed(name, content)
        kept = self._registry.add_manifest(
            changed, repository=REPOSITORY, tag=tag, media_type=media_type
        )
        if not self._is_lie(name):
            return kept
        digest = sha256(content)
        self._registry.manifests[REPOSITORY, digest] = (media_type, changed)
        return BlobDescriptor(media_type=media_type, digest=digest, size=len(content))


async def pull(connections: RegistryConnections, reference: ImageReference, signed: Digest) -> str:
    """Do what admission and a node do; return the outcome."""
    client = RegistryClient(connections, DockerConfig(), SystemClock())
    found = await client.resolve(reference)
    current = await read_signatures(client, reference, found.digest)
    result = verify_signatures(
        found.digest, current.materials, policy=POLICY, trust_root=None, unread=current.problems
    )
    check_text(result.message)
    if isinstance(result, SignatureVerified):
        assert found.digest == signed
    manifest = await client.image_manifest(reference, found.digest, ImagePlatform())
    config = await client.small_blob(reference, config_descriptor(manifest.content))
    image = read_cache_image(manifest.content, config)
    layer = b"".join([chunk async for chunk in client.blob(reference, image.layer)])
    assert sha256(layer) == image.layer.digest
    return f"pulled, {type(result).__name__}"


async def sign(connections: RegistryConnections, reference: ImageReference, signed: Digest) -> str:
    """Do what the command does; return the outcome."""
    client = RegistryClient(connections, DockerConfig(), SystemClock())
    signing = SignaturePush(client, RegistryPush(connections, DockerConfig(), SystemClock()))
    image = await signing.image_of(reference)
    forms = await signing.sign(reference, image, KEY)
    return f"signed, {forms.has_added_payload}, {forms.has_added_bundle}"


def check_text(text: str) -> None:
    assert len(text) <= MOST_TEXT
    assert text.isprintable()


Act = Callable[[RegistryConnections, ImageReference, Digest], Coroutine[Any, Any, str]]


@pytest.mark.parametrize("act", [pull, sign])
def test_nothing_but_declared_errors_and_nothing_accepted_that_was_not_signed(
    act: Act, is_long: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    # In a process of its own: the peak of this one is that of all tests before.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        outcomes, more_mib = executor.submit(outcomes_of, act, is_long=is_long).result()
    with capfd.disabled():
        if is_long:
            print(f"\n{act.__name__}: {dict(outcomes.most_common())}")
            print(f"{more_mib:.0f} MiB more than before")
    assert more_mib < (MOST_MIB_OF_HYPOTHESIS if is_long else MOST_MIB)
    # It is no test of one error only.
    assert len(outcomes) > 5
    assert any(name.startswith(("pulled, SignatureVerified", "signed")) for name in outcomes)


def outcomes_of(act: Act, *, is_long: bool) -> tuple[Counter[str], float]:
    """Return how often each outcome came, and the MiB by which the process has grown at most."""
    outcomes: Counter[str] = Counter()
    before_mib = peak_mib()
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        registry, connections = runner.run(opened(stack))

        @settings(
            max_examples=MANY if is_long else FEW,
            derandomize=not is_long,
            database=None,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(malice=MALICE)
        def run(malice: Malice) -> None:
            registry.clear()
            signed = Shelf(registry, malice).fill()
            for method, part, fault in malice.faults:
                registry.will_fail(fault, method, part)
            reference = registry.reference(REPOSITORY, TAG)
            try:
                outcome = runner.run(act(connections, reference, signed))
            except (RegistryError, CacheImageError, image_signing.SignatureListError) as error:
                check_text(str(error))
                outcome = type(error).__name__
            outcomes[outcome] += 1

        try:
            run()
        finally:
            runner.run(stack.aclose())
    return outcomes, peak_mib() - before_mib


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def opened(stack: AsyncExitStack) -> tuple[RegistryDouble, RegistryConnections]:
    registry = await stack.enter_async_context(RegistryDouble())
    settings_of_test = RegistrySettings(
        user_agent="tests", plain_http_hosts=frozenset({registry.host}), attempts=1
    )
    connections = await stack.enter_async_context(RegistryConnections(settings_of_test))
    return registry, connections
