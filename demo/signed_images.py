"""Images of kernel caches in the demo's registry, packed and signed by the commands that a user has."""

import asyncio
import os
from typing import TYPE_CHECKING, Final, final

import msgspec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from api.image_reference import Digest
from demo.child_programs import output_of
from kernelcache.image_format import BlobDescriptor
from kernelcache.signatures.signing_keys import SigningKey
from simulator.registry.in_memory import InMemoryRegistry
from simulator.registry.triton_cache import CUBIN, write_triton_cache

if TYPE_CHECKING:
    from pathlib import Path

REPOSITORY: Final = "team/llama-cache"
ARCHITECTURE: Final = 90
"""Architecture of an H200."""


@final
class DemoImages:
    """The registry, and a key pair of the demo's own; the public key is in the server's settings."""

    def __init__(self, folder: "Path", *, address: str = "127.0.0.1") -> None:
        self.registry = InMemoryRegistry(address)
        self._folder = folder
        self._key_file = folder / "signer.key"
        signer = SigningKey.new()
        self._private_pem = signer.key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        self.public_pem = signer.public_pem

    def reference(self, tag: str) -> str:
        """Return the name of an image."""
        return f"{self.registry.host}/{REPOSITORY}:{tag}"

    async def pack(self, tag: str, *, object_bytes: int, is_signed: bool = True) -> str:
        """Run `gpu-control-plane cache pack`, and return the digest that it prints.

        Raises:
            OSError: it failed.
        """
        directory = self._folder / tag
        await asyncio.to_thread(self._write, directory, object_bytes)
        arguments = ["pack", str(directory), "--image", self.reference(tag), "--plain-http"]
        if is_signed:
            arguments += ["--sign-key", str(self._key_file)]
        return (await output_of("cli", "cache", *arguments)).splitlines()[0]

    def layer_of(self, tag: str) -> BlobDescriptor:
        """Return the one layer of an image."""
        _, manifest = self.registry.content.manifests[REPOSITORY, tag]
        (layer,) = msgspec.json.decode(manifest)["layers"]
        return BlobDescriptor(
            media_type=layer["mediaType"], digest=Digest(layer["digest"]), size=layer["size"]
        )

    def _write(self, directory: "Path", object_bytes: int) -> None:
        self._folder.mkdir(exist_ok=True)
        self._key_file.write_bytes(self._private_pem)
        write_triton_cache(directory, arch=ARCHITECTURE)
        # Kernels compress as little as this.
        (directory / CUBIN).write_bytes(os.urandom(object_bytes))
