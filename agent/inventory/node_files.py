"""What the node's own programs are told of its cards: `cards.json`, and the CDI specification.

Both are replaced only where something changed, compared with what is on disk: a restart writes nothing, and
a file that somebody removed comes back with the next look. Where one cannot be written (a full or read-only
file system), what was there stays, the node's condition says so, and it is tried again with the next look.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, final

import msgspec
import structlog

from agent.driver.device_files import find_files
from agent.driver.libraries import DriverFiles, driver_state, find_driver_files
from agent.files import read_bytes, remove_file, replace_file
from agent.inventory.cdi import build_specification, file_name
from agent.inventory.node_devices import node_devices
from agent.settings import CDI_KIND
from api.field_errors import UNDECODABLE
from api.nodefiles.devices import DEVICES_FILE, RUN_DIRECTORY, NodeDevices
from telemetry.agent_metrics import PUBLISHED
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.driver.port import DriverSnapshot
    from agent.inventory.node_devices import NodeDeviceFacts
    from agent.problems.registry import ProblemRegistry

TASK: Final = "agent.files"
DEVICE_FILES: Final = "device files"
"""Source of a problem; the others are named for their metric."""

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodePaths:
    """Where things are, as this process sees them; but for `dev`, containers see them elsewhere."""

    sysfs: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    """The directory of device files; its path must be the node's own."""
    driver_root: Path = Path("/")
    """The node's root, or that of NVIDIA's driver container under it."""
    run_directory: Path = Path(RUN_DIRECTORY)
    cdi_directory: Path = Path("/var/run/cdi")
    cdi_kind: str = CDI_KIND


@final
class NodeFiles:
    """Writes both files; the methods are each one step, and raise nothing."""

    def __init__(self, places: NodePaths, problems: "ProblemRegistry") -> None:
        """Take the places.

        Raises:
            ValueError: the kind is none of CDI.
        """
        self._places = places
        self._problems = problems
        self.devices_path: Final = places.run_directory / DEVICES_FILE
        self.cdi_path: Final = places.cdi_directory / file_name(places.cdi_kind)
        self._driver = DriverFiles()
        self._driver_state: object = None
        for what in ("cards", "cdi"):
            for outcome in ("written", "failed"):
                PUBLISHED.labels(what, outcome)

    def remembered(self) -> NodeDevices | None:
        """Return the file of cards as an agent before us left it; None where it says nothing."""
        content = read_bytes(self.devices_path)
        try:
            return None if content is None else msgspec.json.decode(content, type=NodeDevices)
        except UNDECODABLE as error:
            _log.warning("file of cards not used", path=str(self.devices_path), error=str(error))
            return None

    def write(self, devices: "Sequence[NodeDeviceFacts]", look: "DriverSnapshot") -> None:
        """Make both files say this."""
        files = find_files(look.devices, dev=self._places.dev, proc=self._places.proc)
        driver = self._driver_files(look.driver_version)
        file = node_devices(devices, files, driver.mounts)
        if files.missing:
            self._problems.set(
                DEVICE_FILES,
                AgentDegraded.NOT_PUBLISHED,
                f"no {', '.join(files.missing)}: nvidia-modprobe or nvidia-smi make them",
            )
        else:
            self._problems.clear(DEVICE_FILES)
        self._replace("cards", self.devices_path, msgspec.json.encode(file))
        specification = build_specification(self._places.cdi_kind, file, files=files, driver=driver)
        self._replace("cdi", self.cdi_path, specification)

    def _driver_files(self, version: str) -> DriverFiles:
        """Return the driver's files, looked for where a directory of theirs changed."""
        state = (version, driver_state(self._places.driver_root))
        if state == self._driver_state:
            return self._driver
        try:
            self._driver = find_driver_files(self._places.driver_root)
        except OSError as error:
            # A file went away while it was looked at, as in an installation: looked for again.
            _log.warning("libraries of the driver not read", error=str(error))
            return self._driver
        self._driver_state = state
        log = _log.info if self._driver.has_libraries else _log.warning
        log(
            "libraries of the driver",
            root=str(self._places.driver_root),
            files=len(self._driver.mounts),
            hook=self._driver.hook or "",
        )
        return self._driver

    def _replace(self, what: str, path: Path, content: bytes | None) -> None:
        """Replace one file; None removes it."""
        try:
            is_new = remove_file(path) if content is None else replace_file(path, content)
        except OSError as error:
            TASK_FAILURES.labels(TASK).inc()
            PUBLISHED.labels(what, "failed").inc()
            text = f"{path} cannot be written: {error.strerror or error}"
            self._problems.set(what, AgentDegraded.NOT_PUBLISHED, text)
            return
        self._problems.clear(what)
        if is_new:
            PUBLISHED.labels(what, "written").inc()
            _log.info("file written", what=what, path=str(path), bytes=len(content or b""))


class Recalling(Protocol):
    """Who judges cards; `agent.health.tracker.HealthBook`."""

    def recall(self, uuid: str, reason: str, *, address: str, now: float) -> None:
        """Take up what was published of a card before."""


def recall_health(remembered: NodeDevices | None, tracker: Recalling, now: float) -> None:
    """Take up the verdicts of an agent before us, so that a restart heals no card."""
    for device in remembered.devices if remembered is not None else ():
        if not device.is_healthy:
            tracker.recall(device.uuid, device.reason, address=device.address, now=now)
