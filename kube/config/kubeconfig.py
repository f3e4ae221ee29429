"""Kubeconfigs, read by kubernetes-asyncio.

The library finds and merges the files and runs credential plugins. Requests are `kube.client`'s, so this is the
only module that imports the library, and `kube.config.discovery` imports it only where a kubeconfig is used.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, final

import structlog
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_kube_config

from kube.config.connection import BadConfigurationError
from kube.errors import one_line

if TYPE_CHECKING:
    from api.clock import Clock

TOKEN_PERIOD_S = 60.0
"""How long a token of a kubeconfig is used before the file is read again; projected tokens and those
of plugins live ten minutes or more and are renewed well before their end."""
_log = structlog.get_logger()


async def load_kubeconfig(paths: str, context: str | None, clock: "Clock") -> Configuration:
    """Return the library's configuration, which reads its token again when it grows old.

    Raises:
        BadConfigurationError: no file exists, or one cannot be used.
    """
    try:
        configuration = await _read_kubeconfig(paths, context)
    except ConfigException as error:
        raise BadConfigurationError(f"no usable configuration: {one_line(str(error))}") from error
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
        raise ConfigException(f"kubeconfig {paths} is malformed: {_fault(error)}") from error
    return configuration


def _fault(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem}, line {mark.line + 1}, column {mark.column + 1}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


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
