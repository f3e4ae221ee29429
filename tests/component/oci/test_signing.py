"""`cache sign` and `cache verify` on a registry: both forms, idempotent, beside others; one line for each mistake."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from api.image_reference import Digest, ImageReference
from cli.exit_status import FAILED, MISUSED, OK
from cli.main import run
from kernelcache.image_format import OCI_INDEX, BlobDescriptor
from kernelcache.signatures.material import MAX_SIGNATURES, SIMPLE_SIGNING_TYPE
from oci.registry_client import referrers_tag, signature_tag
from simulator.registry.content import sha256
from simulator.registry.triton_cache import write_triton_cache
from tests.support.registry_double import Lie, RegistryDouble, Status
from tests.support.sigstore_instance import (
    ISSUER,
    SUBJECT,
    SigstoreInstance,
    new_key,
    payload_of,
    public_pem,
)

SIGNED = "is signed by key SHA256:"


@pytest.fixture(autouse=True)
def no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "nobody"))


@final
@dataclass(frozen=True)
class SignerFiles:
    private: Path
    public: Path


def a_signer(directory: Path, name: str = "ours") -> SignerFiles:
    key = new_key()
    private, public = directory / f"{name}.pem", directory / f"{name}.public.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_text(public_pem(key))
    return SignerFiles(private, public)


@pytest.fixture
def signer(tmp_path: Path) -> SignerFiles:
    return a_signer(tmp_path)


@pytest.fixture
def image(registry: RegistryDouble) -> BlobDescriptor:
    return registry.add_manifest({"schemaVersion": 2, "config": {}, "layers": []})


@pytest.fixture(params=[True, False], ids=["referrers API", "no referrers API"])
def either(registry: RegistryDouble, request: pytest.FixtureRequest) -> RegistryDouble:
    """The registry, with the API and without it."""
    registry.content.has_referrers = request.param
    return registry


async def cache(*arguments: object) -> int:
    return await asyncio.to_thread(run, ["cache", *map(str, arguments), "--plain-http"])


async def sign(reference: ImageReference, key: Path) -> int:
    return await cache("sign", reference, "--key", key)


async def verify(reference: ImageReference, key: Path) -> int:
    return await cache("verify", reference, "--key", key)


def layers_of(registry: RegistryDouble, image: BlobDescriptor) -> list[dict[str, Any]]:
    _, manifest = registry.manifests["team/cache", signature_tag(image.digest)]
    layers: list[dict[str, Any]] = json.loads(manifest)["layers"]
    return layers


def without_payloads(registry: RegistryDouble, image: BlobDescriptor) -> None:
    del registry.manifests["team/cache", signature_tag(image.digest)]


async def test_an_image_is_signed_in_both_forms(
    either: RegistryDouble,
    signer: SignerFiles,
    image: BlobDescriptor,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reference = either.reference()
    assert await verify(reference, signer.public) == FAILED
    assert f"{image.digest}: not accepted: it has no signature" in capsys.readouterr().err
    assert await sign(reference, signer.private) == OK
    said = capsys.readouterr().out
    assert said.startswith(f"{image.digest} {SIGNED}")
    assert await verify(reference, signer.public) == OK
    assert capsys.readouterr().out == said
    without_payloads(either, image)
    assert await verify(reference, signer.public) == OK, "by the bundle alone"
    capsys.readouterr()
    assert await verify(reference, a_signer(tmp_path, "other").public) == FAILED
    assert "no listed key has made it" in capsys.readouterr().err


async def test_signing_again_adds_nothing(
    either: RegistryDouble,
    signer: SignerFiles,
    image: BlobDescriptor,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await sign(either.reference(), signer.private) == OK
    before = dict(either.manifests)
    either.seen.clear()
    assert await sign(either.reference(), signer.private) == OK
    assert either.manifests == before
    assert {item.method for item in either.seen} <= {"GET", "HEAD"}
    assert capsys.readouterr().out.endswith(", as it was before\n")


async def test_the_form_that_is_missing_is_added(
    either: RegistryDouble, signer: SignerFiles, image: BlobDescriptor
) -> None:
    assert await sign(either.reference(), signer.private) == OK
    before = dict(either.manifests)
    without_payloads(either, image)
    assert await sign(either.reference(), signer.private) == OK
    assert len(layers_of(either, image)) == 1
    bundles = [key for key in before if "sig" not in key[1]]
    assert {key: either.manifests[key] for key in bundles} == {key: before[key] for key in bundles}


async def test_signatures_of_others_stay(
    either: RegistryDouble, signer: SignerFiles, image: BlobDescriptor, tmp_path: Path
) -> None:
    reference = either.reference()
    others = [a_signer(tmp_path, f"other-{number}") for number in range(3)]
    scan = {"mediaType": "x", "digest": image.digest, "size": 1, "artifactType": "scan"}
    index = {"schemaVersion": 2, "manifests": [scan]}
    if not either.content.has_referrers:
        either.add_manifest(index, tag=referrers_tag(image.digest), media_type=OCI_INDEX)
    for other in (*others, signer):
        assert await sign(reference, other.private) == OK
    for other in (*others, signer):
        assert await verify(reference, other.public) == OK
    assert len(layers_of(either, image)) == 4
    without_payloads(either, image)
    for other in (*others, signer):
        assert await verify(reference, other.public) == OK
    if not either.content.has_referrers:
        _, listed = either.manifests["team/cache", referrers_tag(image.digest)]
        assert json.loads(listed)["manifests"][0] == scan


async def test_a_packed_image_is_signed_behind_its_push(
    either: RegistryDouble,
    signer: SignerFiles,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = write_triton_cache(tmp_path / "cache")
    reference = either.reference("team/cache", "v1")
    arguments = ("pack", directory, "--image", reference, "--sign-key", signer.private)
    assert await cache(*arguments) == OK
    out = capsys.readouterr().out
    assert await verify(reference, signer.public) == OK
    assert capsys.readouterr().out.startswith(f"{out.strip()} {SIGNED}")
    before = dict(either.manifests)
    assert await cache(*arguments) == OK
    assert either.manifests == before


@pytest.mark.parametrize(("tag_of", "reads"), [(signature_tag, 2), (referrers_tag, 5)])
async def test_what_another_client_overwrites_is_written_again(
    registry: RegistryDouble,
    signer: SignerFiles,
    image: BlobDescriptor,
    tmp_path: Path,
    tag_of: Callable[[Digest], str],
    reads: int,
) -> None:
    registry.content.has_referrers = False
    assert await sign(registry.reference(), a_signer(tmp_path, "other").private) == OK
    tag = tag_of(image.digest)
    kind, content = registry.manifests["team/cache", tag]
    headers = {"Docker-Content-Digest": sha256(content), "Content-Type": kind}
    # The next reading is behind our write, and shows what another client has written since. (The tag of the list
    # is the beginning of the other one, which is read and written before it.)
    registry.will_fail(Lie(), "GET", f"/manifests/{tag}", times=reads)
    registry.will_fail(Lie(headers=headers, content=content), "GET", f"/manifests/{tag}")
    registry.seen.clear()
    assert await sign(registry.reference(), signer.private) == OK
    writes = [item.method for item in registry.seen if item.path.endswith(tag)].count("PUT")
    assert writes == 2
    assert await verify(registry.reference(), signer.public) == OK


async def test_a_list_that_is_overwritten_each_time_has_its_message(
    registry: RegistryDouble,
    signer: SignerFiles,
    image: BlobDescriptor,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await sign(registry.reference(), a_signer(tmp_path, "other").private) == OK
    tag = signature_tag(image.digest)
    kind, content = registry.manifests["team/cache", tag]
    headers = {"Docker-Content-Digest": sha256(content), "Content-Type": kind}
    registry.will_fail(Lie(headers=headers, content=content), "GET", f"/{tag}", times=100)
    assert await sign(registry.reference(), signer.private) == FAILED
    assert "another client writes it at the same time" in capsys.readouterr().err


async def test_a_full_list_has_its_message(
    registry: RegistryDouble,
    signer: SignerFiles,
    image: BlobDescriptor,
    capsys: pytest.CaptureFixture[str],
) -> None:
    payload = registry.add_blob(payload_of(image.digest))
    layer = {
        "mediaType": SIMPLE_SIGNING_TYPE,
        "digest": payload.digest,
        "size": payload.size,
        "annotations": {"dev.cosignproject.cosign/signature": "MEU="},
    }
    manifest = {"schemaVersion": 2, "layers": [layer] * MAX_SIGNATURES}
    registry.add_manifest(manifest, tag=signature_tag(image.digest))
    assert await sign(registry.reference(), signer.private) == FAILED
    assert f"has {MAX_SIGNATURES} signatures" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "message"), [(403, "pull secret"), (503, "503"), (404, "404")])
async def test_a_registry_that_refuses_has_one_line(
    registry: RegistryDouble,
    signer: SignerFiles,
    image: BlobDescriptor,
    capsys: pytest.CaptureFixture[str],
    status: int,
    message: str,
) -> None:
    registry.will_fail(Status(status, {"Retry-After": "0"}), "HEAD", times=100)
    registry.will_fail(Status(status, {"Retry-After": "0"}), times=100)
    for action, key in (("sign", signer.private), ("verify", signer.public)):
        assert await cache(action, registry.reference(), "--key", key) == FAILED
        out = capsys.readouterr()
        assert (out.out, out.err.count("\n")) == ("", 1)
        assert message in out.err


async def test_an_image_is_not_signed_whose_content_is_another(
    registry: RegistryDouble,
    signer: SignerFiles,
    image: BlobDescriptor,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What HEAD says is not what is signed."""
    other = f"sha256:{'b' * 64}"
    registry.will_fail(Lie({"Docker-Content-Digest": other}), "HEAD")
    assert await sign(registry.reference(), signer.private) == FAILED
    assert other in capsys.readouterr().err
    assert registry.count("PUT", "/manifests/") == 0


async def test_an_identity_is_verified_by_the_trust_root(
    registry: RegistryDouble,
    image: BlobDescriptor,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    instance = SigstoreInstance()
    material = instance.simple_signing(instance.holder(), payload_of(image.digest))
    payload = registry.add_blob(material.payload)
    layer = {
        "mediaType": SIMPLE_SIGNING_TYPE,
        "digest": payload.digest,
        "size": payload.size,
        "annotations": {
            "dev.cosignproject.cosign/signature": material.signature,
            "dev.sigstore.cosign/certificate": material.certificate,
            "dev.sigstore.cosign/bundle": material.log_bundle,
        },
    }
    registry.add_manifest({"layers": [layer]}, tag=signature_tag(image.digest))
    trust_root = tmp_path / "trusted_root.json"
    trust_root.write_bytes(instance.trust_root_file())
    given = ("verify", registry.reference(), "--trust-root", trust_root, "--identity")
    assert await cache(*given, SUBJECT, ISSUER) == OK
    assert f'signed by "{SUBJECT}" of issuer "{ISSUER}"' in capsys.readouterr().out
    assert await cache(*given, SUBJECT, "https://elsewhere.example.com") == FAILED
    assert "elsewhere" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["sign"], "required: REF, --key", id="sign nothing"),
        pytest.param(["sign", "A B", "--key", "PRIVATE"], '"A B" names no image', id="no image"),
        pytest.param(["sign", "a", "--key", "PUBLIC"], "no private key in PEM form", id="public"),
        pytest.param(["sign", "a", "--key", "ENCRYPTED"], "GPU_SIGNING_PASSWORD", id="password"),
        pytest.param(["sign", "a", "--key", "/missing"], "--key /missing: No such", id="no file"),
        pytest.param(["sgin", "a"], "did you mean sign?", id="action"),
        pytest.param(["verify", "a"], "no signer is given", id="nobody"),
        pytest.param(
            ["verify", "a", "--key", "PRIVATE"], "a private key: replace it", id="private"
        ),
        pytest.param(["verify", "a", "--key", "/missing"], "--key /missing: No such", id="no key"),
        pytest.param(["verify", "a", "--identity", "x", "y"], "--trust-root", id="no trust root"),
        pytest.param(
            ["verify", "a", "--identity", "x", "y", "--trust-root", "PUBLIC"],
            "the trust root cannot be read",
            id="trust root",
        ),
        pytest.param(["verify", "a", "--key", "PUBLIC", "--kye", "x"], "did you mean", id="flag"),
        pytest.param(
            ["pack", "DIR", "--image", "a", "--sign-key", "PRIVATE", "--output", "x"],
            "--output pushes nothing",
            id="layout",
        ),
        pytest.param(
            ["pack", "DIR", "--image", "a", "--sign-key", "PUBLIC"], "no private key", id="pack"
        ),
    ],
)
def test_a_command_line_that_cannot_be_used_has_one_line(
    signer: SignerFiles,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        new_key().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"a word")
        )
    )
    files = {
        "PRIVATE": signer.private,
        "PUBLIC": signer.public,
        "ENCRYPTED": encrypted,
        "DIR": write_triton_cache(tmp_path / "cache"),
    }
    assert (
        run(["cache", *(str(files.get(argument, argument)) for argument in arguments)]) == MISUSED
    )
    out = capsys.readouterr()
    assert message in out.err
    assert (out.out, out.err.count("\n")) == ("", 1)
