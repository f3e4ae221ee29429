"""A Prometheus evaluates the expressions of all dashboards and alerts on an hour of samples."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

import aiohttp
import promql_parser
import pytest

from manifests.monitoring.alert import Alert
from manifests.monitoring.alerts import ALERTS
from tests.cluster.alerts import samples
from tests.cluster.alerts.conftest import Promtool
from tests.cluster.environment import binaries, polling
from tests.cluster.environment.processes import Run
from tests.support import ports
from tests.support.dashboard_queries import CHOICES, ELSE_ZERO, PRICE, QUERIES
from tests.support.promql import filled, selectors

VARIABLES = {**CHOICES, **PRICE, "$__rate_interval": "5m", "$__range": "1h"}

Answer = dict[tuple[tuple[str, str], ...], float]
"""Labels -> value."""


class SampledPrometheus:
    """A Prometheus that has the samples and scrapes nothing."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def query(self, expression: str, variables: Mapping[str, str] = VARIABLES) -> Answer:
        expression = filled(expression, {**VARIABLES, **variables})
        asked = {"query": expression, "time": str(samples.END)}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v1/query", params=asked) as answer,
        ):
            document = await answer.json()
        assert document["status"] == "success", (expression, document)
        return {
            tuple(sorted(item["metric"].items())): float(item["value"][1])
            for item in document["data"]["result"]
        }


@pytest.fixture(scope="module")
def prometheus(
    run: Run,
    promtool: Promtool,
    progress: Callable[[str], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SampledPrometheus]:
    directory = tmp_path_factory.mktemp("samples")
    text, configuration, data = (directory / name for name in ("samples", "empty.yaml", "data"))
    text.write_text(samples.openmetrics_text())
    configuration.write_text("scrape_configs: []\n")
    imported = promtool("tsdb", "create-blocks-from", "openmetrics", text, data)
    assert imported.returncode == 0, imported.stdout + imported.stderr
    url = f"http://127.0.0.1:{ports.free_port()}"
    program = binaries.find_prometheus("prometheus", progress)
    process = run.child(
        "prometheus-of-samples",
        [
            str(program),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address={url.removeprefix('http://')}",
        ],
    )
    process.start()
    ready = polling.https_probe(f"{url}/-/ready", ca_file=None)
    asyncio.run(process.wait_ready(ready, within=polling.PATIENCE_S))
    yield SampledPrometheus(url)
    process.kill9()


@pytest.mark.parametrize("name", QUERIES)
async def test_a_panel_shows_the_series_that_it_is_about(name: str, prometheus: SampledPrometheus):
    expression = QUERIES[name].replace(ELSE_ZERO, "")
    assert await prometheus.query(expression) != {}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
async def test_an_alert_is_about_series_that_exist(alert: Alert, prometheus: SampledPrometheus):
    await prometheus.query(alert.expression)
    for selector in selectors(promql_parser.parse(alert.expression)):
        assert await prometheus.query(str(selector)) != {}


async def test_a_wrong_label_would_be_found(prometheus: SampledPrometheus):
    assert await prometheus.query('gpu_bootstrap_condition{condition="Driver"}') == {}


def query_of(board: str, panel: str, letter: str = "A") -> str:
    return QUERIES[f"{board}: {panel} {letter}"]


def by(answer: Answer, label: str) -> dict[str, float]:
    return {dict(labels)[label]: value for labels, value in answer.items()}


async def test_pods_that_ended_request_nothing(prometheus: SampledPrometheus):
    found = await prometheus.query(query_of("gpu-workloads", "Pods and their devices"))
    assert by(found, "pod") == {"trainer": 2, "notebook": 1, "waiting": 8, "one": 1, "other": 1}
    (total,) = (await prometheus.query(query_of("gpu-workloads", "Units requested"))).values()
    assert total == 13


async def test_a_namespace_is_chosen(prometheus: SampledPrometheus):
    query = query_of("gpu-workloads", "Pods and their devices")
    assert set(by(await prometheus.query(query, {"$namespace": "web"}), "pod")) == {"one", "other"}


async def test_the_pod_is_found_under_both_names_of_its_label(prometheus: SampledPrometheus):
    query = query_of("gpu-workloads", "Pods and their devices", "B")
    used = by(await prometheus.query(query), "pod")
    assert used == {"trainer": 80, "notebook": 0, "one": 40, "other": 40}


async def test_an_idle_pod_is_one_that_holds_and_does_nothing(prometheus: SampledPrometheus):
    found = await prometheus.query(query_of("gpu-workloads", "Which pods are idle"))
    assert by(found, "pod") == {"notebook": 0}
    (units,) = (await prometheus.query(query_of("gpu-workloads", "Units of idle pods"))).values()
    assert units == 1


async def test_a_pending_pod_is_one_that_requests_units(prometheus: SampledPrometheus):
    found = await prometheus.query(query_of("gpu-workloads", "Which pods are pending"))
    assert by(found, "pod") == {"waiting": 8}


async def test_a_shared_device_counts_once_for_its_node(prometheus: SampledPrometheus):
    found = await prometheus.query(query_of("gpu-node", "Power"), {"$node": "n1"})
    assert by(found, "UUID") == {"GPU-a": 1060, "GPU-b": 560}


async def test_only_conditions_that_are_faults_block_a_node(prometheus: SampledPrometheus):
    found = await prometheus.query(query_of("gpu-fleet", "Faults of nodes"))
    faults = {(dict(labels)["node"], dict(labels)["condition"]) for labels in found}
    assert faults == {
        ("n2", "DriverMissing"),
        ("n2", "ToolkitMissing"),
        ("n2", "MonitoringMissing"),
    }


def test_samples_are_of_one_series_once():
    names = [line.split(" ")[0] for line in samples.openmetrics_text().splitlines()]
    assert len(names[:-1]) == samples.COUNT * len(set(names[:-1]))
