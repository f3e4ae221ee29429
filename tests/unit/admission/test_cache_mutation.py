"""Caches at the mutating webhook: what is resolved, what is kept, what is put back, and what each refusal says."""

import json

import pytest

from admission.caches.images import ImageFault
from api.names import (
    CACHE_IMAGE_ANNOTATION,
    CACHE_SIZE_ANNOTATION,
    GKM_ANNOTATIONS,
    LAST_MUTATED_BY_ANNOTATION,
    MUTATION_SIGNATURE_ANNOTATION,
    RESOLVED_DIGEST_ANNOTATION,
)
from kernelcache.signatures.mutation import MutationKeys
from tests.support.cache_admission import (
    IMAGE,
    KEYS,
    CacheAdmissionSetup,
    RefusedError,
    a_cache,
    a_digest,
    a_policy,
    a_verification,
    changed,
    ours,
)

MESSAGE_OF_NOBODY = (
    "ImageNotVerified: registry.example.com/team/cache:1: no signer is named whose signature of the image is good: list"
    ' keys or identities in spec.verification, as `spec: {verification: {keys: ["-----BEGIN PUBLIC KEY-----…"]}}`, or in'
    " the control plane's setting kernel_caches.verification; the line `settings: {kernel_caches: {verification: {allow_unsigned: true}}}` of the"
    " chart's values lets unsigned images in"
)


@pytest.fixture
def setup() -> CacheAdmissionSetup:
    return CacheAdmissionSetup()


def test_creation_resolves_the_image_and_says_who_asked(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache(), user="alice")
    annotations = ours(stored)
    assert set(annotations) == set(GKM_ANNOTATIONS)
    assert annotations[RESOLVED_DIGEST_ANNOTATION] == a_digest()
    assert annotations[LAST_MUTATED_BY_ANNOTATION] == "alice"
    assert annotations[CACHE_SIZE_ANNOTATION] == "4000"
    assert json.loads(annotations[CACHE_IMAGE_ANNOTATION])["type"] == "triton"


def test_w4_the_user_is_the_one_of_the_request(setup: CacheAdmissionSetup):
    """W4: what the object says of its author does not count, and a review without a user is none."""
    claimed = changed(a_cache(), annotations={LAST_MUTATED_BY_ANNOTATION: "root"})
    assert ours(setup.store(claimed, user="eve"))[LAST_MUTATED_BY_ANNOTATION] == "eve"
    assert setup.mutate(a_cache(), user="").message == "MalformedRequest: the review names no user"


def test_annotations_of_others_are_left_alone(setup: CacheAdmissionSetup):
    stored = setup.store(changed(a_cache(), annotations={"example.com/a~b": "x"}))
    assert stored["metadata"]["annotations"]["example.com/a~b"] == "x"
    dropped = changed(stored, annotations={"example.com/c": "y"})
    assert setup.store(dropped, stored)["metadata"]["annotations"] == {
        "example.com/c": "y",
        **ours(stored),
    }


def test_a_second_call_changes_nothing(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache())
    assert setup.mutate(stored).patch == []
    assert setup.mutate(stored, stored).patch == []


@pytest.mark.parametrize("annotations", [None, {}, {RESOLVED_DIGEST_ANNOTATION: a_digest(9)}])
def test_w5_users_can_neither_drop_nor_change_annotations(
    setup: CacheAdmissionSetup, annotations: dict[str, str] | None
):
    """W5: a label, a replacement without annotations, a digest of one's own: the stored set stays."""
    stored = setup.store(a_cache(), user="alice")
    setup.images.tags[IMAGE] = a_digest(2)
    bare = changed(a_cache(), annotations=annotations)
    bare["metadata"]["labels"] = {"a": "b"}
    again = setup.store(bare, stored, user="bob")
    assert ours(again) == ours(stored)
    assert again["metadata"]["generation"] == 1
    assert len(setup.images.asked) == 1


def test_the_digest_stays_while_the_image_does(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache(), user="alice")
    setup.images.tags[IMAGE] = a_digest(2)
    warmer = setup.store(changed(stored, warm="Demand"), stored, user="bob")
    assert ours(warmer)[RESOLVED_DIGEST_ANNOTATION] == a_digest()
    assert ours(warmer)[LAST_MUTATED_BY_ANNOTATION] == "bob"
    assert warmer["metadata"]["generation"] == 2
    assert len(setup.images.asked) == 1
    other = setup.store(
        changed(warmer, image=f"registry.example.com/team/cache@{a_digest(3)}"), warmer
    )
    assert ours(other)[RESOLVED_DIGEST_ANNOTATION] == a_digest(3)


def test_the_same_tag_by_another_name_is_resolved_again(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache())
    setup.images.tags["registry.example.com/team/cache:2"] = a_digest(2)
    moved = setup.store(changed(stored, image="registry.example.com/team/cache:2"), stored)
    assert ours(moved)[RESOLVED_DIGEST_ANNOTATION] == a_digest(2)


def test_an_object_from_before_admission_is_resolved_at_its_next_change(setup: CacheAdmissionSetup):
    old = a_cache()
    old["metadata"]["generation"] = 7
    stored = setup.store(old, old)
    assert ours(stored)[RESOLVED_DIGEST_ANNOTATION] == a_digest()
    forged = changed(old, annotations={**ours(stored), MUTATION_SIGNATURE_ANNOTATION: "x"})
    assert ours(setup.store(forged, forged)) == ours(stored)


def test_annotations_under_the_previous_key_are_signed_again(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache(), user="alice")
    setup.keys = MutationKeys(current=b"n" * 32, previous=KEYS.current)
    again = setup.store(stored, stored, user="bob")
    assert ours(again)[MUTATION_SIGNATURE_ANNOTATION] != ours(stored)[MUTATION_SIGNATURE_ANNOTATION]
    assert ours(again)[LAST_MUTATED_BY_ANNOTATION] == "alice"
    setup.keys = MutationKeys(current=b"n" * 32, previous=None)
    assert ours(setup.store(again, again)) == ours(again)
    assert len(setup.images.asked) == 1


def test_what_is_being_deleted_passes_with_what_is_stored(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache())
    stored["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "generation": 2}
    setup.keys = None
    setup.images.fault = ImageFault(text="away", is_transient=True)
    dropped = changed(stored, annotations={})
    assert ours(setup.store(dropped, stored)) == ours(stored)


def test_a_creation_that_claims_to_be_a_deletion_is_resolved(setup: CacheAdmissionSetup):
    setup.images.fault = ImageFault(text="away", is_transient=True)
    claimed = a_cache()
    claimed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not setup.mutate(claimed).allowed


def test_an_update_cannot_claim_to_be_a_deletion(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache())
    setup.images.fault = ImageFault(text="away", is_transient=True)
    claimed = changed(stored, image=f"a/b@{a_digest(5)}")
    claimed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not setup.mutate(claimed, stored).allowed


def test_dry_run_resolves(setup: CacheAdmissionSetup):
    assert setup.mutate(a_cache(), dryRun=True).patch == setup.mutate(a_cache()).patch


@pytest.mark.parametrize(
    ("cache", "code", "message"),
    [
        (
            a_cache(image=""),
            422,
            "InvalidCache: spec.image: the image is empty: name one, as registry.example.com/team/cache:1.0",
        ),
        (
            a_cache(image=None),
            422,
            "InvalidCache: spec.image: the image is empty: name one, as registry.example.com/team/cache:1.0",
        ),
        (
            a_cache(image="https://a.example/b"),
            422,
            'InvalidCache: spec.image: "https://a.example/b" names no image: a reference has no scheme: remove everything'
            " up to ://",
        ),
        (
            a_cache(name="A"),
            422,
            'InvalidCache: metadata.name: "A" is no name of a kernel cache: lower-case letters, digits, "-" and "." are'
            " possible, at most 246",
        ),
        (
            a_cache(name=""),
            422,
            "InvalidCache: metadata.name is needed: metadata.generateName alone is not possible for a cache",
        ),
        (
            a_cache(warm=0),
            422,
            "InvalidCache: spec: Expected `int` >= 1 - at `$.warm`",
        ),
        (
            a_cache(verification={}),
            422,
            "InvalidCache: spec.verification lists neither keys nor identities: list the public keys or the identities"
            " whose signatures are accepted",
        ),
        (
            a_cache(namespace=None, pullSecrets=[{"name": "regcred"}]),
            422,
            "InvalidCache: spec.pullSecrets: a ClusterGKMCache may not name regcred: the control plane's setting"
            " kernel_caches.pull_secrets lists those that it may name",
        ),
    ],
    ids=["empty", "absent", "scheme", "name", "generateName", "warm", "nobody", "secret"],
)
def test_each_wrong_field_has_one_exact_message(
    setup: CacheAdmissionSetup, cache: dict[str, object], code: int, message: str
):
    reply = setup.mutate(cache)
    assert (reply.code, reply.message) == (code, message)
    assert setup.images.asked == []


def test_a_registry_that_is_away_is_told_as_such(setup: CacheAdmissionSetup):
    setup.images.fault = ImageFault(text="a/b:1: it is away; try again", is_transient=True)
    reply = setup.mutate(a_cache())
    assert (reply.code, reply.message) == (503, "RegistryUnavailable: a/b:1: it is away; try again")
    assert reply.response["status"]["details"] == {"retryAfterSeconds": 1}
    setup.images.fault = ImageFault(text="a/b:1: not found", is_transient=False)
    reply = setup.mutate(a_cache())
    assert (reply.code, reply.message) == (422, "ImageUnusable: a/b:1: not found")


def test_nothing_is_decided_without_the_key(setup: CacheAdmissionSetup):
    stored = setup.store(a_cache())
    setup.keys = None
    for reply in (setup.mutate(a_cache()), setup.validate(stored)):
        assert reply.code == 503
        assert "its key for the annotations of caches is not loaded yet" in reply.message


def test_an_image_for_which_nobody_names_a_signer_is_refused(setup: CacheAdmissionSetup):
    """G16."""
    setup.demand(allows_unsigned=False)
    reply = setup.mutate(a_cache())
    assert (reply.code, reply.message) == (403, MESSAGE_OF_NOBODY)
    assert setup.images.asked == []


def test_w1_an_image_needs_a_signer_who_is_listed(setup: CacheAdmissionSetup):
    """W1: a signature of anybody is none."""
    setup.images.signed[a_digest()] = {"bob"}
    reply = setup.mutate(a_cache(verification=a_verification("alice")))
    assert (reply.code, reply.message) == (
        403,
        f"ImageNotVerified: {IMAGE}: spec.verification: {a_digest()}: not accepted: it has no signature",
    )
    assert setup.mutate(a_cache(verification=a_verification("alice", "bob"))).allowed


def test_mode_warn_lets_it_in_with_a_warning(setup: CacheAdmissionSetup):
    reply = setup.mutate(a_cache(verification=a_verification("alice", mode="Warn")))
    assert reply.allowed
    assert reply.warnings[0].startswith(f"spec.verification: {a_digest()}:")


def test_a_key_that_is_taken_off_is_noticed_at_that_change(setup: CacheAdmissionSetup):
    setup.images.signed[a_digest()] = {"alice"}
    stored = setup.store(a_cache(verification=a_verification("alice", "bob")))
    setup.images.tags[IMAGE] = a_digest(2)
    with pytest.raises(RefusedError, match=r"spec\.verification: .* it has no signature"):
        setup.store(changed(stored, verification=a_verification("bob")), stored)
    again = setup.store(changed(stored, verification=a_verification("alice")), stored)
    assert ours(again)[RESOLVED_DIGEST_ANNOTATION] == a_digest()
    assert [item.reference.digest for item in setup.images.asked] == [None, a_digest(), a_digest()]


def test_a_namespace_can_add_to_what_the_cluster_demands_and_take_nothing_from_it(
    setup: CacheAdmissionSetup,
):
    setup.demand(signers=a_policy("alice"))
    with_own = a_cache(verification=a_verification("bob", mode="Warn"))
    setup.images.signed[a_digest()] = {"bob"}
    assert "kernel_caches.verification" in setup.mutate(with_own).message
    setup.images.signed[a_digest()] = {"alice"}
    assert "spec.verification:" in setup.mutate(with_own).message
    setup.images.signed[a_digest()] = {"alice", "bob"}
    assert setup.mutate(with_own).warnings == [
        "spec.verification.mode Warn has no effect: the cluster's verification is enforced"
    ]
    setup.images.signed[a_digest()] = {"bob"}
    of_cluster = a_cache(namespace=None, verification=a_verification("bob"))
    assert setup.mutate(of_cluster).allowed
    assert not setup.mutate(a_cache(namespace=None)).allowed


def test_a_cluster_that_only_warns_leaves_the_namespace_its_own_mode(setup: CacheAdmissionSetup):
    setup.demand(signers=a_policy("alice"), is_enforced=False)
    reply = setup.mutate(a_cache(verification=a_verification("bob", mode="Warn")))
    assert [warning.partition(":")[0] for warning in reply.warnings] == [
        "kernel_caches.verification",
        "spec.verification",
    ]
    assert setup.mutate(a_cache()).allowed
    assert not setup.mutate(a_cache(verification=a_verification("bob"))).allowed


def test_w6_pull_secrets_are_those_of_the_namespace(setup: CacheAdmissionSetup):
    """W6: of a ClusterGKMCache they are the control plane's, and only those of the setting."""
    setup.pull_secrets = frozenset({"regcred"})
    secrets = [{"name": "regcred"}]
    setup.mutate(a_cache(pullSecrets=secrets))
    setup.mutate(a_cache(namespace=None, pullSecrets=secrets))
    asked = [str(secret) for item in setup.images.asked for secret in item.pull_secrets]
    assert asked == ["team-a/regcred", "gpu-control-plane/regcred"]


def test_fields_without_effect_are_named(setup: CacheAdmissionSetup):
    reply = setup.mutate(a_cache(accessModes=["ReadOnlyMany"], storageClassName="fast"))
    assert reply.warnings == ["spec.storageClassName, spec.accessModes have no effect here"]


def test_a_deletion_is_no_matter_of_these_webhooks(setup: CacheAdmissionSetup):
    assert setup.mutate(a_cache(), operation="DELETE").patch == []
    assert setup.validate(a_cache(), operation="DELETE").allowed
