"""The signature of a resolved digest proves it for one object, at one generation (W2, W5)."""

import dataclasses
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.image_reference import Digest
from kernelcache.signatures.mutation import (
    MutationKeys,
    MutationSubject,
    SignedWith,
    mutation_signed_with,
    sign_mutation,
)

NEW, OLD = os.urandom(32), os.urandom(32)
KEYS = MutationKeys(current=NEW, previous=None)
SUBJECT = MutationSubject(
    namespace="team",
    name="cache",
    generation=3,
    image="registry.example.com/cache:1",
    digest=Digest("sha256:" + "a" * 64),
    image_facts='{"type":"triton"}',
)


def test_it_is_recognised_for_the_subject_it_was_made_for():
    signature = sign_mutation(SUBJECT, KEYS)
    assert mutation_signed_with(SUBJECT, signature, KEYS) is SignedWith.CURRENT
    assert len(signature) == 44


def test_its_form_is_kept_because_objects_keep_it():
    keys = MutationKeys(current=bytes(32), previous=None)
    assert sign_mutation(SUBJECT, keys) == "cFc3uROjPM8XRF1w6gPquyX9pNXR49VuPrTdwfBRHkg="


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"namespace": "other"}, id="W2: namespace"),
        pytest.param({"namespace": ""}, id="W2: of the cluster"),
        pytest.param({"name": "other"}, id="W2: name"),
        pytest.param({"generation": 4}, id="W2: generation"),
        pytest.param({"image": "registry.example.com/cache:2"}, id="W2: image"),
        pytest.param({"digest": "sha256:" + "b" * 64}, id="W5: digest"),
        pytest.param({"image_facts": '{"type":"vllm"}'}, id="W5: what the image says"),
        # The same characters, moved over a border
        pytest.param({"namespace": "teamc", "name": "ache"}, id="W2: border"),
    ],
)
def test_it_proves_nothing_for_another_subject(change: dict[str, object]):
    signature = sign_mutation(SUBJECT, KEYS)
    other = dataclasses.replace(SUBJECT, **change)  # type: ignore[arg-type]  # each is of its type
    assert mutation_signed_with(other, signature, KEYS) is None


@pytest.mark.parametrize("text", ["", "é", "\ud800", "A" * 43 + "="])
def test_another_text_is_no_signature(text: str):
    assert mutation_signed_with(SUBJECT, text, KEYS) is None


def test_during_a_rotation_the_previous_key_verifies_and_is_told_apart():
    signature = sign_mutation(SUBJECT, MutationKeys(current=OLD, previous=None))
    assert mutation_signed_with(SUBJECT, signature, KEYS) is None
    both = MutationKeys(current=NEW, previous=OLD)
    assert mutation_signed_with(SUBJECT, signature, both) is SignedWith.PREVIOUS
    assert sign_mutation(SUBJECT, both) == sign_mutation(SUBJECT, KEYS)


@pytest.mark.parametrize("keys", [(b"x" * 31, None), (NEW, b""), (b"", None)])
def test_a_short_key_is_refused(keys: tuple[bytes, bytes | None]):
    current, previous = keys
    with pytest.raises(ValueError, match="at least 32 are needed"):
        MutationKeys(current=current, previous=previous)


def test_no_key_is_shown():
    both = MutationKeys(current=b"x" * 32, previous=b"y" * 32)
    assert "x" * 8 not in repr(both)
    assert "y" * 8 not in repr(both)


subjects = st.builds(
    MutationSubject,
    namespace=st.text(max_size=3),
    name=st.text(max_size=3),
    generation=st.integers(-1, 12),
    image=st.text(max_size=3),
    digest=st.text(max_size=3),
    image_facts=st.text(max_size=3),
)


@given(subjects, subjects)
def test_two_subjects_have_one_signature_only_if_they_are_equal(
    one: MutationSubject, other: MutationSubject
):
    is_same = sign_mutation(one, KEYS) == sign_mutation(other, KEYS)
    assert is_same == (one == other)
