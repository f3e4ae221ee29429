"""Reports of the node agents, while their heartbeats are fresh."""

from typing import TYPE_CHECKING, Final, Protocol, final

from inventory.discovery.node import FRESH_FOR

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping

    from api.clock import Instant
    from api.names import NodeName
    from inventory.health.device import HealthReport

_NOTHING: "Final[Mapping[str, HealthReport]]" = {}


class AgentFeatures(Protocol):
    """NodeFeatures of the agents; `reconciler.sinks.node_feature.NodeFeatureSink`."""

    def heartbeat(self, node: "NodeName") -> "dt.datetime | None":
        """Return the time of the agent's heartbeat, if it has one."""

    def health(self, node: "NodeName") -> "Mapping[str, HealthReport]":
        """Return the health of the node's devices by UUID."""


@final
class AgentReports:
    """Health as agents report it, and the ages of their heartbeats."""

    def __init__(self, features: AgentFeatures, *, now: "Callable[[], Instant]") -> None:
        self._features = features
        self._now = now

    def heartbeat_age_s(self, node: "NodeName") -> float | None:
        """Return the age of the agent's heartbeat, if it has one.

        A heartbeat from the future has the same age: a wrong clock may stay wrong.
        """
        heartbeat = self._features.heartbeat(node)
        if heartbeat is None:
            return None
        return abs((self._now().utc - heartbeat).total_seconds())

    def is_silent(self, node: "NodeName") -> bool:
        """Return whether the agent's heartbeat is too old; one without any is never silent."""
        age_s = self.heartbeat_age_s(node)
        return age_s is not None and age_s > FRESH_FOR.total_seconds()

    def health(self, node: "NodeName") -> "Mapping[str, HealthReport]":
        """Return the health of the node's devices; empty where the agent is silent."""
        return _NOTHING if self.is_silent(node) else self._features.health(node)
