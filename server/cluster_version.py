"""The version of Kubernetes, checked once at the start: in older ones what protects pods and devices is missing.

ValidatingAdmissionPolicies and `matchConditions` of webhooks are stable since 1.30, and from then on tokens of
pods name their node. An API server that does not answer in time is not waited for: the informers report it.
"""

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from kube.config.connection import BadConfigurationError
from kube.errors import KubeError

if TYPE_CHECKING:
    from kube.client import KubeClient
    from kube.server_version import ServerVersion

OLDEST: Final = (1, 30)
ANSWER_WITHIN_S: Final = 2.0

_log = structlog.get_logger()


async def check_cluster_version(client: "KubeClient") -> None:
    """Log the version of the API server.

    Raises:
        BadConfigurationError: it is too old.
    """
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            version = await client.server_version()
    except (KubeError, TimeoutError):
        return
    fault = version_fault(version)
    if fault is not None:
        raise BadConfigurationError(fault)
    _log.info("kubernetes", version=version.git_version)


def version_fault(version: "ServerVersion") -> str | None:
    """Return why the version cannot be used, or None; one that nobody can read is not refused."""
    number = version.number
    if number is None or number >= OLDEST:
        return None
    oldest = ".".join(map(str, OLDEST))
    return f"Kubernetes {version.git_version} is too old: the GPU control plane needs {oldest} or later"
