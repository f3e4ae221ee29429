"""Images that play NVIDIA's driver container and k8s-driver-manager: a busybox with `programs`.

A driver's image has the libraries of its version, and says so in the environment, as NVIDIA's do. What the kernel would
load is a directory beside them. It is the image of GPUDirect Storage and of GDRCopy, too.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.node.environment import images, nvidia_image
from tests.cluster.node.stories.devices import LIBRARIES, install_driver

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.support.nvml.library import NvmlDevice

REPOSITORY: Final = "localhost"
DRIVER: Final = "driver"
SYSTEM: Final = "ubuntu24.04"
"""The end of a driver's tag."""
MANAGER: Final = f"{REPOSITORY}/driver-manager:1"
_PROGRAMS: Final = Path(__file__).parent / "programs"
_SHELL: Final = f"""#!/bin/busybox ash
# A shell of busybox runs its own lsmod, whatever PATH says, unless it has a function of the name.
lsmod() {{
{nvidia_image.LSMOD}
}}
case "$1" in
  -*c) eval "$2" ;;
  *) program=$1; shift; . "$program" ;;
esac
"""
_SCRIPTS: Final = {
    "sh": _SHELL,
    "bash": _SHELL,
    "nvidia-gds-driver": "#!/bin/sh\nexec nvidia-driver load nvidia_fs\n",
    "nvidia-gdrcopy-driver": "#!/bin/sh\nexec nvidia-driver load gdrdrv\n",
}


def write_images(
    directory: Path, busybox: Path, devices: "Sequence[NvmlDevice]", versions: "Iterable[str]"
) -> list[Path]:
    """Write the image of each version of the driver, and that of its manager; return their tars."""
    applets = images.applets_of(busybox)
    programs = {f"bin/{path.name}": path.read_bytes() for path in _PROGRAMS.iterdir()}
    programs |= {f"bin/{name}": script.encode() for name, script in _SCRIPTS.items()}

    def write(name: str, files: dict[str, bytes], env: dict[str, str]) -> Path:
        tar = directory / f"{name.replace('/', '-')}.tar"
        images.write_busybox_image(
            tar,
            busybox,
            name=name,
            applets=[applet for applet in applets if f"bin/{applet}" not in programs],
            command=["sh"],
            files=programs | files,
            env=env,
        )
        return tar

    drivers = [
        write(
            f"{REPOSITORY}/{DRIVER}:{version}-{SYSTEM}",
            _driver_files(directory / version, devices, version),
            {"DRIVER_VERSION": version},
        )
        for version in versions
    ]
    return [*drivers, write(MANAGER, {}, {})]


def _driver_files(scratch: Path, devices: "Sequence[NvmlDevice]", version: str) -> dict[str, bytes]:
    install_driver(scratch, devices, version)
    files = (path for path in (scratch / LIBRARIES).iterdir() if path.suffix != ".lock")
    found = {f"driver/{LIBRARIES}/{file.name}": file.read_bytes() for file in files}
    shutil.rmtree(scratch)
    return found
