"""Pull secrets that kernel caches name: read when they are needed, and kept nowhere."""

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar, final

import msgspec

from kube.errors import Forbidden, KubeError, NotFound, one_line
from kube.resources import SECRETS
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from kube.resources import Resource

    T = TypeVar("T")

    class SecretApi(Protocol):
        """Access to the API server; `kube.client.KubeClient`."""

        async def get(
            self, resource: "Resource", type_: type[T], name: str, *, namespace: str | None = None
        ) -> T:
            """Return the object."""


_KEY: Final = ".dockerconfigjson"


@final
class PullSecretUnusableError(Exception):
    """A pull secret cannot be used; the message names it and what to do."""

    def __init__(self, secret: str, cause: str, *, is_transient: bool = False) -> None:
        super().__init__(f"pull secret {secret} {cause}")
        self.is_transient = is_transient


class _PullSecret(msgspec.Struct, frozen=True):
    data: dict[str, bytes] = {}  # msgspec takes bytes from base64

    def __repr__(self) -> str:
        return "_PullSecret()"


@final
class PullSecretReader:
    """Reads Secrets with the rights of this process."""

    def __init__(self, client: "SecretApi", namespace: str) -> None:
        """`namespace` is the control plane's own."""
        self._client = client
        self._namespace = namespace

    async def read(self, namespace: str, names: "Sequence[str]") -> list[tuple[str, bytes]]:
        """Return `namespace/name` and the content of each, which is that of a file of Docker's client.

        Args:
            namespace: of the Secrets; empty for the control plane's own.
            names: of the Secrets.

        Raises:
            PullSecretUnusableError: one of them is missing, cannot be read, or is no pull secret.
        """
        place = namespace or self._namespace
        found = await asyncio.gather(*(self._content(place, name) for name in names))
        return [(f"{place}/{name}", content) for name, content in zip(names, found, strict=True)]

    async def _content(self, namespace: str, name: str) -> bytes:
        secret = f"{namespace}/{name}"
        try:
            found = await self._client.get(SECRETS, _PullSecret, name, namespace=namespace)
        except NotFound:
            raise PullSecretUnusableError(
                secret, "does not exist: create it, or remove it from spec.pullSecrets"
            ) from None
        except Forbidden:
            raise PullSecretUnusableError(secret, self._missing_right(namespace)) from None
        except KubeError as error:
            raise PullSecretUnusableError(
                secret, f"cannot be read now: {one_line(str(error))}; try again", is_transient=True
            ) from error
        content = found.data.get(_KEY)
        if content is None:
            raise PullSecretUnusableError(
                secret,
                f"has no {_KEY}: make it with `kubectl create secret docker-registry`",
            )
        return content

    def _missing_right(self, namespace: str) -> str:
        accounts = " and ".join(
            f"{self._namespace}/{name}"
            for name in (constants.SERVICE_ACCOUNT, constants.NODE_AGENT)
        )
        if namespace == self._namespace:
            return (
                "may not be read by the control plane: name it in kernel_caches.pull_secrets of"
                " the installation, which makes the Role for it"
            )
        return (
            f"may not be read by the control plane: in namespace {namespace}, make a"
            f" RoleBinding of ClusterRole {constants.PULL_SECRETS_ROLE} to the service accounts"
            f" {accounts}"
        )
