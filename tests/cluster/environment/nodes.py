"""Nodes without a kubelet.

The API server taints a new Node as not ready and drops its status, so a node takes three writes:
create, status, taints.
"""

import asyncio
from typing import TYPE_CHECKING

from tests.cluster.environment import client

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NODES = "/api/v1/nodes"

KWOK_ANNOTATION = "kwok.x-k8s.io/node"
KWOK_PREFIX = "kwok-"
"""Nodes with this prefix have kwok for a kubelet, and the double leaves them alone."""

REAL_PREFIX = "real-"
"""Nodes with this prefix have a kubelet (tests/cluster/node), and the double leaves them alone."""

_CONCURRENCY = 32


async def create_nodes(
    api: client.ApiClient,
    count: int,
    *,
    prefix: str = "node",
    gpus: int = 8,
    resources: "Mapping[str, int | str] | None" = None,
    labels: "Mapping[str, str] | None" = None,
) -> list[str]:
    """Create `<prefix>-0` … and return their names once all are schedulable.

    Each has 64 CPUs, 512 GiB, 110 pods, `gpus` of `nvidia.com/gpu`, and `resources`, which go over
    those (`{"gpu.deckhouse.io/a100": 8}`).
    """
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
    if gpus:
        capacity["nvidia.com/gpu"] = str(gpus)
    capacity |= {name: str(amount) for name, amount in (resources or {}).items()}
    names = node_names(prefix, count)
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def create(name: str) -> None:
        async with slots:
            await _create_node(api, name, capacity=capacity, labels=labels or {})

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(create(name))
    return names


async def create_kwok_nodes(
    api: client.ApiClient,
    count: int,
    *,
    prefix: str,
    resources: "Mapping[str, int | str] | None" = None,
    labels: "Mapping[str, str] | None" = None,
) -> list[str]:
    """Create `kwok-<prefix>-0` … whose kubelet kwok plays; it makes them Ready in its own time."""
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    capacity |= {name: str(amount) for name, amount in (resources or {}).items()}
    names = node_names(KWOK_PREFIX + prefix, count)
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def create(name: str) -> None:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {KWOK_ANNOTATION: "fake"},
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    **(labels or {}),
                },
            },
        }
        async with slots:
            await api.create(NODES, node)
            status = {"status": {"capacity": capacity, "allocatable": capacity}}
            await api.patch(f"{NODES}/{name}/status", status)
            await api.patch(f"{NODES}/{name}", {"spec": {"taints": None}})

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(create(name))
    return names


def node_names(prefix: str, count: int) -> list[str]:
    """Return the names that `create_nodes` gives."""
    return [f"{prefix}-{index}" for index in range(count)]


async def delete_nodes(api: client.ApiClient, names: "Iterable[str]") -> None:
    """Delete them; one that is gone already is fine. Pods on them are left to their owners."""
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def delete(name: str) -> None:
        async with slots:
            try:
                await api.delete(f"{NODES}/{name}")
            except client.ApiRefusedError as refused:
                if refused.status != 404:
                    raise

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(delete(name))


async def set_extended_resources(
    api: client.ApiClient, name: str, resources: "Mapping[str, int | str | None]"
) -> None:
    """Change what a node offers, as a device plugin does through kubelet; None withdraws one."""
    amounts = {key: None if value is None else str(value) for key, value in resources.items()}
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    await api.patch(f"{NODES}/{name}/status", status)


async def _create_node(
    api: client.ApiClient, name: str, *, capacity: "Mapping[str, str]", labels: "Mapping[str, str]"
) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
        },
    }
    await api.create(NODES, node)
    status = {"capacity": capacity, "allocatable": capacity, "conditions": _ready_conditions()}
    await api.patch(f"{NODES}/{name}/status", {"status": status})
    await api.patch(f"{NODES}/{name}", {"spec": {"taints": None}})


def _ready_conditions() -> "Sequence[Mapping[str, str]]":
    return [
        {"type": "Ready", "status": "True", "reason": "KubeletReady"},
        {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"},
        {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"},
        {"type": "PIDPressure", "status": "False", "reason": "KubeletHasSufficientPID"},
    ]
