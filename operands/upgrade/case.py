"""One node in one pass: what is asked, and the two answers that a state may give.

A state stays, or goes on to another one. Its actions come first, so that a pass that ends early leaves the node in the state
that repeats them.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, final

from operands.upgrade import deadlines
from operands.upgrade.driver_pods import is_driver_ready, serves_old_driver

if TYPE_CHECKING:
    from api.driver_upgrade import UpgradeState
    from operands.upgrade.actions import Annotations, UpgradeAction
    from operands.upgrade.facts import UpgradeNode, UpgradeTimes
    from operands.upgrade.parameters import UpgradeParameters
    from operands.upgrade.reasons import UpgradeReason
    from operands.upgrade.record import RecordedNode, UpgradeRecord
    from operands.upgrade.slots import UpgradeSlot


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeCase:
    owner: str
    """The NVIDIADriver of the policy; empty: the ClusterPolicy."""
    parameters: "UpgradeParameters"
    recorded: "RecordedNode"
    slot: "UpgradeSlot"
    """Meant for a node in upgrade-required."""
    times: "UpgradeTimes"

    @property
    def node(self) -> "UpgradeNode":
        return self.recorded.node

    @property
    def record(self) -> "UpgradeRecord":
        return self.recorded.record

    @property
    def is_over(self) -> bool:
        """Whether the deadline of the state has passed."""
        return deadlines.is_over(self.parameters, self.record, self.times)

    @property
    def is_validated(self) -> bool:
        """Whether the new driver is ready, the validator agrees, and our own agents are back.

        Pods that start before them are given the libraries of the old driver, which are gone, and fail for good.
        Pods that are not read are no evidence: False.
        """
        pods = self.node.validators
        is_checked = not self.parameters.has_validator or (
            bool(pods) and all(pod.is_ready for pod in pods)
        )
        is_read = self.node.pods is not None
        return is_driver_ready(self.recorded) and is_checked and is_read and not self.unready_agents

    @property
    def unready_agents(self) -> list[str]:
        """Our agents on the node that do not work yet, and the DaemonSets of those that have no pod yet."""
        agents = [pod for pod in self.node.identified_pods if pod.is_agent]
        with_pods = {pod.agent for pod in agents if not pod.is_terminating}
        absent = sorted(self.node.agents - with_pods)
        unready = [pod.ref for pod in agents if not pod.is_ready]
        return [*unready, *(f"DaemonSet {name}" for name in absent)]

    @property
    def may_return(self) -> bool:
        """Whether pods may come back: the old driver still serves, or the new one is validated."""
        return serves_old_driver(self.recorded) or self.is_validated


@final
@dataclass(frozen=True, slots=True)
class Stay:
    reason: "UpgradeReason"
    message: str
    actions: "tuple[UpgradeAction, ...]" = ()


@final
@dataclass(frozen=True, slots=True)
class Advance:
    state: "UpgradeState"
    reason: "UpgradeReason"
    message: str
    actions: "tuple[UpgradeAction, ...]" = ()
    """Carried out before the state changes."""
    annotations: "Annotations" = field(default_factory=dict)
    """Changed with the state."""
    attempt: int | None = None
    """None: the same one."""
    replaces: str | None = None
    revision: str | None = None
    digest: str | None = None


UpgradeMove: TypeAlias = Stay | Advance
