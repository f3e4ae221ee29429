"""Answers about one pod: values that become JSON as they are, and text in `cli.simulation.answer_text`."""

from collections.abc import Sequence
from enum import Enum

import msgspec

from pool.what_if.explanation import AnyRemedy


class DecisionKind(Enum):
    PLACED = "Placed"
    """A node takes the pod now."""
    WAITS = "Waits"
    """Admission accepts the pod, and no node takes it now."""
    DENIED = "Denied"
    """Admission denies the pod."""
    NO_POOL = "NoPool"
    """The pod names no pool: the control plane has no part in its placement."""


class AnswerModel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of the answers."""


class ChosenDevice(AnswerModel, frozen=True):
    name: str
    product: str = ""
    numa_node: int | None = None
    units: list[str] = []
    """Units as the container gets them."""


class RefusedNodes(AnswerModel, frozen=True):
    """Nodes that do not take the pod for one reason."""

    reason: str
    count: int
    examples: Sequence[str]
    may_change: bool = False
    """Whether pods that end could free capacity."""


class Placement(AnswerModel, frozen=True, kw_only=True):
    node: str
    devices: list[ChosenDevice]
    topology: str
    """How the devices are connected: island (all by NVLink), NUMA node, split or unknown."""
    strategy: str
    is_reserved: bool
    """Whether admission reserves these units; otherwise they are free when the scheduler comes to the pod."""
    fitting_nodes: int
    """Nodes that filter passes: a pod with reserved units passes on their node alone."""
    equal_nodes: int
    """Nodes with the best score, this one included: kube-scheduler chooses among them by its own scores."""


class PodDecision(AnswerModel, frozen=True):
    """What the control plane and the limits of the nodes say of one pod."""

    verdict: DecisionKind
    pool: str | None = None
    resource: str | None = None
    units: int = 0
    placement: Placement | None = None
    reason: str | None = None
    """Reason of a denial."""
    message: str | None = None
    warnings: list[str] = []
    """Warnings as admission returns them."""
    refused: list[RefusedNodes] = []
    """Most nodes first."""


class NewNode(AnswerModel, frozen=True):
    like: str | None
    """A node of the pool with such devices; None where none of the pool's nodes would do."""
    devices: dict[str, int]
    """Product -> number of devices; the empty product for any."""
    aligned: bool = False
    """The devices must be on one NUMA node or all connected by NVLink."""


class Answer(AnswerModel, frozen=True):
    """The whole answer."""

    pod: str
    cluster: str
    decision: PodDecision
    remedies: list[AnyRemedy] = []
    """Changes after which the pod, or the changed pod, would be placed now; the least one first."""
    new_node: NewNode | None = None
    """A node that would take the pod; absent when it is placed."""
    partial: list[str] = []
    """Why the answer is of a part of the cluster."""
    not_checked: list[str] = []
    """What Kubernetes checks and this simulation does not: fields of the pod, and objects by which others may refuse it."""
