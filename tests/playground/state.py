"""Files of a playground."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

MODULE: Final = "tests.playground.cluster_process"


@final
@dataclass(frozen=True, slots=True)
class State:
    """The files below one folder."""

    folder: Path

    @property
    def pid(self) -> Path:
        """Number of the process that owns all others."""
        return self.folder / "pid"

    @property
    def output(self) -> Path:
        """What that process prints."""
        return self.folder / "output"

    @property
    def ready(self) -> Path:
        """Its last lines, once everything runs."""
        return self.folder / "ready"

    @property
    def environment(self) -> Path:
        """Lines for a shell: KUBECONFIG, and PATH with kubectl and kubectl gpu."""
        return self.folder / "env"

    @property
    def logs(self) -> Path:
        """Logs of the last runs, which stay."""
        return self.folder / "logs"

    @property
    def process(self) -> int | None:
        """The process, if it is ours and runs."""
        try:
            number = int(self.pid.read_text(encoding="utf-8"))
            command = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        is_ours = {MODULE.encode(), str(self.folder).encode()} <= {*command}
        return number if is_ours else None
