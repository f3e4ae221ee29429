"""The life of a pool on a real control plane: devices that nodes tell of, assignment, pods, a change of the
allocation under load, a fault, a device that is pulled, the end.

kwok plays the kubelets, a stock kube-scheduler places the pools' own DaemonSets, and the test writes what
NFD, the node agent and kubelet's device manager would write.
"""

import datetime as dt
import json
import secrets
from typing import TYPE_CHECKING, Any, final

import pytest

from tests.cluster.environment import client, nodes, pods, polling
from tests.cluster.system import objects
from tests.cluster.system.features import FEATURES, apply_feature
from tests.cluster.system.installation import NAMESPACE, until_gone
from tests.support.node_features import agent_device, agent_feature, gfd_labels

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.cluster.environment.client import JsonObject
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.system.installation import GpuSystem

INVENTORIES = f"{objects.API}/gpunodeinventories"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
GPUS = 2


@final
class PoolRun:
    """Two nodes of two devices, and what a test asks about them."""

    def __init__(self, api: client.ApiClient, namespace: str, names: list[str]) -> None:
        self.api = api
        self.namespace = namespace
        self.nodes = names
        self.pool = f"pool-{secrets.token_hex(3)}"

    @property
    def resource(self) -> str:
        return objects.PREFIX + self.pool

    async def publish(self, node: str, *devices: dict[str, str]) -> None:
        """Write what the node's agent says of its devices."""
        feature = agent_feature(node, list(devices), heartbeat=dt.datetime.now(dt.UTC))  # noqa: TID251  # the agent's own clock
        await apply_feature(self.api, feature)

    async def devices(self) -> list["JsonObject"]:
        found = (await self.api.get(objects.DEVICES))["items"]
        return [item for item in found if item.get("status", {}).get("nodeName") in self.nodes]

    async def current(self) -> "JsonObject":
        return await self.api.get(f"{objects.POOLS}/{self.pool}")

    async def figures(self, **expected: int) -> None:
        """Wait until the pool's status has these figures."""

        async def has() -> bool:
            pool = await self.current()
            seen = objects.capacity(pool)
            assert {key: seen.get(key) for key in expected} == expected, f"{pool.get('status')}"
            return True

        await polling.eventually(has, what=f"{self.pool} with {expected}", every=0.2)

    async def condition(self, type_: str, status: str) -> str:
        """Wait until a condition of the pool has a status; return its message."""

        async def has() -> str:
            seen = await self.api.conditions(f"{objects.POOLS}/{self.pool}")
            assert seen.get(type_, {}).get("status") == status, f"{seen.get(type_)}"
            return f"{seen[type_]['reason']}: {seen[type_].get('message', '')}"

        return str(await polling.eventually(has, what=f"{type_}={status} of {self.pool}"))

    async def config(self) -> "JsonObject":
        """Return the list that the device plugins of the pool read."""
        found = (
            await self.api.get(CONFIG_MAPS, labelSelector=f"{objects.PREFIX}pool={self.pool}")
        )["items"]
        lists = [item["data"] for item in found if "config.json" in item.get("data", {})]
        assert len(lists) == 1, f"{len(lists)} lists of {self.pool}"
        config: JsonObject = json.loads(lists[0]["config.json"])
        return config

    async def advertise(self, units: int) -> None:
        """Have each node offer so many units, as kubelet does for the plugin."""
        for node in self.nodes:
            await nodes.set_extended_resources(self.api, node, {self.resource: units})

    async def run(self, *names: str) -> None:
        for name in names:
            pod = pods.a_pod(name, limits={self.resource: 1}, labels={"app": name})
            await self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", pod)

    async def running(self, *names: str) -> dict[str, list[str]]:
        """Wait until exactly these pods run; return the units of each."""

        async def are() -> dict[str, list[str]]:
            found = (await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods"))["items"]
            seen = {item["metadata"]["name"]: item["status"].get("phase") for item in found}
            assert seen == dict.fromkeys(names, "Running"), f"{seen}"
            return {item["metadata"]["name"]: objects.units_of(item) for item in found}

        found: dict[str, list[str]] = await polling.eventually(are, what=f"{names} run")
        return found

    async def recorded(self, reason: str, name: str) -> None:
        """Wait until an Event says so of an object."""

        async def is_reported() -> bool:
            path, selector = "/apis/events.k8s.io/v1/events", f"reason={reason}"
            found = (await self.api.get(path, fieldSelector=selector))["items"]
            return name in [item["regarding"]["name"] for item in found]

        await polling.eventually(is_reported, what=f"{reason} of {name}")


@pytest.fixture
async def pool_run(
    system: "GpuSystem",
    api: client.ApiClient,
    namespace: str,
    create_kwok_nodes: "Callable[..., Awaitable[list[str]]]",
    start_scheduler: "Callable[..., Awaitable[Any]]",
) -> "AsyncIterator[PoolRun]":
    await start_scheduler()
    names = await create_kwok_nodes(2, labels=gfd_labels(GPUS))
    pool_run = PoolRun(api, namespace, names)
    yield pool_run
    for node in names:
        path = f"{FEATURES}/gpu-control-plane-agent-{node}"
        if await api.find(path):
            await api.delete(path)


async def test_a_pool_lives_from_its_first_device_to_its_last(
    pool_run: PoolRun, kubectl: "Kubectl"
):
    api = pool_run.api

    # Nodes tell of their devices, and become ready for pooling.
    for node in pool_run.nodes:
        await pool_run.publish(
            node, *(agent_device(node, number, of=GPUS) for number in range(GPUS))
        )
    await polling.eventually(lambda: _are_ready(pool_run), what="nodes ready for pooling")
    found = await pool_run.devices()
    assert {item["status"]["product"] for item in found} == {"NVIDIA-H200"}

    # A pool takes the devices of its nodes, marks them, and runs its plugin there.
    await api.create(
        objects.POOLS,
        objects.a_pool_object(
            pool_run.pool,
            nodeSelector={"matchExpressions": [_in("kubernetes.io/hostname", pool_run.nodes)]},
            assignment={"requireAnnotation": False},
            scheduling={"taints": [{"key": "gpus", "value": "only", "effect": "NoSchedule"}]},
            maintenance={"policy": "Evict"},
        ),
    )
    await pool_run.figures(total=4, available=4)
    await polling.eventually(lambda: _are_served(pool_run), what="plugins run")
    await pool_run.advertise(GPUS)
    await pool_run.run("a", "b", "c", "d")
    units = await pool_run.running("a", "b", "c", "d")
    devices = {item["status"]["uuid"] for item in found}
    assert sorted(unit for given in units.values() for unit in given) == sorted(devices)
    await pool_run.figures(used=4, available=0, largestFree=0)
    await _is_described(pool_run, kubectl)

    # Devices are cut into slices while pods run: a budget holds it up, and going on needs no restart.
    budget = f"/apis/policy/v1/namespaces/{pool_run.namespace}/poddisruptionbudgets"
    await api.create(
        budget,
        {
            "metadata": {"name": "keep-a"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        },
    )
    await polling.eventually(lambda: _counts(api, f"{budget}/keep-a"), what="the budget counts")
    slices = {"allocation": {"mode": "TimeSlice", "slicesPerDevice": 4}}
    await api.patch(f"{objects.POOLS}/{pool_run.pool}", {"spec": slices})
    message = await pool_run.condition("Maintenance", "True")
    assert "from Exclusive to TimeSlice (4 slices per device)" in message
    with pytest.raises(client.ApiRefusedError, match="PoolInMaintenance"):
        await pool_run.run("too-early")
    await pool_run.running("a")
    assert (await pool_run.config()).get("slices", 1) == 1, "a list of the new form, while pods run"
    await api.delete(f"{budget}/keep-a")
    await pool_run.figures(total=16, available=16)
    await pool_run.condition("Maintenance", "False")
    await polling.eventually(lambda: _slices(pool_run, 4), what="the plugins' list is of slices")
    await pool_run.recorded("GPUPoolReconfigured", pool_run.pool)
    await pool_run.advertise(GPUS * 4)
    names = [f"slice-{number}" for number in range(6)]
    await pool_run.run(*names)
    sliced = await pool_run.running(*names)
    assert all("::" in unit for given in sliced.values() for unit in given)

    # A fault: no new pod there, running ones are left, and it comes back.
    node = pool_run.nodes[0]
    sick = agent_device(node, 0, of=GPUS, health="Unhealthy", **{"health.reason": "Xid 79"})
    well = [agent_device(node, number, of=GPUS) for number in range(GPUS)]
    await pool_run.publish(node, sick, well[1])
    on_sick = sum(given[0].startswith(sick["uuid"]) for given in sliced.values())
    await pool_run.figures(unhealthy=4 - on_sick, used=6)
    sick_device = next(item for item in found if item["status"]["uuid"] == sick["uuid"])
    await pool_run.recorded("GPUDeviceFaulted", sick_device["metadata"]["name"])
    await polling.eventually(lambda: _counts_devices(pool_run, node, faulted=1), what="the fault")
    await pool_run.running(*names)
    await pool_run.publish(node, *well)
    await pool_run.figures(unhealthy=0, used=6)

    # A GPU is pulled: its device goes, and the others keep everything.
    other = pool_run.nodes[1]
    before = {
        device["metadata"]["name"]: device["metadata"]["uid"] for device in await pool_run.devices()
    }
    await pool_run.publish(other, agent_device(other, 1))
    await polling.eventually(lambda: _count_is(pool_run, 3), what="the pulled device is gone")
    after = {
        device["metadata"]["name"]: device["metadata"]["uid"] for device in await pool_run.devices()
    }
    assert after.items() < before.items()
    await pool_run.figures(total=12)

    # The end: pods hold it up by name, then nothing of it is left anywhere.
    await api.delete(f"{objects.POOLS}/{pool_run.pool}")
    message = await pool_run.condition("Ready", "False")
    assert message.startswith("Terminating")
    assert names[0] in message
    current = await _columns(kubectl, "gpool", pool_run.pool)
    assert current["PHASE"] == "Terminating"
    for name in names:
        await api.delete(f"/api/v1/namespaces/{pool_run.namespace}/pods/{name}")
    await until_gone(api, f"{objects.POOLS}/{pool_run.pool}")
    await _check_nothing_left(pool_run)


async def _are_ready(pool_run: PoolRun) -> bool:
    for node in pool_run.nodes:
        ready = (await pool_run.api.conditions(f"{INVENTORIES}/{node}")).get("ReadyForPooling", {})
        assert ready.get("status") == "True", f"{node}: {ready}"
    # Their state is written after the rest of their status.
    states = [device["status"].get("state") for device in await pool_run.devices()]
    assert states == ["Unassigned"] * GPUS * len(pool_run.nodes), f"{states}"
    return True


async def _columns(kubectl: "Kubectl", kind: str, name: str) -> dict[str, str]:
    header, row = (await kubectl("get", kind, name)).stdout.splitlines()
    return dict(zip(header.split(), row.split(), strict=True))


async def _is_described(pool_run: PoolRun, kubectl: "Kubectl") -> None:
    node = pool_run.nodes[0]
    await polling.eventually(lambda: _counts_devices(pool_run, node, pooled=GPUS), what="counts")
    current = await _columns(kubectl, "gni", node)
    assert [current[column] for column in ("DEVICES", "POOLED", "FAULTED", "POOLABLE")] == [
        *map(str, (GPUS, GPUS, 0)),
        "True",
    ]
    conditions = await pool_run.api.conditions(f"{INVENTORIES}/{node}")
    assert next(iter(conditions)) == "ReadyForPooling"
    await pool_run.condition("Conflict", "False")
    for kind, name in (("gpool", pool_run.pool), ("gni", node)):
        lines = (await kubectl("describe", kind, name)).stdout.splitlines()
        assert [line for line in lines if line.strip() in {"Message:", "Mig Profile:"}] == []


async def _counts_devices(pool_run: PoolRun, node: str, **expected: int) -> bool:
    counts = (await pool_run.api.status(f"{INVENTORIES}/{node}")).get("deviceCounts", {})
    assert {key: counts.get(key) for key in expected} == expected, f"{counts}"
    return True


async def _are_served(pool_run: PoolRun) -> bool:
    for node in pool_run.nodes:
        current = await pool_run.api.get(f"/api/v1/nodes/{node}")
        assert f"pool.gpu.deckhouse.io/{pool_run.pool}" in current["metadata"]["labels"]
        taints = current["spec"].get("taints", [])
        assert {"key": "gpus", "value": "only", "effect": "NoSchedule"} in taints, f"{taints}"
    listed = (await pool_run.config())["nodes"]
    assert {node: len(devices) for node, devices in listed.items()} == dict.fromkeys(
        pool_run.nodes, GPUS
    )
    selector = f"{objects.PREFIX}pool={pool_run.pool}"
    plugins = (await pool_run.api.get(DAEMON_SETS, labelSelector=selector))["items"]
    assert len(plugins) == 1, f"{len(plugins)} DaemonSets"  # written after the list
    (plugin,) = plugins
    assert plugin["status"].get("numberReady") == len(pool_run.nodes), f"{plugin['status']}"
    return True


async def _slices(pool_run: PoolRun, count: int) -> bool:
    return bool((await pool_run.config()).get("slices") == count)


async def _counts(api: client.ApiClient, path: str) -> bool:
    status = await api.status(path)
    return bool(status.get("currentHealthy") == 1 and status.get("disruptionsAllowed") == 0)


async def _count_is(pool_run: PoolRun, count: int) -> bool:
    return len(await pool_run.devices()) == count


async def _check_nothing_left(pool_run: PoolRun) -> None:
    selector = f"{objects.PREFIX}pool={pool_run.pool}"
    for path in (CONFIG_MAPS, DAEMON_SETS):
        assert (await pool_run.api.get(path, labelSelector=selector))["items"] == []
    for node in pool_run.nodes:
        current = await pool_run.api.get(f"/api/v1/nodes/{node}")
        assert not [key for key in current["metadata"]["labels"] if pool_run.pool in key]
        assert not [item for item in current["spec"].get("taints", []) if item["key"] == "gpus"]
    assert [device["status"].get("poolRef") for device in await pool_run.devices()] == [None] * 3


def _in(key: str, values: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": values}
