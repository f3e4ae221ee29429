"""What the settings of a process come from, and which of them count without a restart. Pure, but for the environment.

Precedence: flags, environment, ModuleConfig, GPUControlPlaneConfig, defaults. The values of the installation, which its
Deployment has as `--installation`, are written into the GPUControlPlaneConfig when they change. In a roll-out there are
pods with different values: those of the Deployment are the installation's, whichever revision of it has them.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, final

from server.controllers.settings import check_images
from server.setting_sources import GivenSettings
from server.settings import BadSettingsError, Settings, load_settings, settings_fields

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

INSTALLATION_FLAG: Final = "--installation"

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

    def is_deployed(self, arguments: Sequence[str]) -> bool:
        """Say whether a container with these arguments, as a Deployment has them, would write the same values."""
        text = _value_of(INSTALLATION_FLAG, arguments).replace("$$", "$")  # as kubelet does
        try:
            deployed = ConfigSource(installation=installation_values(text))
        except BadSettingsError:
            return False
        return deployed.checksum == self.checksum

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


def installation_values(text: str) -> dict[str, Any]:
    """Return the values that a server is given as text.

    Raises:
        BadSettingsError: the text is no mapping in JSON.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise BadSettingsError(f"{INSTALLATION_FLAG} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadSettingsError(f"{INSTALLATION_FLAG} holds no mapping of settings")
    return found


def _value_of(flag: str, arguments: Sequence[str]) -> str:
    """Return what follows the flag; nothing where it is missing."""
    for word, following in pairwise([*arguments, ""]):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return ""


def merged(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the settings of all layers as one: a later layer replaces a setting, also one that is a mapping."""
    given = GivenSettings(settings_fields())
    for origin, content in layers:
        given.take(content, origin=origin)
    return given.values
