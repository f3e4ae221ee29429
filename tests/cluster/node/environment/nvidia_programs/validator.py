"""nvidia-validator: a check a container, each with a file for those that wait for it.

Files and decisions: github.com/NVIDIA/gpu-operator, cmd/nvidia-validator/main.go: isDriverManagedByOperator,
validateDriverContainer, validateAdditionalDriverComponents, and the checks of the further modules. Not played are a
driver on the host, nvidia-smi, device files, and the pods by which CUDA and the device plugin are checked.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from tests.cluster.node.environment.nvidia_programs.api_server import call

_INTERVAL_S: Final = 5.0
_LIBRARY: Final = "libnvidia-ml.so.1"
_DRIVER: Final = "driver"
_COMPONENTS: Final = {
    "GDRCOPY_ENABLED": "gdrcopy",
    "GDS_ENABLED": "nvidia-fs",
    "GPU_DIRECT_RDMA_ENABLED": "nvidia-peermem",
}
"""Line of the driver container's file -> component that is checked where it says true."""
_MODULES: Final = {
    "gdrcopy": re.compile(r"^gdrdrv\s", re.MULTILINE),
    "nvidia-fs": re.compile("nvidia_fs"),
    "nvidia-peermem": re.compile(r"^nvidia_peermem\s", re.MULTILINE),
}
"""Component -> what `lsmod` must show."""


class NotReadyError(Exception):
    """A check fails, or would go on waiting."""


@final
@dataclass(frozen=True, kw_only=True)
class Validator:
    """The checks of one node."""

    daemon_sets: Callable[[], "Iterable[dict[str, Any]]"]
    """Returns those of the namespace with the component nvidia-driver."""
    with_wait: bool = False
    validations: Path = Path("/run/nvidia/validations")
    driver_root: Path = Path("/run/nvidia/driver")
    modules: Callable[[], str]
    """Returns what `lsmod` prints: nothing where it fails, as of a kernel without modules."""

    def validate(self, component: str) -> None:
        """Check a component.

        Raises:
            NotReadyError: it is not ready, and nobody waits for it.
        """
        file = self.validations / f"{component}-ready"
        file.unlink(missing_ok=True)
        content = ""
        if component == _DRIVER:
            content = self._check_driver()
        elif component in _MODULES:
            self._until(lambda: self._is_loaded(component), f"the module of {component} is loaded")
        fresh = file.with_name(f".{file.name}.new")
        fresh.write_text(content, encoding="utf-8")
        fresh.replace(file)

    def _check_driver(self) -> str:
        is_managed = any(map(is_operators, self.daemon_sets()))
        ready = self.validations / ".driver-ctr-ready"
        if is_managed:
            self._until(ready.exists, f"{ready.name} is there")
        self._until(
            lambda: next(self.driver_root.rglob(_LIBRARY), None) is not None,
            "the driver's libraries are there",
        )
        if is_managed:
            for line in ready.read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition(": ")
                if value == "true" and name in _COMPONENTS:
                    self.validate(_COMPONENTS[name])
        root = self.driver_root
        return f"IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT={root}\nDRIVER_ROOT_CTR_PATH={root}\n"

    def _is_loaded(self, component: str) -> bool:
        return _MODULES[component].search(self.modules()) is not None

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        while not is_so():
            if not self.with_wait:
                raise NotReadyError(f"not ready: {what}")
            print(f"waiting until {what}", flush=True)
            time.sleep(_INTERVAL_S)


def is_operators(daemon_set: dict[str, Any]) -> bool:
    """Say whether a DaemonSet is controlled by a ClusterPolicy or NVIDIADriver."""
    return any(
        owner.get("controller")
        and owner["apiVersion"].startswith("nvidia.com/")
        and owner["kind"] in {"ClusterPolicy", "NVIDIADriver"}
        for owner in daemon_set["metadata"].get("ownerReferences") or ()
    )


def main() -> None:
    """Check the component of the environment; as node status exporter, run until killed."""
    # As process 1 of a container it would ignore the signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if os.environ["COMPONENT"] == "metrics":
        signal.pause()

    def daemon_sets() -> "Iterable[dict[str, Any]]":
        path = f"/apis/apps/v1/namespaces/{os.environ['OPERATOR_NAMESPACE']}/daemonsets"
        selector = "labelSelector=app.kubernetes.io%2Fcomponent%3Dnvidia-driver"
        found: list[dict[str, Any]] = call("GET", f"{path}?{selector}")["items"]
        return found

    def modules() -> str:
        return subprocess.run(["lsmod"], stdout=subprocess.PIPE, text=True, check=False).stdout

    component = os.environ["COMPONENT"]
    with_wait = os.environ["WITH_WAIT"] == "true"
    Validator(daemon_sets=daemon_sets, modules=modules, with_wait=with_wait).validate(component)
    print(f"{component} validated")
