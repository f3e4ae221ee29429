"""Which settings are in force: at the start of a server, and after each change of the objects. Pure, but for a log line."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import structlog

from manifests import constants
from server.configuration.config_source import LIVE
from server.settings import BadSettingsError, Settings, settings_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.foreign.deckhouse import ModuleConfig
    from api.kinds.gpucontrolplaneconfig import GPUControlPlaneConfig
    from server.configuration.config_source import ConfigSource, Layer

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConfig:
    """Objects with settings; None where there is none."""

    config: "GPUControlPlaneConfig | None"
    module: "ModuleConfig | None"

    @property
    def layers(self) -> "list[Layer]":
        """Settings of the objects: a later layer overrides. None without the GPUControlPlaneConfig."""
        if self.config is None:
            return []
        found: list[Layer] = [(f"GPUControlPlaneConfig {constants.NAME}: spec.", self.config.spec)]
        if self.module is not None:
            found.append(
                (f"ModuleConfig {constants.NAME}: spec.settings.", self.module.spec.settings)
            )
        return found


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigState:
    """Settings in force, and what became of those that objects have."""

    settings: Settings
    restart_needed: tuple[str, ...] = ()
    """Names of settings that count after a restart."""
    refusal: str = ""
    """Each invalid setting with the reason; the settings in force are older then."""
    is_missing: bool = False
    """Whether there is no GPUControlPlaneConfig."""


def first_state(source: "ConfigSource", stored: StoredConfig) -> ConfigState:
    """Return the settings to start with: those of the objects, or those that were accepted last, or the installation's."""
    if stored.config is None:
        return ConfigState(settings=source.initial, is_missing=True)
    try:
        return ConfigState(settings=source.settings(stored.layers))
    except BadSettingsError as error:
        refusal = str(error)
    accepted = stored.config.status.applied if stored.config.status is not None else {}
    if accepted:
        try:
            layer = (f"GPUControlPlaneConfig {constants.NAME}: status.applied.", accepted)
            return ConfigState(settings=source.settings([layer]), refusal=refusal)
        except BadSettingsError as error:  # of an earlier version
            _log.warning("settings that were accepted last are refused", error=str(error))
    return ConfigState(settings=source.initial, refusal=refusal)


def next_state(
    before: ConfigState, source: "ConfigSource", stored: StoredConfig, *, started: Settings
) -> ConfigState:
    """Return the state of a server that was started with these settings, after a change of the objects."""
    if stored.config is None:
        return replace(before, is_missing=True)
    try:
        given = source.settings(stored.layers)
    except BadSettingsError as error:
        return replace(before, refusal=str(error), is_missing=False)
    in_force = started.model_copy(update={name: getattr(given, name) for name in LIVE})
    return ConfigState(settings=in_force, restart_needed=_different(in_force, given))


def _different(first: Settings, second: Settings) -> tuple[str, ...]:
    """Return the names of the settings that differ."""
    return tuple(
        field.name
        for field in settings_fields()
        if not field.is_section and _value(first, field.path) != _value(second, field.path)
    )


def _value(settings: Settings, path: "Sequence[str]") -> object:
    found: object = settings
    for part in path:
        found = getattr(found, part)
    return found
