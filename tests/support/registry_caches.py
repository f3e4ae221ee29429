"""Images of kernel caches and their signatures, in a registry's double."""

import json
from dataclasses import dataclass
from typing import Any

from api.image_reference import Digest
from kernelcache.image_format import OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST
from kernelcache.signatures.material import SimpleSigning
from tests.support.registry_double import RegistryDouble
from tests.support.sigstore_instance import (
    BUNDLE,
    b64,
    envelope_of,
    key_bundle,
    new_key,
    payload_of,
    public_pem,
    sign,
    statement_of,
)

SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
LABELS = {
    "cache.triton.image/summary": json.dumps(
        {"targets": [{"backend": "cuda", "arch": "90", "warp_size": 32}]}
    ),
    "cache.triton.image/cache-size-bytes": "4000",
}


class Signer:
    """The holder of a key."""

    def __init__(self) -> None:
        self.key = new_key()
        self.pem = public_pem(self.key)


@dataclass
class CacheRegistry:
    """A registry with one repository of caches."""

    double: RegistryDouble
    repository: str = "team/cache"

    @property
    def image(self) -> str:
        return f"{self.double.host}/{self.repository}:1"

    def push(
        self, number: int = 0, *, tag: str | None = "1", labels: dict[str, str] | None = None
    ) -> Digest:
        config = {"config": {"Labels": LABELS if labels is None else labels}, "number": number}
        return self.double.add_manifest(
            self.manifest(json.dumps(config).encode()), repository=self.repository, tag=tag
        ).digest

    def push_index(self, *platforms: str) -> Digest:
        entries = [
            {
                "mediaType": OCI_MANIFEST,
                "digest": self.push(number, tag=None),
                "size": 1,
                "platform": {"os": "linux", "architecture": platform},
            }
            for number, platform in enumerate(platforms)
        ]
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
        return self.double.add_manifest(
            index, repository=self.repository, media_type=OCI_INDEX
        ).digest

    def manifest(self, config: bytes, **changes: Any) -> dict[str, Any]:
        layer = self.double.add_blob(b"layer", OCI_LAYER)
        return {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": _described(self.double.add_blob(config, OCI_CONFIG)),
            "layers": [_described(layer)],
            **changes,
        }

    def sign(self, digest: Digest, *signers: Signer, payload: bytes | None = None) -> None:
        """Sign in the older form."""
        content = payload_of(digest) if payload is None else payload
        self.add_simple_signing(
            digest,
            *(
                SimpleSigning(payload=content, signature=b64(sign(signer.key, content)))
                for signer in signers
            ),
        )

    def add_simple_signing(self, digest: Digest, *signatures: SimpleSigning) -> None:
        layers = []
        for item in signatures:
            blob = self.double.add_blob(item.payload, SIMPLE_SIGNING)
            annotations = {"dev.cosignproject.cosign/signature": item.signature}
            if item.certificate:
                annotations["dev.sigstore.cosign/certificate"] = item.certificate
                annotations["dev.sigstore.cosign/bundle"] = item.log_bundle
            layers.append({**_described(blob), "annotations": annotations})
        self.double.add_manifest(
            self.manifest(b"{}", layers=layers),
            repository=self.repository,
            tag=f"{digest.replace(':', '-')}.sig",
        )

    def sign_by_bundle(self, digest: Digest, signer: Signer) -> None:
        """Sign in the newer form."""
        envelope = envelope_of(signer.key, statement_of(digest))
        self.add_bundle(digest, key_bundle(dsseEnvelope=envelope))

    def add_bundle(self, digest: Digest, bundle: Any, *, artifact_type: str = BUNDLE) -> None:
        blob = self.double.add_blob(json.dumps(bundle).encode(), BUNDLE)
        manifest = self.manifest(
            b"{}", layers=[_described(blob)], artifactType=artifact_type, subject={"digest": digest}
        )
        self.double.add_manifest(manifest, repository=self.repository, tag=None)


def _described(blob: Any) -> dict[str, Any]:
    return {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size}
