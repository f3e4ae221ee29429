"""The interface of a backend: what is asked of it, and what it sees."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from api.kinds.autoscaling import ScaleRequestStatus
    from api.names import PoolName
    from autoscaling.scaling_model import NodeRequest, ObservedRequest, ScalingParameters


class ForeignObjectError(Exception):
    """An object that the backend would create exists and is not its own; the message names it and the cure."""


class NodeAutoscaler(Protocol):
    """One way of asking for nodes. Every call may be repeated, and may fail or be cut at any await.

    A call that raises KubeError may have been carried out or not; `observe` shows it later.
    """

    def observe(
        self,
        parameters: "ScalingParameters",
        *,
        now: "dt.datetime",
        recorded: "Sequence[ScaleRequestStatus]",
    ) -> "tuple[ObservedRequest, ...]":
        """Return the requests of a pool that left a trace in the API, from stores alone."""

    def is_caught_up(self, pool: "PoolName") -> bool:
        """Say whether the stores show what was written for the pool: a plan before that asks twice."""

    async def ensure(self, request: "NodeRequest", parameters: "ScalingParameters") -> None:
        """Ask for the node, unless that was done before.

        Raises:
            ForeignObjectError: an object of another owner is in the way.
        """

    async def cancel(self, observed: "ObservedRequest") -> None:
        """Withdraw a request; a node that was launched for it is kept."""

    async def reconcile(self, parameters: "ScalingParameters") -> None:
        """Write what belongs to the pool as a whole, as conditions that are missing.

        Raises:
            ForeignObjectError: an object of another owner is in the way.
        """

    async def withdraw(self, pool: "PoolName") -> None:
        """Delete what the backend wrote for a pool that does not use it any more."""
