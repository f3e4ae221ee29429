"""Conditions that we write, with their reasons; the only home of such strings."""

from enum import Enum


class PoolCondition(Enum):
    """Condition types of a GPUPool."""

    READY = "Ready"


class PoolReady(Enum):
    """Reasons of the condition Ready."""

    SERVING = "Serving"
    NO_DEVICES = "NoDevices"
    NO_HEALTHY_DEVICES = "NoHealthyDevices"
    TERMINATING = "Terminating"


class PoolPhase(Enum):
    """`status.phase` of a GPUPool."""

    PENDING = "Pending"
    """No device yet."""
    READY = "Ready"
    DEGRADED = "Degraded"
    """Devices, but none of them healthy."""
    TERMINATING = "Terminating"
