"""What makes a trust root, and that it costs nothing where it is not used."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelcache.signatures.trust_root import (
    MAX_TRUST_ROOT_BYTES,
    TrustRootError,
    read_trust_root,
)
from tests.support.sigstore_instance import SigstoreInstance, b64

ROOT = Path(__file__).parents[4]
INSTANCE = SigstoreInstance()
MODULES = sorted(
    f"kernelcache.signatures.{path.stem}"
    for path in (ROOT / "kernelcache" / "signatures").glob("*.py")
    if path.stem != "__init__"
)


def log_with(key: str) -> list[dict[str, Any]]:
    (log,) = INSTANCE.trust_root()["tlogs"]
    return [log | {"publicKey": log["publicKey"] | {"rawBytes": key}}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            b" " * (MAX_TRUST_ROOT_BYTES + 1),
            "the trust root has more than 1048576 bytes",
            id="too large",
        ),
        pytest.param(
            b"{",
            "the trust root cannot be read: Input data was truncated",
            id="no JSON",
        ),
        pytest.param(
            b"{}",
            "the trust root cannot be read: Object missing required field `certificateAuthorities`",
            id="something else",
        ),
        pytest.param(
            INSTANCE.trust_root_file(certificateAuthorities=[]),
            "the trust root has no certificateAuthorities: at least one is needed",
            id="no authority",
        ),
        pytest.param(
            INSTANCE.trust_root_file(tlogs=[]),
            "the trust root has no tlogs: at least one is needed",
            id="no transparency log",
        ),
        pytest.param(
            INSTANCE.trust_root_file(ctlogs=[]),
            "the trust root has no ctlogs: at least one is needed",
            id="no certificate log",
        ),
        pytest.param(
            INSTANCE.trust_root_file(tlogs=log_with(b64(b"x"))),
            "the trust root has, as the key of a log, no public key in DER form",
            id="no key",
        ),
        pytest.param(
            INSTANCE.trust_root_file(
                certificateAuthorities=[{"certChain": {"certificates": [{"rawBytes": "AAAA"}]}}]
            ),
            "a certificate in the trust root cannot be read",
            id="no certificate",
        ),
    ],
)
def test_what_is_no_trust_root_is_refused(content: bytes, message: str):
    with pytest.raises(TrustRootError) as raised:
        read_trust_root(content)
    assert str(raised.value) == message


def test_a_period_without_an_end_may_say_so():
    period = {"start": "2026-01-01T00:00:00Z", "end": None}
    (log,) = INSTANCE.trust_root()["tlogs"]
    logs = [log | {"publicKey": log["publicKey"] | {"validFor": period}}]
    (found,) = read_trust_root(INSTANCE.trust_root_file(tlogs=logs)).transparency_logs.values()
    assert (found.start.year, found.end.year) == (2026, 9999)


def test_what_sigstore_cannot_use_is_refused():
    with pytest.raises(TrustRootError, match=r"^the trust root is not usable for bundles: "):
        read_trust_root(INSTANCE.trust_root_file(mediaType="application/x"))


def test_sigstore_is_not_imported_before_a_keyless_signature_needs_it():
    script = f"""
import sys
{"".join(f"import {module}{chr(10)}" for module in MODULES)}
print([name for name in sys.modules if name.partition('.')[0] in ('sigstore', 'requests', 'tuf')])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert len(MODULES) > 10
    assert done.stdout == "[]\n"
