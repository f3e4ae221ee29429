"""Test programs in a mount namespace of their own: their mounts are nobody else's, and go with them."""

import subprocess
import sys

import pytest


def run_in_mount_namespace(module: str, *arguments: str) -> str:
    """Run the module, and return what it printed; skip the test where this is not permitted."""
    unshare = ["unshare", "--mount", "--propagation", "private"]
    try:
        allowed = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("the program unshare is not installed")
    if allowed.returncode != 0:
        pytest.skip(f"no mount namespace for this user: {allowed.stderr.strip()}")
    done = subprocess.run(
        [*unshare, sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
