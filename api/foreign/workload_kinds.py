"""Projections of the workloads in the control plane's namespace: the fields that it sets."""

from typing import Any

import msgspec

from api.meta import Model, ObjectMeta


class ConfigMap(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class DaemonSet(Model, frozen=True):
    """A DaemonSet without its status."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
