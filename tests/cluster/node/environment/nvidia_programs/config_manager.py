"""config-manager: links the configuration that a label of the Node names, and tells the program that reads it.

github.com/NVIDIA/k8s-device-plugin, cmd/config-manager/main.go. It looks once a second where that one watches.
"""

import os
import signal
import sys
import time
from pathlib import Path

from tests.cluster.node.environment.nvidia_programs.api_server import call

_POLL_S = 1.0


def main() -> None:
    """Follow the label; with ONESHOT return after the first link."""
    # As process 1 of a container it would ignore the signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        has_changed = _link(_selected_config())
        if os.environ["ONESHOT"] == "true":
            return
        if has_changed and os.environ["SEND_SIGNAL"] == "true":
            os.kill(_process(), int(os.environ["SIGNAL"]))
        time.sleep(_POLL_S)


def _selected_config() -> Path:
    node = call("GET", f"/api/v1/nodes/{os.environ['NODE_NAME']}")
    labels = node["metadata"]["labels"]
    name = labels.get(os.environ["NODE_LABEL"], "") or os.environ.get("DEFAULT_CONFIG", "")
    directory = Path(os.environ["CONFIG_FILE_SRCDIR"])
    if not name:
        assert os.environ["FALLBACK_STRATEGIES"] == "empty"
        return Path("/dev/null")
    if not (directory / name).exists():
        sys.exit(f"specified config {name} does not exist")
    return directory / name


def _link(source: Path) -> bool:
    link = Path(os.environ["CONFIG_FILE_DST"])
    if link.is_symlink() and link.resolve() == source.resolve():
        return False
    link.unlink(missing_ok=True)
    link.symlink_to(source)
    return True


def _process() -> int:
    """Return the process that is to be told; a script's name comes after its interpreter."""
    name = os.environ["PROCESS_TO_SIGNAL"]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if any(Path(word.decode()).name == name for word in words[:2]):
            return int(path.parent.name)
    return sys.exit("no process found")
