"""A driver, as a ClusterPolicy and an NVIDIADriver describe it alike, and its images for a group of nodes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from api.image_source import ImageSourceError, has_digest
from api.kinds.nvidia import driver_blocks
from api.kinds.nvidia.nvidiadriver import DriverType
from api.kinds.nvidia.operand_image import image_for_nodes, operand_image
from operands.nvidia.drivers.groups import DriverGrouping
from operands.nvidia.policy_operands import StateFault, StateSettingsError

if TYPE_CHECKING:
    from api.kinds.nvidia.operand_block import ImageFields
    from operands.nvidia.drivers.groups import DriverGroup

_VERSION: Final = re.compile(r"v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?", re.ASCII)
_OPEN_MODULES_ONLY: Final = (2, 17, 5)
"""Version of GPUDirect Storage from which on it needs the open kernel modules."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceFiles:
    """Where the licence of a vGPU driver is."""

    config_map: str = ""
    secret: str = ""
    """Counts before the ConfigMap."""
    has_token: bool = False
    """Whether there is a token of NVIDIA's licensing system beside the configuration."""

    def __bool__(self) -> bool:
        return bool(self.config_map or self.secret)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverDescription:
    """A driver."""

    spec_path: str
    """The object and the part of its spec, such as `ClusterPolicy gpus: spec.driver`; messages begin with it."""
    add_ons_path: str
    """The same of the parts `gds` and `gdrcopy`."""
    namespace: str
    spec: driver_blocks.DriverFields
    type: DriverType = DriverType.GPU
    is_of_driver_object: bool = False
    """Whether an NVIDIADriver describes it; a ClusterPolicy leaves the choice of modules to the driver."""
    args: tuple[str, ...] = ("init",)
    """Args of the driver's container."""
    gds: driver_blocks.GPUDirectStorage = field(default_factory=driver_blocks.GPUDirectStorage)
    gdrcopy: driver_blocks.GDRCopy = field(default_factory=driver_blocks.GDRCopy)
    repo_config: str = ""
    """ConfigMap of package repositories."""
    licence: LicenceFiles = LicenceFiles()
    topology_config: str = ""
    """ConfigMap of the daemon for the virtual topology."""
    environment: Mapping[str, str] = field(default_factory=dict)
    config_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """ConfigMap of the namespace -> its keys."""

    @property
    def is_precompiled(self) -> bool:
        return self.spec.is_precompiled

    @property
    def grouping(self) -> DriverGrouping:
        return DriverGrouping.KERNEL if self.is_precompiled else DriverGrouping.SUBSCRIPTION

    @property
    def hosts_virtual_gpus(self) -> bool:
        return self.type is DriverType.VGPU_HOST_MANAGER

    def image(self, group: "DriverGroup") -> str:
        """Return the driver's image for a group of nodes."""
        return group_image(self.spec, group, spec_path=self.spec_path, environment=self.environment)

    def manager_image(self) -> str:
        """Return the image of k8s-driver-manager, which is the same for all nodes."""
        spec_path = f"{self.spec_path}.manager"
        return image(self.spec.manager, spec_path=spec_path, environment=self.environment)

    def gds_image(self, group: "DriverGroup") -> str:
        spec_path = f"{self.add_ons_path}.gds"
        return group_image(self.gds, group, spec_path=spec_path, environment=self.environment)

    def gdrcopy_image(self, group: "DriverGroup") -> str:
        spec_path = f"{self.add_ons_path}.gdrcopy"
        return group_image(self.gdrcopy, group, spec_path=spec_path, environment=self.environment)

    def check(self) -> None:
        """Check what belongs together.

        Raises:
            StateSettingsError: fields contradict each other.
        """
        beside = [
            name for name, item in (("gds", self.gds), ("gdrcopy", self.gdrcopy)) if item.is_enabled
        ]
        if self.is_precompiled and beside:
            raise StateSettingsError(
                StateFault.SPEC_INVALID,
                f"{self.spec_path}.usePrecompiled: a precompiled driver runs without GPUDirect Storage and GDRCopy:"
                f" switch {' and '.join(f'{self.add_ons_path}.{name}' for name in beside)} off, or usePrecompiled",
            )
        modules = self.spec.kernel_module_type
        if self._needs_open_modules() and modules is not driver_blocks.KernelModuleType.OPEN:
            raise StateSettingsError(
                StateFault.SPEC_INVALID,
                f"{self.add_ons_path}.gds: GPUDirect Storage runs with the open kernel modules only from version"
                f" 2.17.5 on, or by digest: set {self.spec_path}.kernelModuleType to open",
            )

    def _needs_open_modules(self) -> bool:
        if not (self.is_of_driver_object and self.gds.is_enabled):
            return False
        if has_digest(self.gds.version):
            return True
        found = _VERSION.match(self.gds.version)
        if found is None:
            return False
        return tuple(int(group or 0) for group in found.groups()) >= _OPEN_MODULES_ONLY


def image(block: "ImageFields", *, spec_path: str, environment: Mapping[str, str]) -> str:
    """Return an image that is the same for all nodes.

    Raises:
        StateSettingsError: it is given in half, or nowhere.
    """
    try:
        return operand_image(block, field=spec_path, environment=environment)
    except ImageSourceError as error:
        raise StateSettingsError(StateFault.IMAGE_INVALID, str(error)) from error


def group_image(
    block: "ImageFields", group: "DriverGroup", *, spec_path: str, environment: Mapping[str, str]
) -> str:
    """Return an image whose tag ends with the system of the nodes.

    Raises:
        StateSettingsError: it is given in half, or nowhere, or has no tag.
    """
    common = image(block, spec_path=spec_path, environment=environment)
    try:
        return image_for_nodes(common, field=spec_path, os_tag=group.os_tag, kernel=group.kernel)
    except ImageSourceError as error:
        raise StateSettingsError(StateFault.IMAGE_INVALID, str(error)) from error
