"""Karpenter's times, and the faults of its cloud."""

from dataclasses import dataclass, field
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KarpenterTimes:
    """In seconds. Those of Karpenter are constants there; those of the cloud differ from cloud to cloud."""

    batch_idle_s: float = 1.0
    batch_max_s: float = 10.0
    retrigger_s: float = 10.0
    """Until a pod that is still unschedulable makes a batch again."""
    nomination_s: float = 20.0
    """A node that a pod was nominated for is kept so long."""
    disruption_poll_s: float = 10.0
    validation_s: float = 15.0
    """Between the decision that a node is empty and its end."""
    launch_timeout_s: float = 300.0
    registration_timeout_s: float = 900.0
    offering_cache_s: float = 180.0
    """An offering without capacity is not tried again for so long."""
    told_s: float = 300.0
    """An equal Event about a pod is not repeated for so long."""
    launch_s: float = 0.2
    registration_s: float = 0.5
    """From launch to the Node."""
    termination_s: float = 0.2
    look_s: float = 0.25
    """Between two looks of the double while time alone may make something due."""


@final
@dataclass(slots=True, kw_only=True)
class CloudFaults:
    """What the cloud does not do; a test changes it at any time."""

    without_capacity: set[str] = field(default_factory=set)
    """Names of instance types, zones and NodePools that nothing is launched of."""
    never_launching: set[str] = field(default_factory=set)
    """NodePools whose launches neither succeed nor fail."""
    never_registering: set[str] = field(default_factory=set)
    """NodePools whose instances never become Nodes."""
    not_ready: set[str] = field(default_factory=set)
    """NodePools whose node class is not ready."""

    def lacks(self, *names: str) -> bool:
        return not self.without_capacity.isdisjoint(names)
