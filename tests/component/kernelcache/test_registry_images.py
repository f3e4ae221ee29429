"""Registries that are slow, and many questions at once, on virtual time; the trust root's file."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from admission.caches.cache_images import (
    ImageFault,
    ImageQuestion,
    RequiredSigners,
    ResolvedImage,
)
from api.cache_name import CacheName
from api.image_reference import parse_image_reference
from api.kinds.gkmcache import Verification
from kernelcache.signatures.signature_policy import read_signature_policy
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from server.kernelcache.registry_images import AT_A_TIME, RegistryImages
from server.kernelcache.trust_root_file import LOOK_EVERY_S, TrustRootFile
from tests.component.kernelcache.conftest import NAMESPACE, cache_settings
from tests.support.loop_clock import LoopClock
from tests.support.polling import until
from tests.support.registry_caches import CacheRegistry, Signer
from tests.support.registry_double import Hang
from tests.support.sigstore_instance import SigstoreInstance

NAME = CacheName(namespace="team-a", name="cache")


def a_question(registry: CacheRegistry, *signers: Signer) -> ImageQuestion:
    policies = [read_signature_policy(Verification(keys=[one.pem])) for one in signers]
    return ImageQuestion(
        cache=NAME,
        reference=parse_image_reference(registry.image),
        signers=tuple(
            RequiredSigners(policy=one, is_enforced=True, source="spec.verification")
            for one in policies
        ),
        pull_secrets=(),
    )


@asynccontextmanager
async def images_of(registry: CacheRegistry) -> AsyncIterator[RegistryImages]:
    """As a server has it with the time of the default settings."""
    settings, clock = cache_settings(registry, timeout_s=2.0), LoopClock()
    # Nothing is asked of it: no question has a pull secret.
    client = KubeClient(StaticConnection("http://127.0.0.1:9"), clock)
    images = RegistryImages(settings, client, clock, namespace=NAMESPACE, user_agent="tests")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(images.run())
        await until(images.is_open)
        yield images
        task.cancel()


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("method", "part"),
    [("HEAD", "/manifests/1"), ("GET", "/manifests/sha256"), ("GET", "/blobs/"), ("GET", ".sig")],
)
async def test_a_slow_registry_is_given_up_within_the_time_of_a_webhook(
    registry: CacheRegistry, method: str, part: str
) -> None:
    registry.push()
    registry.double.will_fail(Hang(), method, part, times=9)
    async with images_of(registry) as images:
        started = asyncio.get_running_loop().time()
        found = await images.resolve(a_question(registry, Signer()))
        assert asyncio.get_running_loop().time() - started <= 2.1
    assert isinstance(found, ImageFault)
    assert found.is_transient
    assert registry.image in found.text
    assert "try again" in found.text or "check the network" in found.text


@pytest.mark.looptime
async def test_a_burst_is_bounded_and_the_rest_is_told_to_try_again(
    registry: CacheRegistry,
) -> None:
    registry.push()
    registry.double.will_fail(Hang(), "HEAD", "/manifests/1", times=AT_A_TIME)
    async with images_of(registry) as images:
        found = await asyncio.gather(
            *(images.resolve(a_question(registry)) for _ in range(AT_A_TIME + 4))
        )
        assert registry.double.count("HEAD", "/manifests/1") == AT_A_TIME
        assert all(isinstance(one, ImageFault) and one.is_transient for one in found)
        busy = f"{registry.image}: {AT_A_TIME} images are being resolved: try again"
        assert [one.text for one in found if isinstance(one, ImageFault)].count(busy) == 4
        assert isinstance(await images.resolve(a_question(registry)), ResolvedImage)


async def test_nothing_is_asked_before_it_runs(registry: CacheRegistry) -> None:
    settings, clock = cache_settings(registry, timeout_s=2.0), LoopClock()
    client = KubeClient(StaticConnection("http://127.0.0.1:9"), clock)
    images = RegistryImages(settings, client, clock, namespace=NAMESPACE, user_agent="tests")
    found = await images.resolve(a_question(registry))
    assert isinstance(found, ImageFault)
    assert found.text == f"{registry.image}: gpu-control-plane is starting; try again"


class HandMovedClock(LoopClock):
    """Stands still until it is moved."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


async def test_the_trust_root_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    clock, path = HandMovedClock(), tmp_path / "root.json"
    one, other = SigstoreInstance(), SigstoreInstance()
    path.write_bytes(one.trust_root_file())
    os.utime(path, ns=(1, 1))
    root = TrustRootFile(path, clock)
    first = await root.current()
    assert first is not None
    path.write_bytes(other.trust_root_file())
    os.utime(path, ns=(2, 2))
    assert await root.current() is first
    clock.now += LOOK_EVERY_S
    second = await root.current()
    assert second is not None
    assert second.transparency_logs != first.transparency_logs
    with capture_logs() as logs:
        path.write_text(json.dumps({}))
        os.utime(path, ns=(3, 3))
        for _ in range(3):
            clock.now += LOOK_EVERY_S
            assert await root.current() is second
        path.unlink()
        clock.now += LOOK_EVERY_S
        assert await root.current() is second
    assert [log["event"] for log in logs] == ["trust root cannot be used"] * 2


async def test_without_a_file_there_is_no_trust_root() -> None:
    assert await TrustRootFile(None, LoopClock()).current() is None
