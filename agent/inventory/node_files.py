"""Files for the node's own programs: `cards.json`, and the CDI specification.

Both are replaced only where their content changed, compared with the disk: a restart writes nothing, and a
removed file comes back with the next snapshot. If one cannot be written (a full or read-only file system), the
old one stays, the node's condition has the problem, and the next snapshot retries.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec
import structlog

from agent.driver.device_files import find_files
from agent.driver.libraries import DriverFiles, driver_state, find_driver_files
from agent.files import read_bytes, remove_file, replace_file
from agent.inventory.cdi import build_specification, file_name
from agent.inventory.node_devices import node_devices
from agent.settings import CDI_KIND
from api.field_errors import UNDECODABLE
from api.nodefiles.node_devices_file import DEVICES_FILE, RUN_DIRECTORY, NodeDevices
from telemetry.agent_metrics import PUBLISHED
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.driver.port import DriverSnapshot
    from agent.inventory.node_devices import NodeDeviceFacts
    from agent.problems.registry import ProblemRegistry

TASK: Final = "agent.files"
DEVICE_FILES: Final = "device files"
"""Source of a problem; the other sources are the metric's label values."""

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodePaths:
    """Paths in this process's view; but for `dev`, containers have other ones."""

    sysfs: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    """The directory of device files; its path must be the node's own."""
    driver_root: Path = Path("/")
    """The node's root, or that of NVIDIA's driver container under it."""
    driver_libraries: str = ""
    """Directory under the root that is searched first for the driver's libraries."""
    run_directory: Path = Path(RUN_DIRECTORY)
    cdi_directory: Path = Path("/var/run/cdi")
    cdi_kind: str = CDI_KIND


@final
class NodeFiles:
    """Writes both files; each method is one step, and raises nothing."""

    def __init__(
        self,
        paths: NodePaths,
        problems: "ProblemRegistry",
        *,
        replace: "Callable[[Path, bytes], bool]" = replace_file,
        find: "Callable[[Path, str], DriverFiles]" = find_driver_files,
    ) -> None:
        """Take the paths.

        Args:
            paths: where to read and write.
            problems: receives files that are missing or cannot be written.
            replace: writes a file, and returns whether it changed.
            find: finds the driver's files under its root.

        Raises:
            ValueError: the kind is not a CDI kind.
        """
        self._paths = paths
        self._problems = problems
        self._replace_file = replace
        self._find_driver_files = find
        self.devices_path: Final = paths.run_directory / DEVICES_FILE
        self.cdi_path: Final = paths.cdi_directory / file_name(paths.cdi_kind)
        self._driver = DriverFiles()
        self._driver_state: object = None
        for what in ("cards", "cdi"):
            for outcome in ("written", "failed"):
                PUBLISHED.labels(what, outcome)

    def published_devices(self) -> NodeDevices | None:
        """Return the devices file of the last agent; None where there is no valid one."""
        content = read_bytes(self.devices_path)
        try:
            return None if content is None else msgspec.json.decode(content, type=NodeDevices)
        except UNDECODABLE as error:
            _log.warning("devices file ignored", path=str(self.devices_path), error=str(error))
            return None

    def write(self, devices: "Sequence[NodeDeviceFacts]", snapshot: "DriverSnapshot") -> None:
        files = find_files(snapshot.devices, dev=self._paths.dev, proc=self._paths.proc)
        driver = self._driver_files(snapshot.driver_version)
        file = node_devices(devices, files, driver.mounts, driver_version=snapshot.driver_version)
        if files.missing:
            self._problems.set(
                DEVICE_FILES,
                AgentDegraded.NOT_PUBLISHED,
                f"missing: {', '.join(files.missing)}; create them with nvidia-modprobe or nvidia-smi",
            )
        else:
            self._problems.clear(DEVICE_FILES)
        self._replace("cards", self.devices_path, msgspec.json.encode(file))
        specification = build_specification(self._paths.cdi_kind, file, files=files, driver=driver)
        self._replace("cdi", self.cdi_path, specification)

    def _driver_files(self, version: str) -> DriverFiles:
        """Return the driver's files, searched again where one of their directories changed."""
        root, first = self._paths.driver_root, self._paths.driver_libraries
        state = (version, driver_state(root, first))
        if state == self._driver_state:
            return self._driver
        try:
            self._driver = self._find_driver_files(root, first)
        except OSError as error:
            # A file was removed during the search, as in an installation: search again.
            _log.warning("driver libraries not read", error=str(error))
            return self._driver
        self._driver_state = state
        log = _log.info if self._driver.has_libraries else _log.warning
        log(
            "driver libraries",
            root=str(self._paths.driver_root),
            files=len(self._driver.mounts),
            hook=self._driver.hook or "",
        )
        return self._driver

    def _replace(self, subject: str, path: Path, content: bytes | None) -> None:
        """Replace one file; None removes it."""
        try:
            is_new = remove_file(path) if content is None else self._replace_file(path, content)
        except OSError as error:
            TASK_FAILURES.labels(TASK).inc()
            PUBLISHED.labels(subject, "failed").inc()
            text = f"{path} cannot be written: {error.strerror or error}"
            self._problems.set(subject, AgentDegraded.NOT_PUBLISHED, text)
            return
        self._problems.clear(subject)
        if is_new:
            PUBLISHED.labels(subject, "written").inc()
            _log.info("file written", what=subject, path=str(path), bytes=len(content or b""))
