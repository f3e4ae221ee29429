"""One server and its nodes for all tests of this folder, which go on where the one before ended."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment.client import ApiClient
from tests.cluster.operator_states.conftest import Installation, NodeSoftware
from tests.cluster.operator_states.policies import SPEC, put, until_ready

if TYPE_CHECKING:
    from tests.cluster.environment.components import Kwok
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl


@pytest.fixture(scope="package")
def node_software(
    control_plane: "ControlPlane", kubectl: "Kubectl", kwok: "Kwok"
) -> Iterator[NodeSoftware]:
    del kwok
    installation = Installation(control_plane, kubectl)
    try:
        yield asyncio.run(installation.install())
    finally:
        asyncio.run(installation.uninstall())


@pytest.fixture
async def software(node_software: NodeSoftware, api: ApiClient) -> NodeSoftware:
    """The policy of these tests, Ready."""
    await put(api, SPEC)
    await until_ready(api)
    return node_software
