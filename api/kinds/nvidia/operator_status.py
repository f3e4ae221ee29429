"""The status of both kinds: upstream's conditions, and beyond them every state and every node that is upgraded."""

from enum import Enum

from api.meta import Condition, Model


class StateReadiness(Enum):
    """Readiness of a state."""

    READY = "ready"
    """Its objects are as they should be, and its pods are ready on every node."""
    NOT_READY = "notReady"
    """Something is missing; reason and message say what."""
    DISABLED = "disabled"
    """It is switched off, and nothing of it is left."""


class StateStatus(Model, frozen=True):
    """A state: the objects of one operand."""

    name: str
    """Name of the state, such as state-driver."""
    state: StateReadiness
    reason: str = ""
    """Why it has this readiness, in CamelCase; for programs."""
    message: str = ""
    """What is missing and where, for people; empty while it is ready."""
    since: str | None = None
    """Time of the last change of `state`."""
    objects: int = 0
    """Objects that belong to the state."""
    nodes_ready: int = 0
    """Nodes on which its pods are ready."""
    nodes_total: int = 0
    """Nodes that are to run its pods."""


class NodeUpgradeStatus(Model, frozen=True):
    """The upgrade of the driver on one node."""

    node: str
    """Name of the node."""
    state: str
    """Value of the node's label nvidia.com/gpu-driver-upgrade-state."""
    since: str | None = None
    """Time of the last change of `state`."""
    reason: str = ""
    """Why the node is in this state, in CamelCase; for programs."""
    message: str = ""
    """Why it is, for people."""
    attempt: int = 0
    """Number of the attempt; it goes up where a node that failed is tried again."""


class OperatorStatus(Model, frozen=True):
    """What both kinds show."""

    namespace: str = ""
    """Namespace of the operands."""
    conditions: list[Condition] | None = None
    """Ready and Error, which are always written together, and say the same."""
    states: list[StateStatus] | None = None
    """Every state, by name."""
    upgrade: list[NodeUpgradeStatus] | None = None
    """Nodes whose driver is to be upgraded, is being upgraded, or could not be; nodes that are done are left out."""
