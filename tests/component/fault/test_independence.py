"""What judges shares no code with what is judged."""

import subprocess
import sys

JUDGED = ("pool", "scheduler", "admission", "reconciler", "kube", "server", "telemetry", "api")
OURS = ("tests.fault.run", "tests.fault.oracle", "tests.fault.shrinking", "tests.fault.injecting")


def test_the_run_imports_nothing_of_what_it_judges():
    program = (
        "import importlib, sys\n"
        f"for name in {OURS!r}: importlib.import_module(name)\n"
        f"print([name for name in {JUDGED!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
