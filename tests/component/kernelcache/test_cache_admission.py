"""Caches over HTTPS with registries: what is resolved, verified and refused, each with one exact message."""

import base64
import json
from typing import Any

import jsonpatch
import msgspec
import pytest
from structlog.testing import capture_logs

from api.kinds.gkmcache import GKMCache
from api.names import RESOLVED_DIGEST_ANNOTATION
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from server.kernel_cache_settings import KernelCacheSettings
from server.kernelcache.cache_admission import CacheAdmission
from tests.component.kernelcache.conftest import AdmittedCaches, Serve, a_catalog
from tests.support.cache_admission import a_cache, changed, ours
from tests.support.loop_clock import LoopClock
from tests.support.registry_caches import LABELS, CacheRegistry, Signer
from tests.support.registry_double import PASSWORD, USER, Cut, Lie, RegistryDouble, Status
from tests.support.served_app import sample
from tests.support.sigstore_instance import (
    BUNDLE,
    ISSUER,
    SUBJECT,
    SigstoreInstance,
    envelope_of,
    key_bundle,
    payload_of,
    statement_of,
)

UNSIGNED: dict[str, Any] = {"allow_unsigned": True}
ALICE, BOB = Signer(), Signer()


async def stored(caches: AdmittedCaches, cache: dict[str, Any], old: Any = None) -> dict[str, Any]:
    response = (await caches.mutate(cache, old)).json["response"]
    assert response["allowed"], response
    patch = json.loads(base64.b64decode(response.get("patch", "W10=")))
    found: dict[str, Any] = jsonpatch.JsonPatch(patch).apply(cache)
    generation = (
        1 if old is None else old["metadata"]["generation"] + (old["spec"] != found["spec"])
    )
    return {**found, "metadata": {**found["metadata"], "generation": generation}}


def digest_in(cache: dict[str, Any]) -> str:
    return ours(cache)[RESOLVED_DIGEST_ANNOTATION]


async def test_a_tag_that_moves_changes_nothing_until_the_image_is_named_again(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    first = registry.push(1)
    async with serve_caches(registry, verification=UNSIGNED) as caches:
        cache = await stored(caches, a_cache(image=registry.image))
        assert digest_in(cache) == first
        second = registry.push(2)
        warmer = await stored(caches, changed(cache, warm="Demand"), cache)
        assert digest_in(warmer) == first
        again = await stored(caches, a_cache(image=registry.image))
        assert digest_in(again) == second


async def test_what_is_stored_is_proven_to_the_leader(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    digest = registry.push()
    async with serve_caches(registry, verification=UNSIGNED) as caches:
        cache = await stored(caches, a_cache(image=registry.image))
        proven = caches.admission.keys.proven(msgspec.convert(cache, GKMCache))
        assert not isinstance(proven, str)
        assert proven.image.digest == digest
        assert proven.image.facts.size_bytes == 4000
        stale = {**cache, "metadata": {**cache["metadata"], "generation": 2}}
        assert "is not admission's" in str(
            caches.admission.keys.proven(msgspec.convert(stale, GKMCache))
        )


@pytest.mark.parametrize("form", ["older", "newer"])
async def test_both_forms_of_signatures_are_verified(
    registry: CacheRegistry, serve_caches: Serve, form: str
) -> None:
    digest = registry.push()
    (registry.sign if form == "older" else registry.sign_by_bundle)(digest, ALICE)
    before = sample("gpu_kernel_cache_verifications_total", outcome="verified")
    async with serve_caches(registry, verification={"keys": [ALICE.pem]}) as caches:
        assert digest_in(await stored(caches, a_cache(image=registry.image))) == digest
    assert sample("gpu_kernel_cache_verifications_total", outcome="verified") == before + 1


async def test_bundles_are_found_without_the_referrers_api(serve_caches: Serve) -> None:
    async with RegistryDouble(referrers=False) as double:
        registry = CacheRegistry(double)
        digest = registry.push()
        registry.sign(digest, BOB)
        async with serve_caches(registry, verification={"keys": [BOB.pem]}) as caches:
            assert digest_in(await stored(caches, a_cache(image=registry.image))) == digest


async def test_one_good_signature_among_others_is_enough(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    digest = registry.push()
    registry.sign(digest, BOB)
    registry.add_bundle(digest, {"no": "bundle"})
    registry.sign_by_bundle(digest, ALICE)
    async with serve_caches(registry, verification={"keys": [ALICE.pem]}) as caches:
        await stored(caches, a_cache(image=registry.image))


async def test_each_missing_signature_is_told(registry: CacheRegistry, serve_caches: Serve) -> None:
    digest = registry.push()
    other = registry.push(7, tag="other")
    async with serve_caches(registry, verification={"keys": [ALICE.pem]}) as caches:
        cache = a_cache(image=registry.image)
        start = f"ImageNotVerified: {registry.image}: kernel_caches.verification: {digest}: not accepted: "
        assert await caches.refusal(cache) == (403, f"{start}it has no signature")
        registry.sign(digest, BOB)
        assert await caches.refusal(cache) == (403, f"{start}no listed key has made it")
        registry.sign(digest, ALICE, payload=payload_of(other))
        code, message = await caches.refusal(cache)
        assert code == 403
        assert message.endswith(f"has signed another image, {other}")
        registry.sign(digest, ALICE)
        await stored(caches, cache)


async def test_a_key_that_is_taken_off_is_asked_for_at_the_kept_digest(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    digest = registry.push(1)
    registry.sign(digest, ALICE)
    both = {"keys": [ALICE.pem, BOB.pem]}
    async with serve_caches(registry) as caches:
        cache = await stored(caches, a_cache(image=registry.image, verification=both))
        registry.push(2)
        code, message = await caches.refusal(
            changed(cache, verification={"keys": [BOB.pem]}), cache
        )
        assert (code, digest in message) == (403, True)
        kept = await stored(caches, changed(cache, verification={"keys": [ALICE.pem]}), cache)
        assert digest_in(kept) == digest


@pytest.mark.parametrize("form", ["older", "newer"])
async def test_w1_the_subject_counts_only_with_its_issuer(
    registry: CacheRegistry, serve_caches: Serve, tmp_path: Any, form: str
) -> None:
    """W1: who has a certificate of the authority is nobody until subject and issuer are both listed."""
    instance = SigstoreInstance()
    root = tmp_path / "root.json"
    root.write_bytes(instance.trust_root_file())
    digest = registry.push()
    identities = [{"subject": SUBJECT, "issuer": ISSUER}]
    verification = {"identities": identities, "trust_root_file": str(root)}
    async with serve_caches(registry, verification=verification) as caches:
        for issuer in ("https://other.example.com", ISSUER):
            holder = instance.holder(SUBJECT, issuer)
            if form == "older":
                signature = instance.simple_signing(holder, payload_of(digest))
                registry.add_simple_signing(digest, signature)
            else:
                registry.add_bundle(digest, instance.bundle(holder, statement=statement_of(digest)))
            if issuer != ISSUER:
                code, message = await caches.refusal(a_cache(image=registry.image))
                assert (code, "other.example.com" in message) == (403, True), message
        await stored(caches, a_cache(image=registry.image))


async def test_a_trust_root_that_is_none_refuses_keyless_signatures(
    registry: CacheRegistry, serve_caches: Serve, tmp_path: Any
) -> None:
    instance = SigstoreInstance()
    root = tmp_path / "root.json"
    root.write_text("{}")
    digest = registry.push()
    registry.add_simple_signing(
        digest, instance.simple_signing(instance.holder(), payload_of(digest))
    )
    identities = [{"subject": SUBJECT, "issuer": ISSUER}]
    verification = {"identities": identities, "trust_root_file": str(root)}
    async with serve_caches(registry, verification=verification) as caches:
        _, message = await caches.refusal(a_cache(image=registry.image))
        assert message.endswith("the control plane has no trust root for keyless signatures")


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        (Status(429), 503, "answers 429 to HEAD"),
        (Status(429, {"Retry-After": "30"}), 503, "answers 429 to HEAD"),
        (Status(502), 503, "answers 502 to HEAD"),
        (Status(404), 422, "answers 404 to HEAD"),
        (Status(403), 422, "answers 403 to HEAD"),
    ],
    ids=["429", "429-later", "502", "404", "403"],
)
async def test_a_registry_that_refuses_is_quoted(
    registry: CacheRegistry, serve_caches: Serve, fault: Status, code: int, text: str
) -> None:
    registry.push()
    registry.double.will_fail(fault, "HEAD", "/manifests/1")
    reason = "RegistryUnavailable" if code == 503 else "ImageUnusable"
    async with serve_caches(registry, verification=UNSIGNED) as caches:
        found, message = await caches.refusal(a_cache(image=registry.image))
        assert found == code
        assert message.startswith(f"{reason}: {registry.image}: ")
        assert text in message
        assert sample("gpu_kernel_cache_verifications_total", outcome="failed") > 0


async def test_signatures_that_cannot_be_read_now_are_no_missing_ones(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    digest = registry.push()
    registry.sign(digest, ALICE)
    registry.double.will_fail(Status(503), "GET", ".sig")
    async with serve_caches(registry, verification={"keys": [ALICE.pem]}) as caches:
        code, message = await caches.refusal(a_cache(image=registry.image))
        assert code == 503
        assert message.startswith(f"RegistryUnavailable: {registry.image}: ")
        await stored(caches, a_cache(image=registry.image))


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (
            {},
            "the image is no kernel cache: it has neither label cache.triton.image/summary nor cache.vllm.image/summary",
        ),
        (
            {**LABELS, "cache.vllm.image/summary": LABELS["cache.triton.image/summary"]},
            "the image has cache.triton.image/summary and cache.vllm.image/summary: build an image for each type of cache",
        ),
    ],
    ids=["none", "both"],
)
async def test_an_image_without_the_labels_is_refused(
    registry: CacheRegistry, serve_caches: Serve, labels: dict[str, str], text: str
) -> None:
    registry.push(labels=labels)
    async with serve_caches(registry, verification=UNSIGNED) as caches:
        assert await caches.refusal(a_cache(image=registry.image)) == (
            422,
            f"ImageUnusable: {registry.image}: {text}",
        )


async def test_a_manifest_of_two_kinds_is_refused(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    registry.double.add_manifest({**registry.manifest(b"{}"), "manifests": []})
    async with serve_caches(registry, verification=UNSIGNED) as caches:
        code, message = await caches.refusal(a_cache(image=registry.image))
        assert (code, "the manifest is both an index and an image" in message) == (422, True)


async def test_content_that_is_not_its_digests_is_refused(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    registry.push()
    registry.double.will_fail(Lie(content=b"{}"), "GET", "/manifests/sha256:")
    async with serve_caches(registry, verification=UNSIGNED) as caches:
        code, message = await caches.refusal(a_cache(image=registry.image))
        assert (code, "push the image again" in message) == (422, True)


@pytest.mark.parametrize("platforms", [("amd64", "arm64"), ("arm64",)], ids=str)
async def test_an_index_is_signed_and_pulled_as_a_whole(
    registry: CacheRegistry, serve_caches: Serve, platforms: tuple[str, ...]
) -> None:
    digest = registry.push_index(*platforms)
    registry.sign(digest, ALICE)
    async with serve_caches(registry, verification={"keys": [ALICE.pem]}) as caches:
        assert digest_in(await stored(caches, a_cache(image=registry.image))) == digest


async def test_an_index_without_a_platform_of_ours_is_refused(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    registry.push_index("s390x")
    async with serve_caches(registry, verification=UNSIGNED) as caches:
        code, message = await caches.refusal(a_cache(image=registry.image))
        assert (code, "it has linux/s390x" in message) == (422, True)


async def test_w6_the_registry_is_asked_with_the_secret_of_the_namespace(
    serve_caches: Serve,
) -> None:
    """W6: with that of another namespace it is not."""
    async with RegistryDouble(auth="basic") as double:
        registry = CacheRegistry(double)
        registry.push()
        config = {"auths": {double.host: {"username": USER, "password": PASSWORD}}}
        async with serve_caches(registry, verification=UNSIGNED) as caches:
            await caches.add_secret("regcred", json.dumps(config).encode(), "team-a")
            cache = a_cache(image=registry.image, pullSecrets=[{"name": "regcred"}])
            await stored(caches, cache)
            assert await caches.refusal({**cache, "metadata": {"name": "c", "namespace": "b"}}) == (
                422,
                f"ImageUnusable: {registry.image}: pull secret b/regcred does not exist: create it, or remove it from"
                " spec.pullSecrets",
            )
            code, message = await caches.refusal(a_cache(image=registry.image))
            assert (code, "no pull secret has any for it" in message) == (422, True)


async def test_a_secret_that_is_no_pull_secret_is_named_without_its_content(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    async with serve_caches(registry, verification=UNSIGNED) as caches:
        await caches.add_secret("odd", b"hunter2", "team-a")
        _, message = await caches.refusal(
            a_cache(image=registry.image, pullSecrets=[{"name": "odd"}])
        )
        assert "secret team-a/odd: it is no dockerconfigjson" in message
        assert "hunter2" not in message


async def test_a_connection_that_breaks_is_made_again(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    registry.push()
    registry.double.will_fail(Cut(), "HEAD", "/manifests/1")
    async with serve_caches(registry, verification=UNSIGNED) as caches:
        await stored(caches, a_cache(image=registry.image))


async def test_a_list_of_referrers_that_says_no_types_is_read_to_the_bundle(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    digest = registry.push()
    scan = registry.manifest(b"{}", artifactType="", subject={"digest": digest}, layers=[])
    registry.double.add_manifest(scan, tag=None)
    envelope = envelope_of(ALICE.key, statement_of(digest))
    registry.add_bundle(digest, key_bundle(dsseEnvelope=envelope), artifact_type="")
    async with serve_caches(registry, verification={"keys": [ALICE.pem]}) as caches:
        await stored(caches, a_cache(image=registry.image))


async def test_signatures_that_cannot_be_read_at_all_are_named(
    registry: CacheRegistry, serve_caches: Serve
) -> None:
    digest = registry.push()
    manifest = registry.manifest(b"{}", layers=[])
    registry.double.add_manifest(
        {**manifest, "layers": [{"mediaType": 1}]}, tag=f"{digest.replace(':', '-')}.sig"
    )
    empty = registry.manifest(b"{}", artifactType=BUNDLE, subject={"digest": digest}, layers=[])
    registry.double.add_manifest(empty, tag=None)
    async with serve_caches(registry, verification={"keys": [ALICE.pem]}) as caches:
        code, message = await caches.refusal(a_cache(image=registry.image))
        assert code == 403
        assert (
            "none of 2 signatures is accepted: the manifest of signatures cannot be read" in message
        )


async def test_authorities_that_are_missing_end_the_process(tmp_path: Any) -> None:
    settings = KernelCacheSettings.model_validate(
        {"registries": {"ca_file": str(tmp_path / "ca.crt")}}
    )
    client = KubeClient(StaticConnection("http://127.0.0.1:9"), LoopClock())
    admission = CacheAdmission(settings, client, LoopClock(), namespace="ours", catalog=a_catalog())
    with capture_logs() as logs, pytest.raises(FileNotFoundError):
        await admission.images.run()
    assert [log["event"] for log in logs] == ["authorities of registries cannot be used"]


def test_keys_in_the_settings_that_are_none_are_refused_when_they_are_read() -> None:
    with pytest.raises(ValueError, match=r"verification\.keys\[0\] is"):
        KernelCacheSettings.model_validate({"verification": {"keys": ["no key"]}})
