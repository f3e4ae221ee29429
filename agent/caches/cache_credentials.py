"""Credentials of a cache's registry: its pull secrets, read when they are needed, and kept nowhere."""

from typing import TYPE_CHECKING, final

from agent.kernelcache.errors import PullSecretError
from kube.pull_secrets import PullSecretUnusableError
from oci.docker_config import DockerConfig, parse_docker_configs

if TYPE_CHECKING:
    from api.kinds.gkmcache import GKMCache
    from kube.pull_secrets import PullSecretReader


@final
class CacheCredentials:
    """Reads the Secrets that caches name."""

    def __init__(self, secrets: "PullSecretReader", *, allowed: frozenset[str]) -> None:
        """`allowed` are the Secrets of our namespace that ClusterGKMCaches may name."""
        self._secrets = secrets
        self._allowed = allowed

    async def of(self, cache: "GKMCache") -> DockerConfig:
        """Return the credentials of a cache; without pull secrets all access is anonymous.

        Raises:
            PullSecretError: a Secret cannot be read.
            UnusableCredentials: a Secret has no usable content.
        """
        namespace = cache.metadata.namespace
        names = [secret.name for secret in cache.spec.pull_secrets or ()]
        refused = [name for name in names if not namespace and name not in self._allowed]
        if refused:
            raise PullSecretError(
                f"pull secret {refused[0]} may not be used: the setting kernel_caches.pull_secrets"
                " does not list it"
            )
        try:
            return parse_docker_configs(await self._secrets.read(namespace, names))
        except PullSecretUnusableError as error:
            raise PullSecretError(str(error)) from error
