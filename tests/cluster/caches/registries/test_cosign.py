"""cosign, unmodified: what it signs by key is accepted, and what is signed here it verifies, in both forms.

On a registry with the referrers API and on one without. Nothing needs a network: no transparency log is asked.
"""

import asyncio
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from api.image_reference import ImageReference
from cli.exit_status import FAILED, OK
from cli.main import run as run_command
from simulator.registry.triton_cache import write_triton_cache
from tests.cluster.caches.registries.conftest import Registry
from tests.cluster.environment import binaries, registries
from tests.support.cosign_samples import KEYS

pytestmark = pytest.mark.long

PASSWORD = "a password"
by_key = pytest.mark.parametrize("kind", [item for item in KEYS if item != "ed25519"])
FORMS = {"simple signing": "false", "bundle": "true"}


@final
@dataclass(frozen=True)
class Signer:
    """A key in files: private, encrypted, public, and in cosign's own form."""

    private: Path
    encrypted: Path
    public: Path
    of_cosign: Path


@final
@dataclass(frozen=True)
class Cosign:
    program: Path
    registry: Registry

    async def sign(self, image: ImageReference, signer: Signer, form: str) -> None:
        await self._run(
            "sign",
            f"--key={signer.of_cosign}",
            "--yes",
            "--tlog-upload=false",
            "--use-signing-config=false",
            f"--new-bundle-format={FORMS[form]}",
            *self._access(),
            str(image),
        )

    async def signatures(
        self, image: ImageReference, key: Path, form: str, *, sha: int = 256
    ) -> int:
        """Return how many signatures of the key it verifies; 0 where it refuses the image."""
        code, out = await self._outcome(
            "verify",
            f"--key={key}",
            "--insecure-ignore-tlog",
            f"--new-bundle-format={FORMS[form]}",
            f"--signature-digest-algorithm=sha{sha}",
            "--output=json",
            *self._access(),
            str(image),
        )
        return len(json.loads(out)) if code == 0 else 0

    async def import_key(self, plain: Path, prefix: Path) -> Path:
        await self._run("import-key-pair", f"--key={plain}", f"--output-key-prefix={prefix}")
        return prefix.with_suffix(".key")

    def _access(self) -> list[str]:
        return [
            f"--registry-cacert={self.registry.running.ca_file}",
            f"--registry-username={registries.USER}",
            f"--registry-password={registries.PASSWORD}",
        ]

    async def _run(self, *arguments: str) -> None:
        code, out = await self._outcome(*arguments)
        assert code == 0, out

    async def _outcome(self, *arguments: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            self.program,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "COSIGN_PASSWORD": ""},
        )
        out, err = await process.communicate()
        return process.returncode, out.decode() if process.returncode == 0 else err.decode()


@pytest.fixture(scope="session")
def cosign_program(progress: Callable[[str], None]) -> Path:
    return binaries.find_cosign(progress)


@pytest.fixture
def cosign(cosign_program: Path, registry: Registry) -> Cosign:
    return Cosign(cosign_program, registry)


@pytest.fixture
async def signer(cosign: Cosign, tmp_path: Path, kind: str) -> Signer:
    return await new_signer(cosign, tmp_path, kind)


async def new_signer(cosign: Cosign, directory: Path, kind: str) -> Signer:
    key = KEYS[kind]()
    name = secrets.token_hex(4)
    private, encrypted = directory / f"{name}.pem", directory / f"{name}.encrypted.pem"
    form = Encoding.PEM, PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(*form, NoEncryption()))
    encrypted.write_bytes(key.private_bytes(*form, BestAvailableEncryption(PASSWORD.encode())))
    public = directory / f"{name}.public.pem"
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    of_cosign = await cosign.import_key(private, directory / name)
    return Signer(private=private, encrypted=encrypted, public=public, of_cosign=of_cosign)


@final
@dataclass(frozen=True)
class Commands:
    """Our commands, with what they need to reach the registry."""

    registry: Registry
    login: Path

    async def cache(self, *arguments: object) -> int:
        access = ["--ca-file", str(self.registry.running.ca_file)]
        access += ["--registry-config", str(self.login)]
        return await asyncio.to_thread(run_command, ["cache", *map(str, arguments), *access])


@pytest.fixture
def commands(registry: Registry, tmp_path: Path) -> Commands:
    login = tmp_path / "config.json"
    user = {"username": registries.USER, "password": registries.PASSWORD}
    login.write_text(json.dumps({"auths": {registry.running.host: user}}))
    return Commands(registry, login)


@pytest.fixture
async def image(
    registry: Registry, commands: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> ImageReference:
    """A packed cache, by its digest."""
    reference = registry.reference(f"team/{secrets.token_hex(4)}", "v1")
    cache = write_triton_cache(tmp_path / "cache")
    assert await commands.cache("pack", cache, "--image", reference) == OK
    capsys.readouterr()
    return reference.with_digest((await registry.client.resolve(reference)).digest)


@by_key
async def test_what_is_signed_here_cosign_verifies(
    cosign: Cosign,
    commands: Commands,
    signer: Signer,
    image: ImageReference,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = await new_signer(cosign, tmp_path, "ecdsa-p256")
    monkeypatch.setenv("GPU_SIGNING_PASSWORD", PASSWORD)
    for key in (signer.encrypted, other.private, signer.private):
        assert await commands.cache("sign", image, "--key", key) == OK
    stranger = await new_signer(cosign, tmp_path, "ecdsa-p256")
    for form in FORMS:
        # One for each of the two keys: the third time nothing is added.
        assert await cosign.signatures(image, signer.public, form) == 1
        assert await cosign.signatures(image, other.public, form) == 1
        assert await cosign.signatures(image, stranger.public, form) == 0


async def test_a_packed_cache_is_signed_at_once(
    cosign: Cosign, commands: Commands, registry: Registry, tmp_path: Path
) -> None:
    signer = await new_signer(cosign, tmp_path, "ecdsa-p256")
    cache = write_triton_cache(tmp_path / "cache")
    reference = registry.reference(f"team/{secrets.token_hex(4)}", "v1")
    arguments = ["pack", cache, "--image", reference, "--sign-key", signer.private]
    assert await commands.cache(*arguments) == OK
    for form in FORMS:
        assert await cosign.signatures(reference, signer.public, form) == 1
    assert await commands.cache("verify", reference, "--key", signer.public) == OK


@by_key
@pytest.mark.parametrize("form", FORMS)
async def test_what_cosign_signs_is_accepted_and_stays_beside_ours(
    cosign: Cosign,
    commands: Commands,
    signer: Signer,
    image: ImageReference,
    form: str,
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = await new_signer(cosign, tmp_path, "ecdsa-p256")
    # With P-384 it signs another hash than it verifies unless told.
    sha = 384 if kind == "ecdsa-p384" else 256
    assert await commands.cache("verify", image, "--key", signer.public) == FAILED
    assert "it has no signature" in capsys.readouterr().err
    await cosign.sign(image, signer, form)
    assert await commands.cache("verify", image, "--key", signer.public) == OK
    assert f"{image.digest} is signed by key SHA256:" in capsys.readouterr().out
    assert await commands.cache("verify", image, "--key", ours.public) == FAILED
    assert "no listed key has made it" in capsys.readouterr().err
    assert await commands.cache("sign", image, "--key", ours.private) == OK
    for item in FORMS:
        assert await cosign.signatures(image, ours.public, item) == 1
    assert await cosign.signatures(image, signer.public, form, sha=sha) == 1
    # Of the form that cosign has not written, ours is the only one; and cosign can add its own to it.
    (missing,) = set(FORMS) - {form}
    assert await cosign.signatures(image, signer.public, missing, sha=sha) == 0
    await cosign.sign(image, signer, missing)
    for item in FORMS:
        assert await cosign.signatures(image, signer.public, item, sha=sha) == 1
        assert await cosign.signatures(image, ours.public, item) == 1
