"""The settings of the node's kubelet, kept current for the inventory."""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVar, final

import structlog

from agent.kubelet.configuration import (
    ConfigurationUnknownError,
    NodeOfKubelet,
    configured_by_labels,
)
from api.kinds.gpunodeinventory import KubeletConfiguration
from api.names import TOPOLOGY_MANAGER_POLICY_LABEL
from kube.backoff import Backoff
from kube.errors import Forbidden, KubeError, Unauthorized, Undecodable, one_line
from kube.resources import NODES
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.files import FileIdentity
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock
    from api.names import NodeName
    from kube.resources import Resource

TASK: Final = "agent.kubelet"
SOURCE: Final = "kubelet.configuration"
"""Source of the problem in the registry."""
READ_EVERY_S: Final = 60.0
POLL_EVERY_S: Final = 1.0
"""Seconds between two checks for a kubelet that was started again, maybe with other settings."""
REPORTED_AFTER: Final = 4
"""Failures in a row: a kubelet that starts again is away for some seconds."""

_log = structlog.get_logger()

T = TypeVar("T")


class NodeApi(Protocol):
    """Access to the Node; `kube.client.KubeClient`."""

    async def get(
        self, resource: "Resource", type_: type[T], name: str, *, namespace: str | None = None
    ) -> T:
        """Return the object."""


class ConfigurationSource(Protocol):
    """kubelet's port; `agent.kubelet.configuration.KubeletPort`."""

    async def configuration(self, url: str) -> KubeletConfiguration:
        """Return what the kubelet at this address runs with."""


@final
class KubeletConfigurationReader:
    """The settings as last read; `run` keeps them current."""

    def __init__(  # noqa: PLR0913  # its dependencies; tests set each alone
        self,
        client: NodeApi,
        port: ConfigurationSource,
        clock: "Clock",
        *,
        node: "NodeName",
        problems: "ProblemRegistry",
        kubelet_identity: "Callable[[], FileIdentity | None]",
        on_change: "Callable[[], None]",
    ) -> None:
        """`kubelet_identity` returns another value for another process of kubelet; `on_change` is called with each change."""
        self._client = client
        self._port = port
        self._clock = clock
        self._node = node
        self._problems = problems
        self._kubelet_identity = kubelet_identity
        self._backoff = Backoff(base_s=1.0, jitter=0)
        self.configuration: KubeletConfiguration | None = None
        """None while it is unknown."""
        self._on_change = on_change
        TASK_FAILURES.labels(TASK)

    async def run(self) -> NoReturn:
        """Read until cancelled: every minute, and where kubelet was started again."""
        due, seen = 0.0, self._kubelet_identity()
        while True:
            present = self._kubelet_identity()
            if self._clock.monotonic() >= due or present != seen:
                due, seen = self._clock.monotonic() + await self.read(), present
            await asyncio.sleep(POLL_EVERY_S)

    async def read(self) -> float:
        """Read once; return the seconds until it should be read again."""
        try:
            configuration = await self._read()
        except (KubeError, ConfigurationUnknownError) as error:
            return self._fail(error)
        self._backoff.succeed()
        self._problems.clear(SOURCE)
        self._take(configuration)
        return READ_EVERY_S

    async def _read(self) -> KubeletConfiguration:
        node = await self._client.get(NODES, NodeOfKubelet, self._node)
        labelled = configured_by_labels(node)
        if labelled is not None:
            return labelled
        if node.url is None:
            raise ConfigurationUnknownError("the Node has no InternalIP or no port of its kubelet")
        return await self._port.configuration(node.url)

    def _fail(self, error: KubeError | ConfigurationUnknownError) -> float:
        """Keep the settings where nobody answered, as while kubelet starts again; forget them where it refused."""
        TASK_FAILURES.labels(TASK).inc()
        retry_in_s = self._backoff.fail()
        is_lasting = isinstance(error, Forbidden | Unauthorized | Undecodable) or not isinstance(
            error, KubeError
        )
        if is_lasting:
            self._take(None)
        if is_lasting or self._backoff.failures >= REPORTED_AFTER:
            self._report(error)
        return retry_in_s

    def _report(self, error: Exception) -> None:
        text = one_line(str(error))
        counts_as = "count as topologyManagerPolicy none"
        if self.configuration is not None:
            counts_as = f"are taken to be as before ({_text(self.configuration)})"
        self._problems.set(
            SOURCE,
            AgentDegraded.KUBELET_CONFIGURATION_UNKNOWN,
            f"settings of kubelet's TopologyManager are unknown and {counts_as}: {text}; let the agent get"
            f" nodes/configz, or set the node's label {TOPOLOGY_MANAGER_POLICY_LABEL}",
        )

    def _take(self, configuration: KubeletConfiguration | None) -> None:
        if configuration == self.configuration:
            return
        self.configuration = configuration
        _log.info(
            "settings of kubelet's TopologyManager",
            settings="unknown" if configuration is None else _text(configuration),
        )
        self._on_change()


def _text(configuration: KubeletConfiguration) -> str:
    policy, scope = configuration.topology_manager_policy, configuration.topology_manager_scope
    return f"policy {policy.value}, scope {scope.value}"
