"""Deckhouse's ModuleConfig: the part with a module's settings."""

from typing import Any

import msgspec

from api.meta import Model, ObjectMeta


class ModuleConfigSpec(Model, frozen=True):
    """Settings of a module."""

    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class ModuleConfig(Model, frozen=True):
    """A ModuleConfig, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ModuleConfigSpec = ModuleConfigSpec()
