"""The chart, rendered by Helm and installed on the control plane of the session."""

from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import binaries
from tests.cluster.environment.helm import Helm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.environment.control_plane import ControlPlane


@pytest.fixture(scope="session")
def helm_program(progress: "Callable[[str], None]") -> "Path":
    return binaries.find_helm(progress)


@pytest.fixture(scope="session")
def offline_helm(helm_program: "Path", tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """`helm template` and `helm lint`, which need no cluster."""
    return Helm(helm_program, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def helm(helm_program: "Path", control_plane: "ControlPlane") -> Helm:
    return Helm(helm_program, control_plane.run.directory, control_plane.kubeconfig())
