"""The port by which the fake kubelet mounts the volumes of pods, and the one for pods whose volumes need no driver."""

from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from api.foreign.core import Pod


class VolumeNotReadyError(Exception):
    """A volume cannot be mounted or unmounted now; the text is that of kubelet's Event."""


class PodVolumes(Protocol):
    """Mounts the volumes of pods."""

    async def mount(self, pod: "Pod") -> None:
        """Return once all volumes of the pod are mounted; idempotent.

        Raises:
            VolumeNotReadyError: one is not; kubelet tries again.
        """

    async def unmount(self, pod: "Pod") -> None:
        """Return once no volume of the pod is mounted; idempotent.

        Raises:
            VolumeNotReadyError: one still is; kubelet tries again.
        """


@final
class NoDrivers:
    """Every volume is there at once."""

    async def mount(self, pod: "Pod") -> None:
        """Return."""

    async def unmount(self, pod: "Pod") -> None:
        """Return."""
