"""`gpu-control-plane agent` as its container runs it.

    python -m tests.bench.agent_process FOLDER agent --node …

It reads the pod's service account, here from FOLDER, and not a kubeconfig: the library for those is 65 MiB.
It sees no package that only developers install: structlog would load `rich`, of which the image has none.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the command line."""
    modules: dict[str, Any] = sys.modules
    modules["rich"] = None
    folder = Path(sys.argv.pop(1))

    from agent import api_access  # noqa: PLC0415  # after `rich` is out of the way
    from cli.__main__ import main as run  # noqa: PLC0415
    from kube.config import service_account  # noqa: PLC0415

    files = service_account.ServiceAccountFiles(token=folder / "token", ca_file=folder / "ca.crt")
    load = partial(service_account.load_service_account, files=files)
    vars(api_access)["load_service_account"] = load
    run()


if __name__ == "__main__":
    main()
