"""The agent's configuration for the API server: a kubeconfig that is named, or the pod's service account."""

from typing import TYPE_CHECKING

from kube.config.discovery import load_configuration
from kube.config.service_account import is_in_pod, load_service_account

if TYPE_CHECKING:
    from agent.settings import AgentSettings
    from api.clock import Clock
    from kube.config.connection import Connection


async def connect(settings: "AgentSettings", clock: "Clock") -> "Connection":
    """Return the connection.

    Raises:
        BadConfigurationError: there is no usable configuration.
    """
    if settings.kubeconfig is None and is_in_pod():
        return load_service_account()
    kubeconfig = None if settings.kubeconfig is None else str(settings.kubeconfig)
    return await load_configuration(clock, kubeconfig=kubeconfig)
