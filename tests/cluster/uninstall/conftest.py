"""An installation that is there to be removed."""

import contextlib
import secrets
from typing import TYPE_CHECKING

import pytest

from manifests.install.crds import build_crds
from server.configuration.config_definition import build_config_crd
from tests.cluster.environment import client, definitions
from tests.cluster.system.conftest import make_pool  # noqa: F401  # a fixture
from tests.cluster.system.installation import GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.environment.components import Kubelets
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl


@pytest.fixture
async def system(
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    kubelets: "Kubelets",  # they run what the test creates
) -> "AsyncIterator[GpuSystem]":
    prefix = f"uninstalled-{secrets.token_hex(3)}-"
    # An uninstall takes the Lease, and waits until the server that does not give it back has no lead any more.
    settings = {"leadership": {"duration_s": 15}}
    installed = GpuSystem(control_plane, kubectl, prefix=prefix, settings=settings)
    try:
        await installed.install()
        # Everything is searched, also kinds whose storage is being set up.
        await definitions.until_served(kubectl, [*build_crds(), build_config_crd()])
        yield installed
    finally:
        # A test may have deleted the definitions, too.
        with contextlib.suppress(client.ApiRefusedError):
            await installed.uninstall()
