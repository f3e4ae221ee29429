"""Our system installed once for this package; pools, nodes and devices of its own for each test."""

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.environment import client, polling
from tests.cluster.kubectl_gpu.conftest import kubectl_gpu, plugin_environment  # noqa: F401  # fixtures
from tests.cluster.system import installation
from tests.cluster.system.objects import DEVICES, POOLS, Pool, a_device, a_pool_object, capacity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from tests.cluster.environment.components import Kubelets
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

    MakePool = Callable[..., Awaitable[Pool]]


@pytest.fixture(scope="package")
def installed(
    control_plane: "ControlPlane", kubectl: "Kubectl", kubelets: "Kubelets"
) -> "Iterator[installation.GpuSystem]":
    """The installation; at the end it is checked that it had every right that it needed."""
    system = installation.GpuSystem(control_plane, kubectl)
    try:
        asyncio.run(system.install())
        yield system
        asyncio.run(system.check_rights())
    finally:
        asyncio.run(system.uninstall())


@pytest.fixture
async def system(installed: installation.GpuSystem) -> installation.GpuSystem:
    """Our system, with server and scheduler running and ready."""
    await installed.restore()
    return installed


@pytest.fixture
async def make_pool(
    system: installation.GpuSystem,
    api: client.ApiClient,
    create_nodes: "Callable[..., Awaitable[list[str]]]",
) -> "AsyncIterator[MakePool]":
    """`await make_pool(nodes=2, devices=4, slices=1, **spec)`: a pool that is ready, deleted after.

    With `mig_profiles`, those of the instances on each device, the first one is the pool's. `on` puts the devices on nodes that exist, behind those of another pool.
    """
    made: list[str] = []

    async def make(
        *,
        nodes: int = 1,
        devices: int = 4,
        slices: int = 1,
        mig_profiles: tuple[str, ...] = (),
        on: Pool | None = None,
        **spec: Any,
    ) -> Pool:
        name = f"pool-{secrets.token_hex(3)}"
        if slices > 1:
            spec.setdefault("allocation", {"mode": "TimeSlice", "slicesPerDevice": slices})
        if mig_profiles:
            spec["allocation"] = {"mode": "MIG", "migProfile": mig_profiles[0]}
        units = devices * (mig_profiles.count(mig_profiles[0]) if mig_profiles else slices)
        resource = {f"gpu.deckhouse.io/{name}": units}
        if on is None:
            names = await create_nodes(nodes, gpus=0, resources=resource)
        else:
            names = list(on.nodes)
            for node in names:
                await _offer(api, node, resource)
        first = 0 if on is None else 16
        # The pool first: admission refuses an assignment to a pool that there is not.
        made.append(f"{POOLS}/{name}")
        await api.create(POOLS, a_pool_object(name, **spec))
        async with asyncio.TaskGroup() as group:
            for node in names:
                for index in range(first, first + devices):
                    device = a_device(node, index, name, mig_profiles=mig_profiles)
                    made.append(f"{DEVICES}/{device['metadata']['name']}")
                    group.create_task(add_device(api, device))
        pool = Pool(name=name, nodes=tuple(names), slices=slices)
        await wait_until_served(api, pool, total=len(names) * units)
        return pool

    yield make
    for path in made:
        with contextlib.suppress(client.ApiRefusedError):
            await api.delete(path)


@pytest.fixture
async def member(control_plane: "ControlPlane") -> "AsyncIterator[client.ApiClient]":
    kubeconfig = control_plane.kubeconfig("member", groups=("researchers", "system:masters"))
    async with client.open_client(kubeconfig) as api:
        yield api


@pytest.fixture
async def stranger(control_plane: "ControlPlane") -> "AsyncIterator[client.ApiClient]":
    kubeconfig = control_plane.kubeconfig("stranger", groups=("others", "system:masters"))
    async with client.open_client(kubeconfig) as api:
        yield api


@pytest.fixture
def figures(api: client.ApiClient) -> "Callable[..., Awaitable[dict[str, int]]]":
    """`await figures(pool, used=3)`: wait until the pool's status says so; return all figures."""

    async def wait(pool: Pool, **expected: int) -> dict[str, int]:
        async def current() -> dict[str, int] | None:
            found = capacity(await api.get(pool.path))
            assert {key: found.get(key) for key in expected} == expected, f"{found}"
            return found

        return await polling.eventually(current, what=f"status of {pool.name} with {expected}")

    return wait


async def _offer(api: client.ApiClient, node: str, resource: dict[str, int]) -> None:
    amounts = {key: str(value) for key, value in resource.items()}
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    await api.patch(f"/api/v1/nodes/{node}/status", status)


async def add_device(api: client.ApiClient, device: client.JsonObject) -> None:
    """Add a device; the server may not have seen the pool yet that it is assigned to."""

    async def is_created() -> bool:
        try:
            await api.create(DEVICES, device)
        except client.ApiRefusedError as refused:
            if "pool not found" in refused.message or "there is no pool" in refused.message:
                return False
            raise
        return True

    await polling.eventually(is_created, what=f"device {device['metadata']['name']}")
    name = device["metadata"]["name"]
    await api.patch(f"{DEVICES}/{name}/status", {"status": device["status"]})


async def wait_until_served(api: client.ApiClient, pool: Pool, *, total: int) -> None:
    """Wait for the capacity in the status, and for the labels that pods of the pool require."""

    async def served() -> bool:
        current = await api.get(pool.path)
        assert current["metadata"].get("finalizers"), "a pool that could go at once"
        assert capacity(current).get("total") == total, f"{current.get('status')}"
        for node in pool.nodes:
            labels = (await api.get(f"/api/v1/nodes/{node}"))["metadata"]["labels"]
            assert f"pool.gpu.deckhouse.io/{pool.name}" in labels, f"labels of {node}: {labels}"
        return True

    await polling.eventually(served, what=f"pool {pool.name} of {total} units", every=0.2)
