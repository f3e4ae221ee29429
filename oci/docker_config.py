"""Credentials of registries from a Secret of type `kubernetes.io/dockerconfigjson`.

Pure. Which entry serves an image is decided as the kubelet decides it (k8s.io/kubernetes, pkg/credentialprovider/
keyring.go): hosts match label by label, `*` any part of one, ports exactly, paths as prefixes; the most specific entry
comes first. Of several secrets all entries that match are tried in turn.
"""

import base64
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

import msgspec

from api.field_errors import UNDECODABLE
from api.image_reference import DEFAULT_REGISTRY
from oci.errors import UnusableCredentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.image_reference import ImageReference

MAX_CONFIG_BYTES: Final = 1024 * 1024
"""A Secret cannot be larger."""
_DEFAULT_ENTRY: Final = "index.docker.io"
"""How `docker login` calls Docker Hub."""
_CURE: Final = "make the secret again with `kubectl create secret docker-registry`"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BasicCredentials:
    """A user of a registry."""

    username: str
    password: str = field(repr=False)

    def header(self) -> str:
        """Return the value of `Authorization`."""
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode('ascii')}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DockerConfig:
    """The entries of some secrets, the most specific first; without entries all access is anonymous."""

    entries: "tuple[tuple[str, BasicCredentials | str], ...]" = ()
    """`host[:port][/path]` -> credentials, or why there are none that can be used."""

    def credentials_of(self, reference: "ImageReference") -> tuple[BasicCredentials, ...]:
        """Return what to try for a repository, in this order; empty for anonymous access.

        Raises:
            UnusableCredentials: entries match, and none of them can be used.
        """
        image = f"{reference.registry}/{reference.repository}"
        found = [item for key, item in self.entries if _matches(key, image)]
        if not found and reference.registry == DEFAULT_REGISTRY:
            found = [item for key, item in self.entries if key == _DEFAULT_ENTRY]
        usable = tuple(item for item in found if isinstance(item, BasicCredentials))
        if found and not usable:
            reason = next(item for item in found if isinstance(item, str))
            raise UnusableCredentials(image, reason, _CURE)
        return usable


class _Entry(msgspec.Struct, frozen=True):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _Config(msgspec.Struct, frozen=True):
    auths: dict[str, _Entry] = {}


def parse_docker_configs(secrets: "Sequence[tuple[str, bytes]]") -> DockerConfig:
    """Return the entries of `.dockerconfigjson` of secrets, given with their names.

    Raises:
        UnusableCredentials: one of them is no dockerconfigjson. The text has nothing of its content.
    """
    entries: list[tuple[str, BasicCredentials | str]] = []
    for name, content in secrets:
        entries += [
            (key, _usable(name, item))
            for location, item in _read(name, content)
            if (key := _key(location)) is not None
        ]
    # Stable: of equal keys the secret that is named first is tried first.
    return DockerConfig(entries=tuple(sorted(entries, key=lambda entry: entry[0], reverse=True)))


def _read(name: str, content: bytes) -> "list[tuple[str, _Entry]]":
    if len(content) > MAX_CONFIG_BYTES:
        raise UnusableCredentials(
            f"secret {name}", f"it has {len(content)} bytes; {MAX_CONFIG_BYTES} are possible", _CURE
        )
    try:
        return list(msgspec.json.decode(content, type=_Config).auths.items())
    except UNDECODABLE:
        # Not `from`: the text of the error may quote what is secret.
        raise UnusableCredentials(f"secret {name}", "it is no dockerconfigjson", _CURE) from None


def _usable(secret: str, entry: _Entry) -> BasicCredentials | str:
    if entry.username and entry.password:
        return BasicCredentials(username=entry.username, password=entry.password)
    if entry.auth:
        return _decoded(secret, entry.auth)
    if entry.identitytoken:
        return f"secret {secret} has an identitytoken, which is not supported: it needs username and password"
    return f"secret {secret} has an entry without username and password"


def _decoded(secret: str, auth: str) -> BasicCredentials | str:
    try:
        # Some tools leave out the padding.
        text = base64.b64decode(
            auth.rstrip("=") + "=" * (-len(auth.rstrip("=")) % 4), validate=True
        )
        username, separator, password = text.decode().partition(":")
    except ValueError:  # of base64 or of UTF-8
        return f"secret {secret} has an `auth` that is no base64 of user:password"
    if not separator or not username:
        return f"secret {secret} has an `auth` that is no base64 of user:password"
    return BasicCredentials(username=username, password=password.rstrip("\0"))


def _key(location: str) -> str | None:
    """Return `host[:port][/path]` of an entry's name, which may be a URL; None where it is neither."""
    try:
        url = urlsplit(
            location if location.startswith(("https://", "http://")) else f"//{location}"
        )
    except ValueError:  # brackets that are no IPv6 address; the kubelet skips them too
        return None
    path = url.path
    for version in ("/v1/", "/v2/"):
        if path.startswith(version):
            path = path[3:]
    return url.netloc + (path if path not in {"", "/"} else "")


def _matches(key: str, image: str) -> bool:
    """Say whether an entry serves an image; both without a scheme."""
    key_host, _, key_path = key.partition("/")
    host, _, path = image.partition("/")
    key_name, _, key_port = key_host.partition(":")
    name, _, port = host.partition(":")
    key_labels, labels = key_name.split("."), name.split(".")
    return (
        key_port == port
        and len(key_labels) == len(labels)
        and path.startswith(key_path)
        and all(map(fnmatchcase, labels, key_labels))
    )
