"""Projections of what we run in our own namespace: as much as we set, and nothing that others report."""

from typing import Any

import msgspec

from api.meta import Model, ObjectMeta


class ConfigMap(Model, frozen=True):
    """A ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class DaemonSet(Model, frozen=True):
    """A DaemonSet without its status, which says what runs."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
