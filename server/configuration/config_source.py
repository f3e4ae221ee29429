"""What the settings of a process come from, and which of them count without a restart. Pure, but for the environment.

Precedence: flags, environment, ModuleConfig, GPUControlPlaneConfig, defaults. The values of the installation, which its
Deployment has as `--installation`, are written into the GPUControlPlaneConfig when they change.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from manifests import constants
from server.controllers.settings import check_images
from server.setting_fields import setting_fields
from server.settings import BadSettingsError, Settings, load_settings

if TYPE_CHECKING:
    from api.foreign.deckhouse import ModuleConfig
    from api.kinds.gpucontrolplaneconfig import GPUControlPlaneConfig

FLAGS: Final = ("kubeconfig", "context", "namespace", "api_timeout_s", "log_level", "log_format")
"""Settings that a server needs before it can read an object: the Deployment has them."""
LIVE: Final = (
    "placement",
    "inventory",
    "health",
    "daemonsets",
    "device_plugin",
    "node_agent",
    "node_detector",
    "kubelet",
    "pod_security",
)
"""Settings and sections that only controllers read: these end, and start again with other values. All others need a restart."""

Layer = tuple[str, Mapping[str, Any]]
"""Settings, and what comes before their names in a complaint."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSource:
    """What a process was started with."""

    installation: Mapping[str, Any]
    arguments: Sequence[str] = ()
    """Flags of settings."""

    @property
    def initial(self) -> Settings:
        """Return the settings without any object.

        Raises:
            BadSettingsError: names every invalid setting.
        """
        return self._checked([("installation: ", self.installation)])

    @property
    def stored(self) -> dict[str, Any]:
        """Return the part of the installation's values that the object has."""
        return {name: value for name, value in self.installation.items() if name not in FLAGS}

    @property
    def checksum(self) -> str:
        """Return what changes when that part does."""
        text = json.dumps(self.stored, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def settings(self, layers: Sequence[Layer]) -> Settings:
        """Return the settings with these of objects.

        Raises:
            BadSettingsError: names every invalid setting.
        """
        if flags := [
            f"{origin}{name}" for origin, given in layers for name in FLAGS if name in given
        ]:
            raise BadSettingsError(
                f"{', '.join(flags)}: a server needs it before it reads the object; set it with the"
                " chart's value `settings`, or as a flag"
            )
        own = {name: value for name, value in self.installation.items() if name in FLAGS}
        return self._checked([("installation: ", own), *layers])

    def _checked(self, layers: Sequence[Layer]) -> Settings:
        settings = load_settings(self.arguments, layers=layers)
        check_images(settings)
        return settings


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


def layers_of(config: "GPUControlPlaneConfig", module: "ModuleConfig | None") -> list[Layer]:
    layers: list[Layer] = [(f"GPUControlPlaneConfig {constants.NAME}: spec.", config.spec)]
    if module is not None:
        layers.append(
            (f"ModuleConfig {module.metadata.name}: spec.settings.", module.spec.settings)
        )
    return layers


def next_state(
    before: ConfigState, given: Settings | BadSettingsError, *, started: Settings
) -> ConfigState:
    """Return the state after objects gave these settings to a server that was started with others."""
    if isinstance(given, BadSettingsError):
        return ConfigState(
            settings=before.settings, restart_needed=before.restart_needed, refusal=str(given)
        )
    in_force = started.model_copy(update={name: getattr(given, name) for name in LIVE})
    return ConfigState(settings=in_force, restart_needed=_different(in_force, given))


def _different(first: Settings, second: Settings) -> tuple[str, ...]:
    """Return the names of the settings that differ."""
    return tuple(
        field.name
        for field in setting_fields(Settings.model_json_schema())
        if not field.is_section and _value(first, field.path) != _value(second, field.path)
    )


def _value(settings: Settings, path: Sequence[str]) -> object:
    found: object = settings
    for part in path:
        found = getattr(found, part)
    return found
