"""Where the API server is and who we are, from wherever that is told.

Of kubeconfigs it is kubernetes-asyncio's `Configuration`: the library finds and merges them, and runs credential
plugins. Requests themselves are `kube.client`'s, so this is the only module that imports the library; a pod that
cannot spare 65 MiB for it asks `kube.config.service_account`, as is done here for a pod.

Order: an explicit kubeconfig, $KUBECONFIG, the service account of the pod, ~/.kube/config.
Inside a pod the service account goes before a file that happens to lie in the image.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, final

import structlog
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_kube_config

from kube.config.connection import BadConfigurationError, proxy_for
from kube.config.service_account import is_in_pod, load_service_account
from kube.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.clock import Clock
    from kube.config.connection import Connection
    from kube.config.service_account import ServiceAccountFiles

__all__ = ["TOKEN_PERIOD_S", "BadConfigurationError", "configuration_for", "load_configuration"]

TOKEN_PERIOD_S = 60.0
"""How long a token of a kubeconfig is used before the file is read again; projected tokens and those
of plugins live ten minutes or more and are renewed well before their end."""
_DEFAULT_KUBECONFIG = Path("~/.kube/config")
_log = structlog.get_logger()


async def load_configuration(
    clock: "Clock",
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: "Mapping[str, str]" = os.environ,
    service_account: "ServiceAccountFiles | None" = None,
) -> "Connection":
    """Return the configuration; its tokens renew themselves as `KubeClient` asks for them.

    Args:
        clock: decides when a token is read again.
        kubeconfig: a path, or several in $KUBECONFIG's form; goes before everything else.
        context: of the kubeconfig; its current one by default.
        environ: the process environment, read for KUBECONFIG and KUBERNETES_SERVICE_HOST.
        service_account: where the pod's service account lies.

    Raises:
        BadConfigurationError: there is none, or it cannot be used.
    """
    paths = kubeconfig or environ.get("KUBECONFIG")
    try:
        if paths:
            configuration = await _from_kubeconfig(paths, context, clock)
        elif is_in_pod(environ):
            return load_service_account(environ, service_account)
        else:
            configuration = await _from_kubeconfig(str(_DEFAULT_KUBECONFIG), context, clock)
    except ConfigException as error:
        raise BadConfigurationError(f"no usable configuration: {one_line(str(error))}") from error
    if configuration.proxy is None:
        configuration.proxy = proxy_for(configuration.host or "")
    return configuration


def configuration_for(
    url: str, *, token: str | None = None, ca_file: str | None = None
) -> Configuration:
    """Return the configuration for an API server whose address is known; never through a proxy."""
    configuration = Configuration(host=url.rstrip("/"), ssl_ca_cert=ca_file)
    if token is not None:
        configuration.api_key["BearerToken"] = f"Bearer {token}"
    return configuration


async def _from_kubeconfig(paths: str, context: str | None, clock: "Clock") -> Configuration:
    configuration = await _read_kubeconfig(paths, context)
    if configuration.api_key:
        configuration.refresh_api_key_hook = _KubeconfigToken(paths, context, clock)
    return configuration


def _existing(paths: str) -> list[str]:
    return [path for path in paths.split(os.pathsep) if path and Path(path).expanduser().is_file()]


async def _read_kubeconfig(paths: str, context: str | None) -> Configuration:
    existing = _existing(paths)
    if not existing:
        raise ConfigException(f"no kubeconfig at {paths}")
    configuration = Configuration()
    try:
        await load_kube_config(
            config_file=os.pathsep.join(existing),
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except (
        yaml.YAMLError,
        AssertionError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        # The library does not check the shape of what it reads.
        raise ConfigException(f"kubeconfig {paths} is malformed: {error!r}") from error
    return configuration


@final
class _KubeconfigToken:
    """The configuration's refresh hook: reads the kubeconfig again when the token grew old.

    That covers a rewritten file, `tokenFile`, credential plugins and auth providers alike.
    A failed reading keeps the token that there is: an expired one shows as 401.
    """

    def __init__(self, paths: str, context: str | None, clock: "Clock") -> None:
        self._paths = paths
        self._context = context
        self._clock = clock
        self._due_at = clock.monotonic() + TOKEN_PERIOD_S

    async def __call__(self, configuration: Configuration) -> None:
        if self._clock.monotonic() < self._due_at:
            return
        # Moved before the await, so that concurrent requests do not run the plugin once each.
        self._due_at = self._clock.monotonic() + TOKEN_PERIOD_S
        try:
            fresh = await _read_kubeconfig(self._paths, self._context)
        except (ConfigException, OSError) as error:
            _log.warning("kubeconfig token not renewed", error=one_line(str(error)))
            return
        configuration.api_key.update(fresh.api_key)
