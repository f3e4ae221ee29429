"""Operands beside 500 nodes of kwok: what a label, a setting and a switch cost, and that quiet nodes cost nothing.

All nodes have the labels of a device. 50 of them have a node agent's report and run all operands.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from api.names import OPERAND_LABEL, PRESENT_LABEL
from http_edge.system_clock import SystemClock
from reconciler.node_software.objects import BUILT_IN_RESOURCES as RESOURCES
from tests.cluster.environment import client, nodes, polling
from tests.cluster.environment.audit import AuditLog, Write
from tests.cluster.environment.client import ApiClient
from tests.cluster.system.features import apply_feature
from tests.cluster.system.installation import NAMESPACE, SERVER_USER, GpuSystem
from tests.cluster.system.objects import API
from tests.support import ports
from tests.support.dcgm import an_exporter, device_lines
from tests.support.node_features import agent_device, agent_feature, rule_labels, uuid_of

if TYPE_CHECKING:
    from tests.cluster.environment.components import Kwok
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

ALL, READY = 500, 50
"""Nodes, and those of them that run the operands."""
WITHIN_S = 120
"""After a label, or after the start of a server with other settings, the objects are right: within ten seconds on a
machine with nothing else to do."""
QUIET_S, QUIET_IF_LONG_S = 60, 600
AGENT_HEARTBEAT_S = 30
RUNS = {"test.example.com/runs-operands": "true"}
INVENTORIES = f"{API}/gpunodeinventories"
EVENTS = "/apis/events.k8s.io/v1/events"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
OPERANDS = ("gpu-feature-discovery", "gpu-node-validator", "nvidia-dcgm", "nvidia-dcgm-exporter")
PLURALS = frozenset(item.plural for item in RESOURCES.values())
_CONCURRENCY = 32


@dataclass
class Fleet:
    """The installation, its nodes, and what its settings are."""

    system: GpuSystem
    names: list[str]
    port: int
    """Of every exporter."""

    @property
    def running(self) -> list[str]:
        return self.names[:READY]


def bootstrap(port: int, **changes: Any) -> dict[str, Any]:
    """Settings with all operands on."""
    gfd, dcgm, exporter = (
        {"enabled": True, "image": f"registry.test/{name}:1.0"}
        for name in ("gfd", "dcgm", "dcgm-exporter")
    )
    return {
        "period_s": 1,
        "validator": {"enabled": True},
        "gfd": gfd,
        "dcgm": dcgm,
        "dcgm_exporter": {**exporter, "source": "DCGM", "port": port},
        **changes,
    }


@pytest.fixture(scope="module")
def fleet_of_nodes(
    control_plane: "ControlPlane", kubectl: "Kubectl", kwok: "Kwok"
) -> Iterator[Fleet]:
    del kwok
    port = ports.free_port()
    settings = {
        "bootstrap": bootstrap(port),
        "node_agent": {"enabled": False, "node_selector": RUNS},
    }
    system = GpuSystem(control_plane, kubectl, prefix="many-nodes-", settings=settings)
    fleet = Fleet(system, nodes.node_names(f"{nodes.KWOK_PREFIX}operands", ALL), port)

    async def remove_nodes() -> None:
        async with client.open_client(control_plane.kubeconfig()) as api:
            await nodes.delete_nodes(api, fleet.names)

    async def create_nodes() -> None:
        async with client.open_client(control_plane.kubeconfig()) as api:
            await nodes.create_kwok_nodes(api, ALL, prefix="operands")

    try:
        asyncio.run(system.install())
        asyncio.run(create_nodes())
        yield fleet
        asyncio.run(system.check_rights())
    finally:
        asyncio.run(system.uninstall())
        asyncio.run(remove_nodes())


@pytest.fixture
async def fleet(fleet_of_nodes: Fleet, api: ApiClient) -> AsyncIterator[Fleet]:
    """The nodes with their labels, and with the exporters of those that are running."""
    found = fleet_of_nodes
    pages = "".join(device_lines(uuid_of(name, 0)) for name in found.running)
    async with an_exporter(pages, port=found.port):
        yield found


async def each(names: Iterable[str], work: Any) -> None:
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def one(name: str) -> None:
        async with slots:
            await work(name)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(name))


async def label(api: ApiClient, names: Iterable[str]) -> None:
    """Label nodes as NFD does that finds a device."""
    labels = {key: text for key, text in rule_labels(1).items() if key != PRESENT_LABEL}
    body = {"metadata": {"labels": labels}}
    await each(names, lambda name: api.patch(f"{nodes.NODES}/{name}", body))


async def until_present(api: ApiClient, names: Iterable[str], *, within: float) -> None:
    async def are_present() -> bool:
        listed = await api.get(nodes.NODES, labelSelector=PRESENT_LABEL)
        missing = set(names) - {item["metadata"]["name"] for item in listed["items"]}
        assert not missing, f"{len(missing)} nodes without {PRESENT_LABEL}"
        return True

    await polling.eventually(are_present, what="labels of nodes", within=within)


async def until_idle(audit: AuditLog) -> None:
    """Return once the server has written nothing for three seconds."""

    async def is_idle() -> bool:
        mark = await audit.mark()
        await asyncio.sleep(3)
        written = await audit.writes(mark, user=SERVER_USER)
        moving = Counter(item.resource for item in written if item.resource != "leases")
        assert not moving, f"{moving}"
        return True

    await polling.eventually(is_idle, what="a server at rest", within=120)


async def written(audit: AuditLog, mark: int) -> list[Write]:
    """Return what the server wrote of operands' objects."""
    found = await audit.writes(mark, user=SERVER_USER)
    return [
        item for item in found if item.resource in PLURALS and item.namespace in ("", NAMESPACE)
    ]


async def until_ready(api: ApiClient, fleet: Fleet) -> None:
    """Have the agents report and the operands run; return when the nodes are ready for pools."""
    await heartbeats(api, fleet)

    async def all_run() -> bool:
        for name in OPERANDS:
            status = await api.status(f"{DAEMON_SETS}/{name}")
            assert status.get("numberReady") == READY, f"{name}: {status}"
        return True

    await polling.eventually(all_run, what="the pods of all operands", within=300, every=0.5)
    selector = "app=nvidia-dcgm-exporter"
    listed = await api.get(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=selector)
    # kwok gives its pods no address.
    body = {"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
    paths = [
        f"/api/v1/namespaces/{NAMESPACE}/pods/{item['metadata']['name']}/status"
        for item in listed["items"]
    ]
    await each(paths, lambda path: api.patch(path, body, kind="strategic"))

    async def all_ready() -> bool:
        listed = await api.get(INVENTORIES)
        statuses = {item["metadata"]["name"]: item["status"] for item in listed["items"]}
        for name in fleet.running:
            status = statuses[name]
            assert status.get("phase") == "Ready", f"{name}: {status}"
            assert status.get("monitoring", {}).get("lastHeartbeat"), f"{name}: {status}"
        return True

    await polling.eventually(all_ready, what="nodes that are ready", within=300, every=0.5)


async def heartbeats(api: ApiClient, fleet: Fleet) -> None:
    """Have the agents of the running nodes report."""

    async def report(node: str) -> None:
        feature = agent_feature(node, [agent_device(node, 0)], heartbeat=SystemClock().utc_now())
        await apply_feature(api, feature)

    await each(fleet.running, report)


async def until_reported_idle(api: ApiClient, fleet: Fleet) -> None:
    """Return once every device and node has its only Event of being in no pool, five minutes after it came."""

    async def are_reported() -> bool:
        await heartbeats(api, fleet)
        for reason in ("GPUUnassignedDevice", "GPUNodeWithoutPool"):
            found = (await api.get(EVENTS, fieldSelector=f"reason={reason}"))["items"]
            regarding = {item["regarding"]["name"] for item in found}
            assert len(regarding) == READY, f"{reason}: {len(regarding)}"
        return True

    await polling.eventually(are_reported, what="idle devices", within=420, every=AGENT_HEARTBEAT_S)


async def test_a_label_of_a_node_is_followed_by_one_write_of_it(
    fleet: Fleet, api: ApiClient, audit: AuditLog
):
    mark = await audit.mark()
    await label(api, fleet.names[:1])
    await until_present(api, fleet.names[:1], within=WITHIN_S)
    await label(api, fleet.names[1:])
    await until_present(api, fleet.names, within=WITHIN_S)
    await until_idle(audit)
    on_nodes = await audit.writes(mark, user=SERVER_USER, resource="nodes")
    assert Counter(node.name for node in on_nodes) == Counter(fleet.names)


async def test_quiet_nodes_with_all_operands_cost_leases_and_heartbeats(
    fleet: Fleet,
    api: ApiClient,
    audit: AuditLog,
    start_scheduler: "Callable[..., Awaitable[Any]]",
    *,
    is_long: bool,
):
    await start_scheduler()
    await label(api, fleet.running)
    runs = {"metadata": {"labels": RUNS}}
    await each(fleet.running, lambda name: api.patch(f"{nodes.NODES}/{name}", runs))
    await until_ready(api, fleet)
    if is_long:
        await until_reported_idle(api, fleet)
    await until_idle(audit)
    mark = await audit.mark()
    quiet_s = QUIET_IF_LONG_S if is_long else QUIET_S
    # A stretch of real time is what this is about.
    for _ in range(quiet_s // AGENT_HEARTBEAT_S):
        await asyncio.sleep(AGENT_HEARTBEAT_S)
        await heartbeats(api, fleet)
    found = await audit.writes(mark, user=SERVER_USER)
    remaining = Counter((item.resource, item.name) for item in found if item.resource != "leases")
    # The exporters' heartbeats: once in ten minutes.
    allowed = {("gpunodeinventories/status", name) for name in fleet.running} if is_long else set()
    assert remaining.keys() <= allowed, f"{remaining}"
    assert all(count <= 1 for count in remaining.values()), f"{remaining}"


async def test_a_setting_is_one_write_of_the_object_that_has_it(
    fleet: Fleet, api: ApiClient, audit: AuditLog
):
    mark = await audit.mark()
    gfd = {**bootstrap(fleet.port)["gfd"], "sleep_interval_s": 90}
    await fleet.system.reconfigure(bootstrap=bootstrap(fleet.port, gfd=gfd))

    async def is_right() -> bool:
        found = await api.get(f"{DAEMON_SETS}/gpu-feature-discovery")
        return "90" in str(found["spec"]["template"]["spec"]["containers"])

    await polling.eventually(is_right, what="the setting", within=WITHIN_S)
    await until_idle(audit)
    writes = await written(audit, mark)
    assert [(write.verb, write.name) for write in writes] == [("patch", "gpu-feature-discovery")]


async def test_a_switch_is_one_write_an_object(fleet: Fleet, api: ApiClient, audit: AuditLog):
    before = await objects_of(api, "gpu-feature-discovery")
    mark = await audit.mark()
    await fleet.system.reconfigure(bootstrap=bootstrap(fleet.port, gfd={"enabled": False}))

    async def is_gone() -> bool:
        found = await objects_of(api, "gpu-feature-discovery")
        assert not found, f"{found}"
        return True

    await polling.eventually(is_gone, what="no object of the operand", within=WITHIN_S)
    await until_idle(audit)
    deleted = Counter((item.verb, item.resource, item.name) for item in await written(audit, mark))
    assert deleted == Counter(("delete", plural, name) for plural, name in before)

    mark = await audit.mark()
    await fleet.system.reconfigure(bootstrap=bootstrap(fleet.port))

    async def is_back() -> bool:
        assert await objects_of(api, "gpu-feature-discovery") == before
        return True

    await polling.eventually(is_back, what="all objects of the operand", within=WITHIN_S)
    await until_idle(audit)
    made = Counter((item.verb, item.resource, item.name) for item in await written(audit, mark))
    assert made == Counter(("patch", plural, name) for plural, name in before)


async def objects_of(api: ApiClient, operand: str) -> set[tuple[str, str]]:
    """Return plural and name of the operand's objects."""
    found = set()
    for resource in RESOURCES.values():
        path = resource.path(NAMESPACE if resource.namespaced else None)
        try:
            listed = await api.get(path, labelSelector=f"{OPERAND_LABEL}={operand}")
        except client.ApiRefusedError as refused:
            # A kind that this cluster does not serve.
            if refused.status != 404:
                raise
            continue
        found |= {
            (resource.plural, item["metadata"]["name"])
            for item in listed["items"]
            if not item["metadata"].get("deletionTimestamp")
        }
    return found
