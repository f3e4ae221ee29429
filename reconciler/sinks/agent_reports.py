"""What our agents say of their nodes, while they are heard: words of one that fell silent are old."""

from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping

    from api.names import NodeName
    from pool.model import Instant

_NOTHING: "Final[Mapping[str, tuple[str, str]]]" = {}


class AgentFeatures(Protocol):
    """What agents publish; `reconciler.sinks.node_features.NodeFeatureSink`."""

    def heartbeat(self, node: "NodeName") -> "dt.datetime | None":
        """Return when the node's agent last looked; None where it does not say."""

    def health(self, node: "NodeName") -> "Mapping[str, tuple[str, str]]":
        """Return what the node's agent says of its cards: UUID -> health and why."""


@final
class AgentReports:
    """Health as agents report it, and how long ago they were heard."""

    def __init__(
        self, features: AgentFeatures, *, freshness_s: float, now: "Callable[[], Instant]"
    ) -> None:
        """Take what agents publish, how old it may be, and the time."""
        self._features = features
        self._freshness_s = freshness_s
        self._now = now

    def heartbeat_age_s(self, node: "NodeName") -> float | None:
        """Return how long ago the node's agent looked; None where it does not say.

        A heartbeat from the future is judged alike: a clock that is off may never be right.
        """
        heartbeat = self._features.heartbeat(node)
        if heartbeat is None:
            return None
        return abs((self._now().utc - heartbeat).total_seconds())

    def health(self, node: "NodeName") -> "Mapping[str, tuple[str, str]]":
        """Return what the agent says of its cards, nothing where it has fallen silent."""
        age_s = self.heartbeat_age_s(node)
        is_silent = age_s is not None and age_s > self._freshness_s
        return _NOTHING if is_silent else self._features.health(node)
