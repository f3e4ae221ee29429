"""promtool, which judges rules without a Prometheus: from PATH, else from Debian's package."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from manifests.monitoring.alerts import build_alert_rules
from tests.cluster.environment import binaries

Promtool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def promtool(progress: Callable[[str], None]) -> Promtool:
    program = binaries.find_prometheus("promtool", progress)

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=120, check=False
        )

    return call


@pytest.fixture(scope="session")
def rules_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the rules as Prometheus reads them: the spec of the PrometheusRule."""
    path = tmp_path_factory.mktemp("alerts") / "rules.yaml"
    path.write_text(yaml.safe_dump(build_alert_rules("gpu-control-plane")["spec"]))
    return path
