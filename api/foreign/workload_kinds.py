"""Projections of the workloads in the control plane's namespace: the fields that it sets, and how far a roll-out is."""

from typing import Any

import msgspec

from api.meta import Model, ObjectMeta


class ConfigMap(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class DaemonSetStatus(Model, frozen=True):
    """Numbers of nodes."""

    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0


class DaemonSet(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: DaemonSetStatus = DaemonSetStatus()
