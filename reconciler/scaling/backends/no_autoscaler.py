"""Backend `none`: no node is asked for; Events and metrics say what waits."""

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from api.kinds.autoscaling import ScaleRequestStatus
    from api.names import PoolName
    from autoscaling.scaling_model import NodeRequest, ObservedRequest, ScalingTerms


@final
class NoAutoscaler:
    """Asks for nothing and sees nothing."""

    def observe(
        self,
        terms: "ScalingTerms",
        *,
        now: "dt.datetime",
        known: "Sequence[ScaleRequestStatus]",
    ) -> "tuple[ObservedRequest, ...]":
        return ()

    def is_caught_up(self, pool: "PoolName") -> bool:
        return True

    async def ensure(self, request: "NodeRequest", terms: "ScalingTerms") -> None:
        """Do nothing."""

    async def cancel(self, observed: "ObservedRequest") -> None:
        """Do nothing."""

    async def settle(self, terms: "ScalingTerms") -> None:
        """Do nothing."""

    async def withdraw(self, pool: "PoolName") -> None:
        """Do nothing."""
