"""Registries that are slow, and many questions at once, on virtual time; the trust root's file."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from admission.caches.images import (
    ImageFault,
    ImageQuestion,
    RequiredSigners,
    ResolvedImage,
)
from api.cache_name import CacheName
from api.image_reference import parse_image_reference
from api.kinds.gkmcache import Verification
from kernelcache.signatures.policy import read_signature_policy
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from server.kernelcache.registry_images import (
    AT_A_TIME,
    OF_A_NAMESPACE,
    POLL_EVERY_S,
    RegistryImages,
    TrustRootFile,
)
from tests.component.kernelcache.conftest import NAMESPACE, a_catalog, cache_settings
from tests.support.loop_clock import LoopClock
from tests.support.polling import until
from tests.support.registry_caches import CacheRegistry, Signer
from tests.support.registry_double import Hang, RegistryDouble, Status
from tests.support.sigstore_instance import SigstoreInstance

TEAMS = ("team-a", "team-b", "team-c", "team-d", "team-e")
BUSY = "images of the namespace, or 16 of all, are being resolved: try again"
NAME = CacheName(namespace="team-a", name="cache")


def a_question(registry: CacheRegistry, *signers: Signer) -> ImageQuestion:
    policies = [read_signature_policy(Verification(keys=[signer.pem])) for signer in signers]
    return ImageQuestion(
        cache=NAME,
        reference=parse_image_reference(registry.image),
        signers=tuple(
            RequiredSigners(policy=item, is_enforced=True, source="spec.verification")
            for item in policies
        ),
        pull_secrets=(),
    )


@asynccontextmanager
async def images_of(
    registry: CacheRegistry, **registries: tuple[str, ...]
) -> AsyncIterator[RegistryImages]:
    """As a server has it with the time of the default settings."""
    settings, clock = cache_settings(registry), LoopClock()
    settings = settings.model_copy(
        update={"registries": settings.registries.model_copy(update=registries)}
    )
    # Nothing is asked of it: no question has a pull secret.
    client = KubeClient(StaticConnection("http://127.0.0.1:9"), clock)
    images = RegistryImages(
        settings,
        client,
        clock,
        namespace=NAMESPACE,
        catalog=a_catalog(*TEAMS),
    )
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


def questions_of(registry: CacheRegistry, team: str, count: int) -> list[ImageQuestion]:
    question = replace(a_question(registry), cache=CacheName(namespace=team, name="cache"))
    return [question] * count


@pytest.mark.looptime
async def test_a_burst_is_bounded_and_the_rest_is_told_to_try_again(
    registry: CacheRegistry,
) -> None:
    registry.push()
    registry.double.will_fail(Hang(), "HEAD", "/manifests/1", times=AT_A_TIME)
    async with images_of(registry) as images:
        asked = [
            question for team in TEAMS for question in questions_of(registry, team, OF_A_NAMESPACE)
        ]
        found = await asyncio.gather(*map(images.resolve, asked))
        assert registry.double.count("HEAD", "/manifests/1") == AT_A_TIME < len(asked)
        assert all(isinstance(item, ImageFault) and item.is_transient for item in found)
        assert [BUSY in item.text for item in found if isinstance(item, ImageFault)].count(
            True
        ) == 4
        assert isinstance(await images.resolve(a_question(registry)), ResolvedImage)


@pytest.mark.looptime
async def test_a_namespace_whose_registry_hangs_takes_no_slot_of_another(
    registry: CacheRegistry,
) -> None:
    registry.push()
    registry.double.will_fail(Hang(), "HEAD", "/manifests/1", times=OF_A_NAMESPACE)
    async with images_of(registry) as images, asyncio.TaskGroup() as group:
        hanging = [
            group.create_task(images.resolve(question))
            for question in questions_of(registry, "team-b", 2 * AT_A_TIME)
        ]
        await until(lambda: registry.double.count("HEAD", "/manifests/1") == OF_A_NAMESPACE)
        assert isinstance(await images.resolve(a_question(registry)), ResolvedImage)
        assert not any(task.done() for task in hanging)
        found = await asyncio.gather(*hanging)
    assert [BUSY in item.text for item in found if isinstance(item, ImageFault)].count(False) == 4
    assert len(found) == len([item for item in found if isinstance(item, ImageFault)])


@pytest.mark.looptime
async def test_namespaces_that_are_not_there_share_the_slots_of_one(
    registry: CacheRegistry,
) -> None:
    """A forged review may name any; that of a new namespace may come before the namespace is known."""
    registry.push()
    registry.double.will_fail(Hang(), "HEAD", "/manifests/1", times=OF_A_NAMESPACE)
    async with images_of(registry) as images, asyncio.TaskGroup() as group:
        hanging = [
            group.create_task(images.resolve(question))
            for number in range(AT_A_TIME)
            for question in questions_of(registry, f"imagined-{number}", 1)
        ]
        await until(lambda: registry.double.count("HEAD", "/manifests/1") == OF_A_NAMESPACE)
        assert isinstance(await images.resolve(a_question(registry)), ResolvedImage)
        assert not any(task.done() for task in hanging)
    async with images_of(registry) as images:
        (question,) = questions_of(registry, "new", 1)
        assert isinstance(await images.resolve(question), ResolvedImage)


async def refusal_of(images: RegistryImages, question: ImageQuestion) -> str:
    found = await images.resolve(question)
    assert isinstance(found, ImageFault)
    return found.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_address_that_is_not_public_is_refused_unless_its_registry_is_listed(
    registry: CacheRegistry, host: str
) -> None:
    registry.push()
    asked = f"{host}:{registry.double.host.rpartition(':')[2]}"
    question = replace(
        a_question(registry), reference=parse_image_reference(f"{asked}/team/cache:1")
    )
    async with images_of(registry, private=(), plain_http=(asked,)) as images:
        assert await refusal_of(images, question) == (
            f"{asked}/team/cache:1: {asked} has an address that is not public; list {asked} in the setting"
            " kernel_caches.registries.private, if it may be asked"
        )
    assert not registry.double.seen
    async with images_of(registry, private=(asked,), plain_http=(asked,)) as images:
        assert isinstance(await images.resolve(question), ResolvedImage)


@pytest.mark.parametrize(
    "answer",
    [
        lambda url: Status(307, {"Location": f"{url}/admin"}),
        lambda url: Status(401, {"WWW-Authenticate": f'Bearer realm="{url}/token"'}),
    ],
    ids=["redirect", "realm"],
)
async def test_a_registry_leads_to_no_address_that_is_not_public(
    registry: CacheRegistry, answer: Callable[[str], Status]
) -> None:
    async with RegistryDouble() as inside:
        registry.double.will_fail(answer(inside.url), "HEAD", "/manifests/1")
        plain = (registry.double.host, inside.host)
        async with images_of(registry, plain_http=plain) as images:
            text = await refusal_of(images, a_question(registry))
        assert f"list {inside.host} in the setting kernel_caches.registries.private" in text
        assert not inside.seen


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        ("INTERNAL PAGE: password hunter2", "answers 404 to GET; check"),
        (
            '{"errors": [{"code": "hunter2"}, {"code": "NAME_UNKNOWN", "message": "hunter2"}]}',
            "answers 404 to GET: NAME_UNKNOWN; check",
        ),
    ],
)
async def test_the_answer_has_nothing_of_a_registrys_body_but_codes_of_the_protocol(
    registry: CacheRegistry, body: str, reported: str
) -> None:
    registry.push()
    registry.double.will_fail(Status(404, text=body), "GET", "/manifests/")
    async with images_of(registry) as images:
        text = await refusal_of(images, a_question(registry))
    assert reported in text
    assert "hunter2" not in text


async def test_nothing_is_asked_before_it_runs(registry: CacheRegistry) -> None:
    settings, clock = cache_settings(registry), LoopClock()
    client = KubeClient(StaticConnection("http://127.0.0.1:9"), clock)
    images = RegistryImages(
        settings,
        client,
        clock,
        namespace=NAMESPACE,
        catalog=a_catalog(*TEAMS),
    )
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
    clock.now += POLL_EVERY_S
    second = await root.current()
    assert second is not None
    assert second.transparency_logs != first.transparency_logs
    with capture_logs() as logs:
        path.write_text(json.dumps({}))
        os.utime(path, ns=(3, 3))
        for _ in range(3):
            clock.now += POLL_EVERY_S
            assert await root.current() is second
        path.unlink()
        clock.now += POLL_EVERY_S
        assert await root.current() is second
    assert [log["event"] for log in logs] == ["trust root cannot be used"] * 2


async def test_without_a_file_there_is_no_trust_root() -> None:
    assert await TrustRootFile(None, LoopClock()).current() is None
