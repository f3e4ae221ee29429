"""The cluster of this package."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from demo.demo_folder import demo_folder
from tests.cluster.environment import binaries, whole_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cluster.environment.components import Kwok
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl


@pytest.fixture
async def whole(
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    kwok: "Kwok",
    progress: "Callable[[str], None]",
) -> "AsyncIterator[whole_cluster.WholeCluster]":
    """All systems, and no node; afterwards it is checked that the server had every right that it needed."""
    assert kwok.process.running
    program = binaries.find_karpenter(progress)
    with demo_folder() as folder:
        opened = whole_cluster.running(control_plane, kubectl, program, Path(folder))
        async with opened as cluster:
            yield cluster
            await cluster.system.check_rights()
