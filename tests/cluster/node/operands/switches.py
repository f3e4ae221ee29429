"""Settings of the server by which these tests switch operands on and off."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tests.cluster.node.environment import nvidia_image
from tests.cluster.system.installation import SAMPLE_EVERY_S
from tests.cluster.system.objects import PREFIX

if TYPE_CHECKING:
    from tests.cluster.system.installation import GpuSystem

POOL: Final = "watched"
"""The pool that dcgm-exporter is told of."""
DAEMON_SETS: Final = {
    "validator": "gpu-node-validator",
    "gfd": "gpu-feature-discovery",
    "dcgm": "nvidia-dcgm",
    "dcgm-exporter": "nvidia-dcgm-exporter",
}
STATES: Final = {
    "gfd": "gpu-feature-discovery",
    "dcgm": "state-dcgm",
    "dcgm-exporter": "state-dcgm-exporter",
}
"""Operand -> value of the label of its pods, where that is another."""
GONE_WITHIN_S: Final = 10
"""An operand that is switched off is gone, pods and all."""
_IMAGE: Final = {"image": nvidia_image.NAME}


def settings(image: str, **bootstrap: Any) -> dict[str, Any]:
    """Return the settings with all four operands, but for these fields of `bootstrap`; `image` is ours."""
    exporter = {
        "enabled": True,
        "source": "DCGM",
        # dcgm-exporter knows no other resources than NVIDIA's.
        "env": {"NVIDIA_RESOURCE_NAMES": PREFIX + POOL},
        "service_monitor": {"interval": "1s"},
    }
    all_on = {
        "period_s": SAMPLE_EVERY_S,
        "gfd": {"enabled": True, **_IMAGE},
        "dcgm": {"enabled": True, **_IMAGE},
        "dcgm_exporter": exporter | _IMAGE,
    }
    return {"device_plugin": {"image": image}, "bootstrap": all_on | bootstrap}


@final
@dataclass
class SwitchedSystem:
    """Our system, and the settings that it has now."""

    system: "GpuSystem"
    image: str
    """Ours."""
    now: dict[str, Any]

    async def switch(self, **bootstrap: Any) -> None:
        """Have all four operands but for these fields of `bootstrap`; restarts the server where that differs."""
        expected = settings(self.image, **bootstrap)
        if expected != self.now:
            await self.system.reconfigure(**expected)
            self.now = expected

    async def use_nvml(self) -> None:
        """Have the validator, and metrics of devices from the node agents."""
        off = {"enabled": False}
        exporter = {"enabled": True, "service_monitor": {"interval": "1s"}}
        await self.switch(gfd=off, dcgm=off, dcgm_exporter=exporter)
