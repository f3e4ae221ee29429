"""A policy names its signers, wholly (W1)."""

import pytest

from api.kinds.gkmcache import MAX_IDENTITIES, MAX_KEYS, SignerIdentity, Verification
from kernelcache.signatures.policy import SignaturePolicyError, read_signature_policy
from tests.support.sigstore_instance import new_key, public_pem

PEM = public_pem(new_key())
IDENTITY = SignerIdentity(subject="builder@example.com", issuer="https://issuer.example.com")


def identity(subject: str = IDENTITY.subject, issuer: str = IDENTITY.issuer) -> SignerIdentity:
    return SignerIdentity(subject=subject, issuer=issuer)


def test_keys_and_identities_are_kept():
    policy = read_signature_policy(Verification(keys=[PEM], identities=[IDENTITY]))
    assert [key.fingerprint[:7] for key in policy.keys] == ["SHA256:"]
    assert policy.identities == {IDENTITY}


@pytest.mark.parametrize(
    ("keys", "identities", "message"),
    [
        pytest.param(
            [],
            [],
            "verification lists neither keys nor identities: list the public keys or the identities"
            " whose signatures are accepted",
            id="W1: nobody",
        ),
        pytest.param(
            [],
            [identity(issuer=" ")],
            "verification.identities[0].issuer is empty: subject and issuer are both required",
            id="W1: any issuer",
        ),
        pytest.param(
            [],
            [IDENTITY, identity(subject="")],
            "verification.identities[1].subject is empty: subject and issuer are both required",
            id="W1: any subject",
        ),
        pytest.param(
            [],
            [identity(subject="*@example.com")],
            'verification.identities[0].subject is "*@example.com": it is compared as a whole,'
            " patterns with * are not possible; list each identity",
            id="W1: a pattern",
        ),
        pytest.param(
            [PEM, "x"],
            [],
            "verification.keys[1] is 0 PEM blocks: list each public key as an element of its own",
            id="no key",
        ),
        pytest.param(
            [PEM] * (MAX_KEYS + 1),
            [],
            "verification.keys has 17 elements; at most 16 are possible",
            id="too many keys",
        ),
        pytest.param(
            [],
            [IDENTITY] * (MAX_IDENTITIES + 1),
            "verification.identities has 65 elements; at most 64 are possible",
            id="too many identities",
        ),
    ],
)
def test_what_is_no_policy_is_refused(
    keys: list[str], identities: list[SignerIdentity], message: str
):
    with pytest.raises(SignaturePolicyError) as raised:
        read_signature_policy(Verification(keys=keys, identities=identities))
    assert str(raised.value) == message


def test_a_verification_with_a_mode_alone_is_no_policy():
    with pytest.raises(SignaturePolicyError):
        read_signature_policy(Verification())
