"""The agent's file of the node's pods: the units of deleted pods whose processes are still there.

`agent.allocations.unit_holders` writes it. A plugin checks it before it allocates units, and reads it again
when it changed. Without a running agent nothing is known of processes, and kubelet's free units are free.
"""

from typing import TYPE_CHECKING, Final, final

import msgspec
import structlog

from agent.files import file_identity
from api.nodefiles.node_pods_file import PODS_FILE, STALE_S, NodePodsFile
from api.units import part_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from api.clock import Clock
    from api.nodefiles.node_pods_file import NodePodUnits

MAX_BYTES: Final = 4 * 1024 * 1024
"""A thousand slices, each a pod's, take 300 KiB."""

_log = structlog.get_logger()


@final
class PodsFile:
    """The last version of the file."""

    def __init__(self, directory: "Path", clock: "Clock") -> None:
        """Take the run directory; the file may be written later, or never."""
        self._path = directory / PODS_FILE
        self._clock = clock
        self._seen: object = None
        self._by_part: dict[str, list[NodePodUnits]] = {}

    def with_part(self, part: str) -> "Sequence[NodePodUnits]":
        """Return the pods of the file that have a unit of this device or MIG instance."""
        self._reload()
        return self._by_part.get(part, ())

    def _reload(self) -> None:
        identity = file_identity(self._path)
        if identity != self._seen:
            self._seen = identity
            self._by_part = self._read()
        if self._by_part and self._is_stale():
            self._by_part = {}

    def _is_stale(self) -> bool:
        try:
            written_at = self._path.stat().st_mtime
        except OSError:
            return True
        return abs(self._clock.utc_now().timestamp() - written_at) > STALE_S

    def _read(self) -> "dict[str, list[NodePodUnits]]":
        try:
            content = self._path.read_bytes()
            file = msgspec.json.decode(content[: MAX_BYTES + 1], type=NodePodsFile)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            _log.warning(
                "malformed file of the node's pods", path=str(self._path), error=str(error)
            )
            return {}
        found: dict[str, list[NodePodUnits]] = {}
        for pod in file.pods:
            for part in {part_of(unit) for unit in pod.units}:
                found.setdefault(part, []).append(pod)
        return found
