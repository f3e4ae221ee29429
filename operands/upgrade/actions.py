"""Actions on one node, as values, and the progress that goes with them.

Each action is one write to the API, and does nothing where its effect is there already. The actions of a node are carried
out in their order; the first that fails ends the pass for this node. A pass may end after any of them: the next one goes on
from what is there. The next pass sees the effects of this one, so it must not read an older cache.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, final

from api.kinds.nvidia.operator_status import NodeUpgradeStatus
from api.status_conditions import format_time

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from api.driver_upgrade import UpgradeState
    from api.names import NodeName, PodUid
    from operands.upgrade.reasons import UpgradeReason

Annotations: TypeAlias = "Mapping[str, str | None]"
"""Changes of annotations; None removes one."""


@final
@dataclass(frozen=True, slots=True)
class WithholdUnits:
    """The node's devices take no new pod: set `UNITS_WITHHELD_ANNOTATION`."""

    node: "NodeName"


@final
@dataclass(frozen=True, slots=True)
class ReturnUnits:
    """Undo `WithholdUnits`."""

    node: "NodeName"


@final
@dataclass(frozen=True, slots=True)
class Cordon:
    """Set `spec.unschedulable` by server-side apply as `CORDON_MANAGER`, only if the node is still schedulable.

    So a cordon of another client is never taken for ours.
    """

    node: "NodeName"


@final
@dataclass(frozen=True, slots=True)
class Uncordon:
    """Undo `Cordon` by an apply without the field, which leaves it where another client has set it since."""

    node: "NodeName"


@final
@dataclass(frozen=True, slots=True)
class SetState:
    """Change the state label and annotations in one write, only while the label has the value that it had."""

    node: "NodeName"
    before: str
    """The label as it was read; empty: it was absent."""
    state: "UpgradeState"
    """UNKNOWN: remove the label."""
    annotations: Annotations = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class Annotate:
    node: "NodeName"
    annotations: Annotations


@final
@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict the pod through the eviction subresource, which asks disruption budgets; only the pod of this UID."""

    node: "NodeName"
    namespace: str
    name: str
    uid: "PodUid"


@final
@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a driver pod, or a validator pod, so that its DaemonSet creates another one; only the pod of this UID."""

    node: "NodeName"
    namespace: str
    name: str
    uid: "PodUid"


@final
@dataclass(frozen=True, slots=True)
class PauseOperand:
    """Set a deploy label to `PAUSED_FOR_UPGRADE`: the operand's pod leaves the node."""

    node: "NodeName"
    label: str


@final
@dataclass(frozen=True, slots=True)
class ResumeOperand:
    """Undo `PauseOperand`: set the label to `DEPLOYED`, only while it has the value of the pause."""

    node: "NodeName"
    label: str


@final
@dataclass(frozen=True, slots=True)
class ReleaseAgent:
    """Set `AGENT_DEPLOY_LABEL`: the pods of this control plane that open the driver leave the node."""

    node: "NodeName"


@final
@dataclass(frozen=True, slots=True)
class ReturnAgent:
    """Undo `ReleaseAgent`: remove the label."""

    node: "NodeName"


@final
@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Reconcile again at this time, if no fact changes before."""

    node: "NodeName"
    until: "dt.datetime"


@final
@dataclass(frozen=True, slots=True)
class ReportReason:
    """Report the reason, as an Event on the node: it is new."""

    node: "NodeName"
    reason: "UpgradeReason"
    message: str


UpgradeAction: TypeAlias = (
    WithholdUnits
    | ReturnUnits
    | Cordon
    | Uncordon
    | SetState
    | Annotate
    | EvictPod
    | DeletePod
    | PauseOperand
    | ResumeOperand
    | ReleaseAgent
    | ReturnAgent
    | WaitUntil
    | ReportReason
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeProgress:
    """The node's state once the actions of this pass are carried out."""

    node: "NodeName"
    state: "UpgradeState"
    since: "dt.datetime | None"
    """When the node came into the state; None: before anything was recorded."""
    reason: "UpgradeReason"
    message: str
    attempt: int
    """Attempt of this upgrade, from 1; 0: none was needed."""
    deadline: "dt.datetime | None" = None
    """When the state ends by itself, or is overdue; None: it may last."""
    is_overdue: bool = False
    """The state lasts longer than it should, and needs a look."""

    def entry(self) -> NodeUpgradeStatus:
        """Return the node's entry of `status.upgrade`."""
        return NodeUpgradeStatus(
            node=self.node,
            state=self.state.value,
            since=None if self.since is None else format_time(self.since),
            reason=self.reason.value,
            message=self.message,
            attempt=self.attempt,
        )


@final
@dataclass(frozen=True, slots=True)
class NodeUpgrade:
    """What the machine answers for one node."""

    progress: UpgradeProgress
    actions: tuple[UpgradeAction, ...] = ()
