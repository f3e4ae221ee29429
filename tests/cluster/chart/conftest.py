"""The chart, rendered by Helm and installed on the control plane of the session."""

from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import binaries
from tests.cluster.environment.helm import Helm

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.environment.control_plane import ControlPlane


HELM_VERSIONS = [pytest.param(4, id="Helm 4"), pytest.param(3, id="Helm 3")]


@pytest.fixture(scope="session")
def offline_helm(
    progress: "Callable[[str], None]", tmp_path_factory: pytest.TempPathFactory
) -> Helm:
    """`helm template` and `helm lint`, which need no cluster."""
    return Helm(binaries.find_helm(progress), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def helm(progress: "Callable[[str], None]", control_plane: "ControlPlane") -> Helm:
    run = control_plane.run.directory
    return Helm(binaries.find_helm(progress), run, control_plane.kubeconfig())


@pytest.fixture(scope="session", params=HELM_VERSIONS)
def any_offline_helm(
    request: pytest.FixtureRequest,
    progress: "Callable[[str], None]",
    tmp_path_factory: pytest.TempPathFactory,
) -> Helm:
    program = binaries.find_helm(progress, version=request.param)
    return Helm(program, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session", params=HELM_VERSIONS)
def any_helm(
    request: pytest.FixtureRequest,
    progress: "Callable[[str], None]",
    control_plane: "ControlPlane",
) -> Helm:
    program = binaries.find_helm(progress, version=request.param)
    return Helm(program, control_plane.run.directory, control_plane.kubeconfig())
