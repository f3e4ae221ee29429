"""The image that stands for NVIDIA's: our image with a layer of `nvidia_programs`, a shell, and a list of metrics.

NVIDIA's programs are in an image each, and here in one. Those of DCGM and of its exporter are entry points, the others are
started by a command; container toolkit, device plugin and MIG manager do nothing until they are told to end.
"""

import json
import tarfile
from pathlib import Path
from typing import Final

from image import layout

NAME: Final = "localhost/nvidia-programs:1"
_PROGRAMS: Final = {
    "gpu-feature-discovery": "feature_discovery",
    "config-manager": "config_manager",
    "nv-hostengine": "host_engine",
    "dcgm-exporter": "exporter",
    "nvidia-validator": "validator",
}
LSMOD: Final = """# Prints the modules that the driver's containers would have loaded into the kernel.
for module in /run/nvidia/driver/sys/module/*; do echo "${module##*/} 16384 0"; done"""
_IDLE: Final = ("nvidia-toolkit", "nvidia-device-plugin", "nvidia-mig-manager")
_SCRIPTS: Final = {
    "lsmod": LSMOD,
    "dcgm": 'if [ "${DCGM_EXPORTER_LISTEN:-}" ]; then exec dcgm-exporter; fi; exec nv-hostengine -n -b ALL',
    # As process 1 of a container a shell ends on SIGTERM by a trap alone.
    **dict.fromkeys(_IDLE, "trap 'exit 0' TERM; sleep 2147483647 & wait"),
}
_MODULES: Final = "tests/cluster/node/environment/nvidia_programs"
_START: Final = "#!/usr/bin/python3.11\nfrom {package}.{module} import main\n\nmain()\n"
_SITE: Final = "usr/local/lib/python3.11/dist-packages"
_PACKAGE: Final = Path(__file__).parent / "nvidia_programs"
_COLLECTORS: Final = "etc/dcgm-exporter/dcp-metrics-included.csv"


def write_nvidia_image(tar: Path, ours: Path, busybox: Path, *, scratch: Path) -> None:
    """Write the image on top of ours.

    Args:
        tar: OCI layout to write.
        ours: OCI layout of our image, of this machine's architecture.
        busybox: static.
        scratch: an empty directory on the file system of busybox.
    """
    base = blobs(ours)
    programs = scratch / "usr/local/bin"
    programs.mkdir(parents=True)
    for name, module in _PROGRAMS.items():
        (programs / name).write_text(
            _START.format(package=_MODULES.replace("/", "."), module=module), encoding="ascii"
        )
    for name, script in _SCRIPTS.items():
        (programs / name).write_text(f"#!/usr/bin/sh\n{script}\n", encoding="ascii")
    for program in programs.iterdir():
        program.chmod(0o755)
    (scratch / "usr/bin").mkdir()
    for applet in ("sh", "sleep", "rm", "cat", "grep"):
        (scratch / "usr/bin" / applet).hardlink_to(busybox)
    collectors = scratch / _COLLECTORS
    collectors.parent.mkdir(parents=True)
    collectors.write_bytes((_PACKAGE / collectors.name).read_bytes())
    source = layout.Tree(_PACKAGE, at=f"{_SITE}/{_MODULES}", is_selected=_is_source)
    added = layout.build_layer([layout.Tree(scratch), source])
    config = json.loads(base["config"].content)
    image = layout.build_image(
        {item: base[item] for item in base if item != "config"} | {"NVIDIA's programs": added},
        architecture=config["architecture"],
        run={"Env": config["config"]["Env"], "Entrypoint": ["dcgm"]},
        labels={},
    )
    layout.write_layout(tar, [image], name=NAME)


def _is_source(path: str) -> bool:
    return path.endswith(".py")


def blobs(tar: Path) -> dict[str, layout.Blob]:
    """Return the config of the only image of a layout, and its layers by digest, lowest first."""
    with tarfile.open(tar) as archive:

        def read(digest: str) -> bytes:
            file = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert file is not None
            return file.read()

        index_file = archive.extractfile("index.json")
        assert index_file is not None
        (named,) = json.load(index_file)["manifests"]
        manifest = json.loads(read(named["digest"]))
        return {"config": layout.Blob.of("", read(manifest["config"]["digest"]))} | {
            layer["digest"]: layout.Blob.of(layer["mediaType"], read(layer["digest"]))
            for layer in manifest["layers"]
        }
