"""Caches at the validating webhook: replays, forgeries, and what Kyverno has verified."""

import json

import msgspec
import pytest

from admission.caches.request import CacheRequest, ReviewedCache
from api.cache_name import CacheName
from api.names import (
    CACHE_IMAGE_ANNOTATION,
    CACHE_SIZE_ANNOTATION,
    KYVERNO_ANNOTATION,
    MUTATION_SIGNATURE_ANNOTATION,
    RESOLVED_DIGEST_ANNOTATION,
)
from kernelcache.admitted_image import (
    AdmittedImage,
    CacheRevision,
    ProvenImage,
    image_annotations,
    proven_image,
)
from kernelcache.signatures import mutation
from tests.support.cache_admission import (
    FACTS,
    IMAGE,
    KEYS,
    CacheAdmissionSetup,
    RefusedError,
    a_cache,
    a_digest,
    a_policy,
    changed,
    ours,
)

PINNED = f"registry.example.com/team/cache@{a_digest()}"
NOT_OURS = (
    "annotation gkm.io/mutationSig is not admission's for this object, its image and generation; another mutating"
    " webhook changed it after gpu-control-plane's: let its configuration sort before"
)


@pytest.fixture
def setup() -> CacheAdmissionSetup:
    return CacheAdmissionSetup()


def test_w2_a_proof_is_good_for_no_other_object(setup: CacheAdmissionSetup):
    """W2: bound to namespace, name, generation and image, it proves nothing elsewhere."""
    stored = setup.store(a_cache())
    annotations = ours(stored)
    elsewhere = (
        a_cache(name="other"),
        a_cache(namespace="team-b"),
        a_cache(namespace=None),
        a_cache(image="registry.example.com/team/cache:2"),
    )
    for cache in elsewhere:
        with pytest.raises(RefusedError, match=r"mutationSig is not admission's"):
            setup.store_unmutated(changed(cache, annotations=annotations))


def test_w2_a_proof_is_good_for_no_later_generation(setup: CacheAdmissionSetup):
    """W2: what was signed before a change of the spec does not count after it."""
    stored = setup.store(a_cache())
    reply = setup.validate(
        {**changed(stored, warm="Demand"), "metadata": {**stored["metadata"], "generation": 2}},
        stored,
    )
    assert (reply.code, reply.message) == (
        403,
        f"ForgedAnnotation: GKMCache team-a/cache: {NOT_OURS}",
    )


def test_w2_mutation_replaces_a_replayed_proof(setup: CacheAdmissionSetup):
    """W2: of an image that the tag stood for, and of another object."""
    old = setup.store(a_cache())
    setup.images.tags[IMAGE] = a_digest(2)
    for cache in (a_cache(), a_cache(name="other")):
        again = setup.store(changed(cache, annotations=ours(old)))
        assert ours(again)[RESOLVED_DIGEST_ANNOTATION] == a_digest(2)


def test_w5_the_whole_set_is_judged_at_every_change(setup: CacheAdmissionSetup):
    """W5: each annotation that is missing or another is noticed, though the image is the same."""
    stored = setup.store(a_cache())
    broken = {
        RESOLVED_DIGEST_ANNOTATION: (
            "annotation gkm.io/resolvedDigest is missing",
            a_digest(2),
        ),
        CACHE_IMAGE_ANNOTATION: ("annotation gkm.io/cacheImage is missing", "{}"),
        MUTATION_SIGNATURE_ANNOTATION: ("annotation gkm.io/mutationSig is missing", "x"),
        CACHE_SIZE_ANNOTATION: (
            "annotation gkm.io/cache-size-bytes is not what the image says",
            "1",
        ),
    }
    for key, (message, other) in broken.items():
        without = {name: value for name, value in ours(stored).items() if name != key}
        for annotations in (without, {**without, key: other}):
            reply = setup.validate(changed(stored, annotations=annotations), stored)
            assert reply.code == 403
            if key not in annotations or key == CACHE_SIZE_ANNOTATION:
                assert message in reply.message


def test_the_digest_is_immutable_while_the_image_is_unchanged(setup: CacheAdmissionSetup):
    """Even with a proof that is good: of the same object, resolved at another time."""
    stored = setup.store(a_cache())
    setup.images.tags[IMAGE] = a_digest(2)
    other = setup.store(a_cache())
    reply = setup.validate(changed(stored, annotations=ours(other)), stored)
    assert (reply.code, reply.message) == (
        403,
        "ForgedAnnotation: gkm.io/resolvedDigest is immutable when spec.image is unchanged",
    )


def test_an_unreadable_digest_is_named(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache())
    annotations = {**ours(stored), RESOLVED_DIGEST_ANNOTATION: "sha256:1"}
    reply = setup.validate(changed(stored, annotations=annotations), stored)
    assert 'annotation gkm.io/resolvedDigest is "sha256:1", no digest' in reply.message


def test_facts_that_are_signed_and_cannot_be_read_prove_nothing():
    revision = CacheRevision(
        name=CacheName(namespace="team-a", name="cache"), generation=1, image=IMAGE
    )
    subject = mutation.MutationSubject(
        namespace="team-a",
        name="cache",
        generation=1,
        image=IMAGE,
        digest=a_digest(),
        image_facts="{}",
    )
    annotations = {
        RESOLVED_DIGEST_ANNOTATION: a_digest(),
        CACHE_IMAGE_ANNOTATION: "{}",
        MUTATION_SIGNATURE_ANNOTATION: mutation.sign_mutation(subject, KEYS),
    }
    found = proven_image(annotations, revision, KEYS)
    assert "annotation gkm.io/cacheImage cannot be read" in str(found)


@pytest.mark.parametrize(("size", "is_good"), [("", True), ("1", False)])
def test_an_empty_size_says_what_none_does(size: str, is_good: bool):
    """The webhooks' match condition takes both for the same, so neither is asked about the change."""
    revision = CacheRevision(
        name=CacheName(namespace="team-a", name="cache"), generation=1, image=IMAGE
    )
    image = AdmittedImage(digest=a_digest(), facts=msgspec.structs.replace(FACTS, size_bytes=None))
    annotations = image_annotations(image, revision, KEYS, user="alice")
    found = proven_image({**annotations, CACHE_SIZE_ANNOTATION: size}, revision, KEYS)
    assert isinstance(found, ProvenImage) is is_good


def test_an_object_that_is_being_deleted_keeps_what_it_has(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache())
    stored["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "generation": 2}
    without_finalizer = changed(stored)
    without_finalizer["metadata"]["finalizers"] = []
    assert setup.validate(without_finalizer, stored).allowed
    text = "ForgedAnnotation: GKMCache team-a/cache is being deleted: its spec and its annotations cannot change any more"
    for other in (changed(stored, warm="All"), changed(stored, annotations={})):
        assert setup.validate(other, stored).message == text


def test_a_key_that_no_replica_has_any_more_proves_nothing(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache())
    setup.keys = mutation.MutationKeys(current=b"n" * 32, previous=b"m" * 32)
    assert not setup.validate(stored).allowed
    setup.images.tags[IMAGE] = a_digest(2)
    assert ours(setup.store(stored, stored))[RESOLVED_DIGEST_ANNOTATION] == a_digest(2)


@pytest.mark.parametrize(
    ("listed", "is_good"),
    [
        ({PINNED: "pass"}, True),
        ({PINNED: "pass", "registry.example.com/other@" + a_digest(3): "fail"}, True),
        ({PINNED: "fail"}, False),
        ({PINNED: "pass", PINNED.replace("@", ":1@"): "fail"}, False),
        ({PINNED.replace("@", ":1@"): "pass"}, True),
        ({PINNED.replace("@", ":2@"): "pass"}, False),
        ({IMAGE: "pass"}, False),
        ({f"registry.example.com/team/cache@{a_digest(2)}": "pass"}, False),
        ({f"registry.example.com/team/other@{a_digest()}": "pass"}, False),
        ({f"other.example.com/team/cache@{a_digest()}": "pass"}, False),
        ({"no image at all": "pass"}, False),
        ({}, False),
        ([PINNED], False),
        ({PINNED: True}, False),
    ],
    ids=str,
)
def test_w3_kyvernos_word_counts_for_exactly_this_image_and_digest(
    setup: CacheAdmissionSetup, listed: object, is_good: bool
):
    """W3: whatever else the annotation lists."""
    setup.demand(allows_unsigned=False, trusts_kyverno=True)
    image = f"registry.example.com/team/cache:1@{a_digest()}"
    cache = changed(a_cache(image=image), annotations={KYVERNO_ANNOTATION: json.dumps(listed)})
    reply = setup.mutate(cache)
    assert reply.allowed == is_good
    if not is_good:
        assert "Kyverno has not verified it" in reply.message


def test_w3_kyvernos_word_counts_only_by_the_setting(setup: CacheAdmissionSetup):
    """W3: where Kyverno keeps nobody from writing it, users do."""
    setup.demand(allows_unsigned=False)
    verified = {KYVERNO_ANNOTATION: json.dumps({PINNED: "pass"})}
    assert not setup.mutate(changed(a_cache(image=PINNED), annotations=verified)).allowed


def test_kyvernos_word_does_not_replace_the_clusters_policy(setup: CacheAdmissionSetup):
    setup.demand(allows_unsigned=False, trusts_kyverno=True, signers=a_policy("alice"))
    verified = {KYVERNO_ANNOTATION: json.dumps({PINNED: "pass"})}
    cache = changed(a_cache(image=PINNED), annotations=verified)
    assert "kernel_caches.verification" in setup.mutate(cache).message
    setup.images.signed[a_digest()] = {"alice"}
    assert setup.mutate(cache).allowed


def test_kyvernos_digest_is_taken_at_the_second_call(setup: CacheAdmissionSetup):
    """Kyverno writes the digest into the image; the webhook is called again, and signs for that image."""
    first = setup.store(a_cache())
    pinned = changed(a_cache(image=f"{IMAGE}@{a_digest(4)}"), annotations=ours(first))
    stored = setup.store(pinned)
    assert ours(stored)[RESOLVED_DIGEST_ANNOTATION] == a_digest(4)


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1, 1.0), ({"a": 1}, {"a": None}), ("1", 1)], ids=str
)
def test_specs_are_compared_as_the_api_server_does(one: object, other: object):
    old, new = (a_cache(x=value) for value in (one, other))
    request = CacheRequest(
        name=CacheName(namespace="team-a", name="cache"),
        user="alice",
        new=msgspec.convert(new, ReviewedCache),
        old=msgspec.convert(old, ReviewedCache),
    )
    assert not request.has_same_spec
    assert request.revision.generation == 1
