"""The client on real registries, with TLS and users: push, resolve, read, resume, referrers by API and by tag."""

import asyncio
import json
import random
import secrets
from pathlib import Path
from typing import Any

import pytest

from api.image_reference import Digest, ImageReference
from api.kinds.gkmcache import KernelTarget
from cli.exit_status import OK
from cli.main import run as run_command
from http_edge.system_clock import SystemClock
from kernelcache.image_format import (
    OCI_CONFIG,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    BlobDescriptor,
    config_descriptor,
    descriptor_json,
    read_cache_image,
)
from oci.blob_source import BlobSource
from oci.docker_config import DockerConfig
from oci.errors import AccessDenied, ContentNotFound, RegistryRefusal, RegistryUntrusted
from oci.platforms import ImagePlatform
from oci.registry_client import RegistryClient, referrers_tag, signature_tag
from oci.registry_connections import RegistryConnections
from oci.registry_push import RegistryPush
from simulator.registry.triton_cache import write_triton_cache
from tests.cluster.caches.registries.conftest import DOCKER, Registry, a_login, settings_of
from tests.cluster.environment import processes, registries
from tests.support.cutting_relay import CuttingRelay

LAYER = BlobSource.of(OCI_LAYER, random.Random(1).randbytes(3_000_000))  # the same each time
CONFIG = BlobSource.of(OCI_CONFIG, b'{"architecture":"amd64","os":"linux"}')
AMD64 = ImagePlatform()


def a_manifest(*layers: BlobSource, **more: Any) -> BlobSource:
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": descriptor_json(CONFIG.descriptor),
        "layers": [descriptor_json(layer.descriptor) for layer in layers],
        **more,
    }
    return BlobSource.of(OCI_MANIFEST, json.dumps(manifest).encode())


def an_index(*entries: dict[str, Any]) -> BlobSource:
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
    return BlobSource.of(OCI_INDEX, json.dumps(index).encode())


def a_name() -> str:
    return f"team/{secrets.token_hex(4)}"


async def read(client: RegistryClient, reference: ImageReference, blob: BlobDescriptor) -> bytes:
    return b"".join([item async for item in client.blob(reference, blob)])


async def test_an_image_is_pushed_resolved_and_read(registry: Registry) -> None:
    reference = registry.reference(a_name())
    manifest = a_manifest(LAYER)
    pushed = await registry.push.push(reference, [LAYER, CONFIG], manifest)
    assert await registry.client.resolve(reference) == pushed
    found = await registry.client.image_manifest(reference, pushed.digest, AMD64)
    assert found.content == manifest.content
    assert await registry.client.small_blob(reference, CONFIG.descriptor) == CONFIG.content
    assert await read(registry.client, reference, LAYER.descriptor) == LAYER.content
    # Again: nothing is left to send, and a tag may move.
    assert await registry.push.push(reference, [LAYER, CONFIG], manifest) == pushed
    moved = await registry.push.push(
        reference, [LAYER, CONFIG], a_manifest(LAYER, annotations={"a": "b"})
    )
    assert (await registry.client.resolve(reference)).digest == moved.digest != pushed.digest
    by_digest = reference.with_digest(pushed.digest)
    assert await registry.client.resolve(by_digest) == pushed


async def test_an_index_leads_to_the_image_of_the_platform(registry: Registry) -> None:
    reference = registry.reference(a_name())
    manifest = a_manifest(LAYER)
    untagged = ImageReference(registry=reference.registry, repository=reference.repository)
    await registry.push.push(untagged, [LAYER, CONFIG], manifest)
    platform = {"os": "linux", "architecture": "amd64"}
    index = an_index({**descriptor_json(manifest.descriptor), "platform": platform})
    pushed = await registry.push.push(reference, [], index)
    assert (await registry.client.resolve(reference)).media_type == OCI_INDEX
    found = await registry.client.image_manifest(reference, pushed.digest, AMD64)
    assert found.descriptor == manifest.descriptor


async def test_what_is_not_there_is_not_found(registry: Registry) -> None:
    reference = registry.reference(a_name())
    absent = Digest(f"sha256:{'0' * 64}")
    with pytest.raises(ContentNotFound, match=reference.repository):
        await registry.client.resolve(reference)
    await registry.push.push(reference, [CONFIG], a_manifest())
    with pytest.raises(ContentNotFound):
        await registry.client.manifest(reference, absent)
    blob = BlobDescriptor(media_type="", digest=absent, size=1)
    with pytest.raises(ContentNotFound):
        await read(registry.client, reference, blob)


async def test_a_signature_bundle_is_found_by_api_or_by_tag(registry: Registry) -> None:
    reference = registry.reference(a_name())
    image = await registry.push.push(reference, [CONFIG], a_manifest())
    assert await registry.client.referrers(reference, image.digest) == ()
    assert await registry.client.signature_manifest(reference, image.digest) is None
    bundle_type = "application/vnd.dev.sigstore.bundle.v0.3+json"
    bundle = a_manifest(subject=descriptor_json(image), artifactType=bundle_type)
    untagged = ImageReference(registry=reference.registry, repository=reference.repository)
    await registry.push.push(untagged, [CONFIG], bundle)
    if registry.kind == DOCKER:
        # It has no API, so a signer keeps the list itself.
        index = an_index({**descriptor_json(bundle.descriptor), "artifactType": bundle_type})
        tagged = registry.reference(reference.repository, referrers_tag(image.digest))
        await registry.push.push(tagged, [], index)
    (found,) = await registry.client.referrers(reference, image.digest)
    assert found.descriptor.digest == bundle.descriptor.digest
    # go-containerregistry lists the type of the configuration, so that only the manifest says it for certain.
    assert found.artifact_type == (bundle_type if registry.kind == DOCKER else OCI_CONFIG)
    content = await registry.client.manifest(reference, found.descriptor.digest)
    assert json.loads(content)["artifactType"] == bundle_type


async def test_an_older_signature_is_found_by_its_tag(registry: Registry) -> None:
    reference = registry.reference(a_name())
    image = await registry.push.push(reference, [CONFIG], a_manifest())
    signature = a_manifest(annotations={"dev.cosignproject.cosign/signature": "MEU="})
    tagged = registry.reference(reference.repository, signature_tag(image.digest))
    await registry.push.push(tagged, [CONFIG], signature)
    found = await registry.client.signature_manifest(reference, image.digest)
    assert found is not None
    assert found.descriptor == signature.descriptor


@pytest.mark.parametrize("login", ["nobody", "wrong"])
async def test_without_the_users_password_there_is_no_access(
    registry: Registry, login: str
) -> None:
    """W6."""
    host = registry.running.host
    credentials = DockerConfig() if login == "nobody" else a_login(host, password="wrong")
    async with RegistryConnections(settings_of(registry.running.ca_file)) as connections:
        client = RegistryClient(connections, credentials, SystemClock())
        with pytest.raises(AccessDenied, match="pull secret"):
            await client.resolve(registry.reference("team/private"))


async def test_an_authority_that_is_not_trusted_gets_no_password(
    registry: Registry, running: dict[str, registries.RunningRegistry]
) -> None:
    (other,) = [item for item in running.values() if item.host != registry.running.host]
    async with RegistryConnections(settings_of(other.ca_file)) as connections:
        client = RegistryClient(connections, a_login(registry.running.host), SystemClock())
        with pytest.raises(RegistryUntrusted):
            await client.resolve(registry.reference("team/private"))


async def test_a_blob_goes_on_after_a_cut(registry: Registry) -> None:
    """By Range, which docker-registry and go-containerregistry serve."""
    repository = a_name()
    await registry.push.push(registry.reference(repository), [LAYER, CONFIG], a_manifest(LAYER))
    async with (
        CuttingRelay(registry.running.host, after=1_000_000, cuts=4) as relay,
        RegistryConnections(settings_of(registry.running.ca_file)) as connections,
    ):
        client = RegistryClient(connections, a_login(relay.host), SystemClock())
        reference = ImageReference(registry=relay.host, repository=repository, tag="1")
        assert await read(client, reference, LAYER.descriptor) == LAYER.content
    assert len(relay.sent) > 2
    assert relay.sent[-1] < LAYER.descriptor.size, "the rest alone is sent"


async def test_tokens_are_asked_for_and_renewed(
    run: processes.Run, docker_registry_program: Path, tmp_path: Path
) -> None:
    async with registries.TokenServer(tmp_path) as tokens:
        one = await registries.start_docker_registry(
            run, docker_registry_program, token_server=tokens
        )
        bundle = tmp_path / "authorities.crt"
        bundle.write_bytes(one.ca_file.read_bytes() + tokens.ca_file.read_bytes())
        name = a_name()
        reference = ImageReference(registry=one.host, repository=name, tag="1")
        async with RegistryConnections(settings_of(bundle)) as connections:
            push = RegistryPush(connections, a_login(one.host), SystemClock())
            client = RegistryClient(connections, a_login(one.host), SystemClock())
            pushed = await push.push(reference, [LAYER, CONFIG], a_manifest(LAYER))
            assert (await client.resolve(reference)).digest == pushed.digest
            assert await read(client, reference, LAYER.descriptor) == LAYER.content
            stranger = RegistryClient(connections, DockerConfig(), SystemClock())
            with pytest.raises(AccessDenied, match="401"):
                await stranger.resolve(reference)
            # A restart ends no token.
            await one.restart()
            assert (await client.resolve(reference)).digest == pushed.digest
        pulls = [scope for scope in tokens.asked if scope == f"repository:{name}:pull"]
        assert len(pulls) <= 2
        assert all(scope.startswith(f"repository:{name}:") for scope in tokens.asked)
    one.process.kill9()


async def test_the_command_packs_a_cache_that_is_read_back(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = write_triton_cache(tmp_path / "cache")
    login = tmp_path / "config.json"
    user = {"username": registries.USER, "password": registries.PASSWORD}
    login.write_text(json.dumps({"auths": {registry.running.host: user}}))
    reference = registry.reference(a_name(), "v1")
    arguments = ["cache", "pack", str(cache), "--image", str(reference)]
    arguments += ["--ca-file", str(registry.running.ca_file), "--registry-config", str(login)]
    for _ in range(2):
        assert await asyncio.to_thread(run_command, arguments) == OK
    first, second = capsys.readouterr().out.split()
    assert first == second == (await registry.client.resolve(reference)).digest
    manifest = await registry.client.image_manifest(reference, Digest(first), AMD64)
    config = await registry.client.small_blob(reference, config_descriptor(manifest.content))
    image = read_cache_image(manifest.content, config)
    assert image.targets == (KernelTarget(backend="cuda", arch="90", warp_size=32),)
    assert len(await read(registry.client, reference, image.layer)) == image.layer.size


async def test_a_registry_that_restarts_in_the_middle_goes_on(
    run: processes.Run, docker_registry_program: Path
) -> None:
    one = await registries.start_docker_registry(run, docker_registry_program)
    reference = ImageReference(registry=one.host, repository=a_name(), tag="1")
    async with RegistryConnections(settings_of(one.ca_file)) as connections:
        push = RegistryPush(connections, a_login(one.host), SystemClock())
        client = RegistryClient(connections, a_login(one.host), SystemClock())
        await push.push(reference, [LAYER, CONFIG], a_manifest(LAYER))
        stream = client.blob(reference, LAYER.descriptor)
        content = await anext(stream)
        await one.restart()
        content += b"".join([chunk async for chunk in stream])
        assert content == LAYER.content
        # htpasswd, and no such user: the answer is a refusal, not a time-out.
        stranger = RegistryClient(connections, a_login(one.host, "x"), SystemClock())
        with pytest.raises(RegistryRefusal):
            await stranger.resolve(reference)
    one.process.kill9()
