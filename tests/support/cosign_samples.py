"""Signs a small image with cosign, in both forms and with every kind of key, and keeps what a registry then shows.

The result, tests/data/kernelcache/cosign-signatures.json, is what the unit tests verify. To make it again, without a
network but for the two programs (some five minutes to build; cosign 3.1.3 has 101 MB):

    export GOBIN=$(mktemp -d)
    go install github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
    go install github.com/google/go-containerregistry/cmd/registry@v0.22.1
    .venv/bin/python -m tests.support.cosign_samples $GOBIN tests/data/kernelcache/cosign-signatures.json
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.support.ports import free_port

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
REPOSITORY = "caches/sample"
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
KEYS: dict[str, Callable[[], PrivateKey]] = {
    "ecdsa-p256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ecdsa-p384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "rsa-2048": lambda: rsa.generate_private_key(65537, 2048),
    "ed25519": ed25519.Ed25519PrivateKey.generate,
}
FORMS = {"simple-signing": "false", "bundle": "true"}


class Registry:
    """The registry's API, as far as it is needed."""

    def __init__(self, port: int) -> None:
        self.address = f"localhost:{port}"
        self._api = f"http://{self.address}/v2/{REPOSITORY}"

    def push(self, config: bytes) -> str:
        """Push an image without layers, and return its digest."""
        config_digest = self._push_blob(config)
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "config": {
                    "mediaType": "application/vnd.oci.image.config.v1+json",
                    "digest": config_digest,
                    "size": len(config),
                },
                "layers": [],
            }
        ).encode()
        digest = digest_of(manifest)
        self._ask("PUT", f"{self._api}/manifests/{digest}", manifest, MANIFEST_TYPE)
        return digest

    def manifest(self, reference: str) -> bytes:
        return self._ask("GET", f"{self._api}/manifests/{reference}")

    def blob(self, digest: str) -> bytes:
        return self._ask("GET", f"{self._api}/blobs/{digest}")

    def _push_blob(self, content: bytes) -> str:
        digest = digest_of(content)
        self._ask("POST", f"{self._api}/blobs/uploads/?digest={digest}", content)
        return digest

    def _ask(self, method: str, url: str, body: bytes | None = None, kind: str = "") -> bytes:
        headers = {"Content-Type": kind} if kind else {"Accept": f"{MANIFEST_TYPE},{INDEX_TYPE}"}
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            content: bytes = response.read()
        return content


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def sign(tools: Path, key: Path, image: str, form: str) -> None:
    subprocess.run(
        [
            str(tools / "cosign"),
            "sign",
            f"--key={key}",
            "--yes",
            "--tlog-upload=false",
            "--use-signing-config=false",
            f"--new-bundle-format={FORMS[form]}",
            image,
        ],
        check=True,
        env={**os.environ, "COSIGN_PASSWORD": ""},
    )


def imported(tools: Path, folder: Path, name: str) -> tuple[Path, str]:
    """Return cosign's form of a new private key, and the public key in PEM form."""
    private = KEYS[name]()
    plain = folder / f"{name}.pem"
    plain.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    prefix = folder / name
    subprocess.run(
        [
            str(tools / "cosign"),
            "import-key-pair",
            f"--key={plain}",
            f"--output-key-prefix={prefix}",
        ],
        check=True,
        env={**os.environ, "COSIGN_PASSWORD": ""},
    )
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return prefix.with_suffix(".key"), public.decode()


def current(registry: Registry, digest: str, form: str) -> dict[str, object]:
    """Return the manifest of the signatures, and its blobs in Base64: digest -> content."""
    tag = digest.replace(":", "-")
    if form == "simple-signing":
        manifest = registry.manifest(f"{tag}.sig")
    else:
        # This registry has no referrers API, so cosign keeps the index under a tag.
        (referrer,) = json.loads(registry.manifest(tag))["manifests"]
        manifest = registry.manifest(referrer["digest"])
    blobs = {
        layer["digest"]: base64.b64encode(registry.blob(layer["digest"])).decode()
        for layer in json.loads(manifest)["layers"]
    }
    return {"manifest": manifest.decode(), "blobs": blobs}


def samples(tools: Path, registry: Registry) -> list[dict[str, object]]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in KEYS:
            key, public = imported(tools, Path(folder), name)
            for form in FORMS:
                digest = registry.push(json.dumps({"sample": f"{name} {form}"}).encode())
                sign(tools, key, f"{registry.address}/{REPOSITORY}@{digest}", form)
                found.append(
                    {"key": name, "form": form, "digest": digest, "publicKey": public}
                    | current(registry, digest, form)
                )
    return found


def wait_until_serving(registry: Registry, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            urllib.request.urlopen(f"http://{registry.address}/v2/", timeout=5).close()
        except urllib.error.URLError:
            continue
        return
    raise RuntimeError(f"the registry ended with {process.returncode}")


def main(tools: Path, target: Path) -> None:
    port = free_port()
    registry = Registry(port)
    with subprocess.Popen([str(tools / "registry"), f"-port={port}"]) as process:
        try:
            wait_until_serving(registry, process)
            found = samples(tools, registry)
        finally:
            process.terminate()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
