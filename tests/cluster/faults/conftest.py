"""Servers behind a Service, each with a proxy to the API server, and kube-scheduler."""

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.fault.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cluster.environment.components import Kubelets
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

    MakeFleet = Callable[..., contextlib.AbstractAsyncContextManager[Fleet]]


@pytest.fixture
def a_fleet(control_plane: "ControlPlane", kubectl: "Kubectl", kubelets: "Kubelets") -> "MakeFleet":
    """`async with a_fleet("name", replicas=2) as fleet`: installed until the end of the block."""

    @contextlib.asynccontextmanager
    async def make(name: str, *, replicas: int) -> "AsyncIterator[Fleet]":
        fleet = Fleet(control_plane, kubectl, replicas=replicas, name=name)
        async with fleet.installed():
            yield fleet

    return make
