"""A real Prometheus scrapes the devices' metrics of the node, from either source, and the boards show them."""

import re
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.cluster.environment import polling
from tests.cluster.environment.pod_metrics import pod_metrics
from tests.cluster.environment.prometheus import selected_targets
from tests.cluster.node.operands.switches import DAEMON_SETS, GONE_WITHIN_S, POOL
from tests.cluster.system.installation import until_gone
from tests.support.dashboard_queries import CHOICES, ELSE_ZERO, QUERIES
from tests.support.promql import filled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.cluster.environment.client import JsonObject
    from tests.cluster.environment.prometheus import Prometheus
    from tests.cluster.node.operands.operand_pods import OperandPods
    from tests.cluster.node.operands.switches import SwitchedSystem
    from tests.cluster.node.stories.devices import NodeDevices
    from tests.cluster.node.stories.pools import Pools

VARIABLES: Final = {**CHOICES, "$__rate_interval": "10s", "$__range": "1m"}
EXPRESSIONS: Final[dict[str, str]] = {
    name: text for name, text in QUERIES.items() if "DCGM_FI_" in text and "gpu_device_" not in text
}
"""Those of all boards that are about devices' metrics, and not joined with the server's, which is not scraped here."""
NOT_BY_DEFAULT: Final = frozenset(
    {
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    }
)
"""Fields that dcgm-exporter has, and that are not in its default list."""
_FIELD: Final = re.compile(r"DCGM_FI_\w+")
BUSY, IDLE = "busy", "idle"


@pytest.fixture(name="pod_metrics")
async def _pod_metrics(pools: "Pools") -> "AsyncIterator[dict[str, Any]]":
    async with pod_metrics(pools.api, pools.namespace) as job:
        yield job


async def test_every_panel_of_devices_has_data_from_dcgm_exporter_and_from_the_node_agent(
    operands: "OperandPods",
    pools: "Pools",
    devices: "NodeDevices",
    prometheus: "Prometheus",
    pod_metrics: dict[str, Any],
    installed_with_operands: "SwitchedSystem",
    progress: "Callable[[str], None]",
    tmp_path: "Path",
):
    await operands.ready("dcgm-exporter")
    resource = await pools.make(0, 1, name=POOL)
    used = {}
    for name in (BUSY, IDLE):
        pod = await pools.run(pools.a_pod(name, resource))
        await pools.reported(pod)
        (used[name],) = (await pools.allocations(name))["main"]
    devices.driver.set(used[IDLE], utilisation=0)

    settings = tmp_path / "settings.yaml"
    monitor = await monitor_of(installed_with_operands, "nvidia-dcgm-exporter", settings)
    await prometheus.start(monitor, jobs=[pod_metrics])
    await all_visible(prometheus, pools, used, without=NOT_BY_DEFAULT)
    prometheus.close()

    validator = await operands.ready("validator")
    await installed_with_operands.use_nvml()
    started = time.monotonic()
    await operands.gone(DAEMON_SETS.keys() - {"validator"})
    took = time.monotonic() - started
    progress(f"GFD, DCGM and dcgm-exporter were switched off: gone after {took:.1f} s")
    assert took <= GONE_WITHIN_S
    assert (await operands.ready("validator"))["metadata"]["uid"] == validator["metadata"]["uid"]
    # Facts of a GFD that runs no more are no facts of the node.
    await until_gone(operands.api, operands.node_feature)

    monitor = await monitor_of(installed_with_operands, "gpu-node-agent-metrics", settings)
    await until_served(operands, monitor)
    await prometheus.start(monitor, jobs=[pod_metrics])
    await all_visible(prometheus, pools, used, without=frozenset())
    (current,) = await prometheus.query(f'DCGM_FI_DEV_FB_USED{{UUID="{used[BUSY]}"}}')
    assert current["pool"] == POOL
    assert current["container"] == "main"


async def monitor_of(switched: "SwitchedSystem", name: str, file: "Path") -> "JsonObject":
    """Return the ServiceMonitor of an operand, as the server applies it where the Prometheus operator is."""
    file.write_text(yaml.safe_dump(switched.now), encoding="utf-8")
    rendered = await switched.system.render("operands", "--settings", str(file))
    (found,) = (
        item
        for item in yaml.safe_load_all(rendered)
        if item and (item["kind"], item["metadata"]["name"]) == ("ServiceMonitor", name)
    )
    monitor: JsonObject = found
    return monitor


async def until_served(operands: "OperandPods", monitor: "JsonObject") -> None:
    """Wait for a page where a monitor looks for it: the node agent is started again to serve it."""

    async def is_served() -> bool:
        targets = await selected_targets(operands.api, monitor)
        assert len(targets) == 1, f"{targets}"
        url = f"http://{targets[0]['targets'][0]}{monitor['spec']['endpoints'][0]['path']}"
        refused = await polling.https_probe(url, ca_file=None)()
        assert refused is None, refused
        return True

    await polling.eventually(is_served, what="a page of the devices' metrics")


async def all_visible(
    prometheus: "Prometheus", pools: "Pools", used: dict[str, str], *, without: frozenset[str]
) -> None:
    """Wait until every panel has data but those of some fields, and pods have their own devices."""
    expected = {
        name: text for name, text in EXPRESSIONS.items() if not set(_FIELD.findall(text)) & without
    }
    absent = {name: text for name, text in EXPRESSIONS.items() if name not in expected}
    assert len(expected) > 20

    async def have_data() -> bool:
        empty = [name for name, text in expected.items() if not await answer(prometheus, text)]
        assert not empty, f"no data: {empty}; targets: {await prometheus.targets()}"
        return True

    await polling.eventually(have_data, what="data of all panels", every=1)
    # Were one of them there, a panel would say without need that it may be empty.
    assert [name for name, text in absent.items() if await answer(prometheus, text)] == []
    by_pod = await answer(prometheus, EXPRESSIONS["gpu-node: Utilisation by pod A"])
    assert {
        (item["namespace"], item["pod"], item["Hostname"], item["UUID"], item[""])
        for item in by_pod
        if item.get("namespace") == pools.namespace
    } == {
        (pools.namespace, BUSY, pools.node.name, used[BUSY], 80),
        (pools.namespace, IDLE, pools.node.name, used[IDLE], 0),
    }
    idle = await answer(prometheus, EXPRESSIONS["gpu-workloads: Which pods are idle A"])
    assert [item["pod"] for item in idle] == [IDLE]
    devices = await answer(prometheus, EXPRESSIONS["gpu-node: Temperature A"])
    assert sorted(device["UUID"] for device in devices) == sorted(pools.devices.uuids)


async def answer(prometheus: "Prometheus", expression: str) -> list[dict[str, Any]]:
    return await prometheus.query(filled(expression.replace(ELSE_ZERO, ""), VARIABLES))
