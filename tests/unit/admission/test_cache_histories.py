"""Whatever users do, a stored cache proves what its image was, and that it was verified as demanded at that time.

The model is a record of who had signed what and which keys were demanded when a digest came in; it shares no code
with admission. Users create, change, replace without annotations, replay annotations of any object at any time,
and go past the mutating webhook; tags move, signatures come and keys of the control plane are rotated.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from api.image_reference import Digest
from api.names import RESOLVED_DIGEST_ANNOTATION
from kernelcache.signatures.mutation import MutationKeys
from tests.support.cache_admission import (
    CacheAdmissionSetup,
    RefusedError,
    a_cache,
    a_digest,
    a_verification,
    ours,
)

NAMES = [("team-a", "one"), ("team-a", "two"), ("team-b", "one"), (None, "one")]
IMAGES = [f"registry.example.com/team/cache:{tag}" for tag in (1, 2)]
PINNED = [f"registry.example.com/team/cache@{a_digest(number)}" for number in (1, 2)]
SIGNER_SETS = [("alice",), ("bob",), ("alice", "bob")]

names = st.sampled_from(NAMES)
images = st.sampled_from(IMAGES + PINNED)
signer_sets = st.sampled_from(SIGNER_SETS)
digests = st.sampled_from([a_digest(number) for number in range(1, 4)])


class CacheHistories(RuleBasedStateMachine):
    """Two keys of users; nobody may be unsigned."""

    def __init__(self) -> None:
        super().__init__()
        self.setup = CacheAdmissionSetup()
        self.setup.demand(allows_unsigned=False)
        self.setup.images.tags = {image: a_digest(1) for image in IMAGES}
        self.stored: dict[Any, dict[str, Any]] = {}
        self.replayable: list[dict[str, str]] = [{}]
        self.meanings: dict[str, set[Digest]] = {image: {a_digest(1)} for image in IMAGES}
        # image -> what its tag ever stood for
        self.signed: dict[Digest, set[str]] = {a_digest(1): {"alice"}}
        self.setup.images.signed = self.signed
        self.admitted: set[tuple[Any, int, str, str]] = set()
        # what went through the mutating webhook: name, generation, image, digest
        self.keys = 0
        self.codes: set[int] = set()

    @rule(image=st.sampled_from(IMAGES), digest=digests)
    def move_tag(self, image: str, digest: Digest) -> None:
        self.setup.images.tags[image] = digest
        self.meanings[image].add(digest)

    @rule(digest=digests, signer=st.sampled_from(["alice", "bob"]))
    def sign(self, digest: Digest, signer: str) -> None:
        self.signed.setdefault(digest, set()).add(signer)

    @rule()
    def rotate(self) -> None:
        keys = self.setup.keys
        assert keys is not None
        self.keys += 1
        self.setup.keys = MutationKeys(
            current=f"key {self.keys}".encode().ljust(32), previous=keys.current
        )
        for name, stored in list(self.stored.items()):  # as the leader has them signed again
            self.stored[name] = self.setup.store(stored, stored)

    @rule(
        name=names,
        image=images,
        signers=signer_sets,
        warm=st.sampled_from(["All", "Demand"]),
        replayed=st.integers(0, 50),
        skips_mutation=st.booleans(),
    )
    def write(
        self,
        name: tuple[str | None, str],
        *,
        image: str,
        signers: tuple[str, ...],
        warm: str,
        replayed: int,
        skips_mutation: bool,
    ) -> None:
        """Create or replace an object, with annotations from anywhere."""
        cache = a_cache(
            name[1],
            image,
            namespace=name[0],
            warm=warm,
            verification=a_verification(*signers),
        )
        annotations = self.replayable[replayed % len(self.replayable)]
        cache["metadata"]["annotations"] = dict(annotations)
        old = self.stored.get(name)
        store = self.setup.store_unmutated if skips_mutation else self.setup.store
        try:
            stored = store(cache, old)
        except RefusedError as refused:
            self.codes.add(refused.code)
            return
        digest = Digest(ours(stored)[RESOLVED_DIGEST_ANNOTATION])
        fact = (name, stored["metadata"]["generation"], image, digest)
        if skips_mutation:
            assert fact in self.admitted
        else:
            self.check_change(old, stored, set(signers))
            self.admitted.add(fact)
        self.stored[name] = stored
        self.replayable.append(ours(stored))

    @rule(name=names)
    def delete(self, name: tuple[str | None, str]) -> None:
        self.stored.pop(name, None)

    def check_change(
        self, old: dict[str, Any] | None, stored: dict[str, Any], signers: set[str]
    ) -> None:
        digest = Digest(ours(stored)[RESOLVED_DIGEST_ANNOTATION])
        same_image = old is not None and old["spec"]["image"] == stored["spec"]["image"]
        if old is not None and same_image:
            assert ours(old)[RESOLVED_DIGEST_ANNOTATION] == digest
        if old is None or old["spec"] != stored["spec"]:
            # Signatures are never taken back here, so that those of then are among those of now.
            assert self.signed.get(digest, set()) & signers

    @invariant()
    def refusals_are_denials(self) -> None:
        assert self.codes <= {403}

    @invariant()
    def every_object_proves_its_image(self) -> None:
        for stored in self.stored.values():
            image, digest = stored["spec"]["image"], ours(stored)[RESOLVED_DIGEST_ANNOTATION]
            assert image.endswith(f"@{digest}") or digest in self.meanings[image]
            assert self.setup.validate(stored, stored).allowed


TestCacheHistories = CacheHistories.TestCase
PROFILE = settings()
TestCacheHistories.settings = settings(
    max_examples=max(100, PROFILE.max_examples), stateful_step_count=30
)
