"""Images of kernel caches in a registry of the node's tests, packed and signed by our own command."""

import asyncio
import json
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from simulator.registry.triton_cache import KERNEL, write_triton_cache
from tests.cluster.environment.registries import PASSWORD, USER
from tests.cluster.environment.server_process import installed_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.cluster.environment.registries import RunningRegistry

MARKER: Final = f"{KERNEL}/add_kernel.ttir"
"""The file of a cache that says which image it is of."""
FITTING: Final = 90
"""The architecture of the node's devices."""
ALIEN: Final = 80


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheImage:
    """An image that was pushed."""

    reference: str
    digest: str
    marker: str
    """Content of its file `MARKER`."""


@final
class SigningKey:
    """A key pair, as files."""

    def __init__(self, directory: "Path", name: str = "signer") -> None:
        private = ec.generate_private_key(ec.SECP256R1())
        self.file = directory / f"{name}.key"
        self.file.write_bytes(
            private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        self.public_pem = (
            private.public_key()
            .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            .decode()
        )


@final
class CacheImages:
    """Packs images and pushes them to one registry, as its user."""

    def __init__(self, registry: "RunningRegistry", directory: "Path", key: SigningKey) -> None:
        self.registry = registry
        self._directory = directory
        self._key = key
        self._directory.mkdir()
        self._login = directory / "login.json"
        self._login.write_text(self.login(), encoding="utf-8")

    def login(self, password: str = PASSWORD) -> str:
        """Return a configuration of docker with a password for the registry."""
        return json.dumps({"auths": {self.registry.host: {"username": USER, "password": password}}})

    async def push(
        self,
        name: str,
        *,
        arch: int = FITTING,
        key: SigningKey | None = None,
        is_signed: bool = True,
        object_bytes: int = 10_000,
    ) -> CacheImage:
        """Push a cache whose marker is the name, such as `llama:1`."""
        cache = write_triton_cache(
            self._directory / name.replace(":", "-"), arch=arch, object_bytes=object_bytes
        )
        (cache / MARKER).write_text(name, encoding="utf-8")
        reference = f"{self.registry.host}/caches/{name}"
        flags = {
            "--image": reference,
            "--registry-config": self._login,
            "--ca-file": self.registry.ca_file,
            **({"--sign-key": (key or self._key).file} if is_signed else {}),
        }
        pushed = await run_command(
            "cache",
            "pack",
            str(cache),
            *(str(part) for pair in flags.items() for part in pair),
        )
        digest = re.search(r"sha256:[0-9a-f]{64}", pushed)
        assert digest is not None, pushed
        return CacheImage(reference=reference, digest=digest[0], marker=name)


async def run_command(*arguments: str) -> str:
    """Return what `gpu-control-plane` prints with these arguments."""
    command: Sequence[str] = (*installed_command(), *arguments)
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)
