"""A real Prometheus scrapes the real server while half an hour is played: what every panel and alert asks for is there.

The half hour is played in about a minute: Prometheus looks every second, so that `$__rate_interval`, four scrapes in
Grafana, is some seconds. Windows of alerts, and those of half an hour, are evaluated as they are: `rate` and `increase`
answer as soon as there are two samples. An expression counts as shown where it had a number at any of these seconds.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import promql_parser
import pytest

from manifests import constants
from manifests.monitoring.alert import Alert, RecordingRule
from manifests.monitoring.alerts import ALERTS
from manifests.monitoring.monitors import build_service_monitor
from manifests.monitoring.scaling_alerts import RECORDING_RULES
from tests.cluster.alerts.device_pages import device_pages
from tests.cluster.alerts.half_hour import GPUS, HalfHour
from tests.cluster.alerts.plugin_process import plugin_process
from tests.cluster.alerts.unpublished import UNSEEN_ANSWERS, UNSEEN_SERIES
from tests.cluster.environment import binaries, client, components, nodes, polling
from tests.cluster.environment.control_plane import ControlPlane
from tests.cluster.environment.kubectl import Kubectl
from tests.cluster.environment.pod_metrics import pod_metrics
from tests.cluster.environment.prometheus import Prometheus, scrape_job
from tests.cluster.system.installation import NAMESPACE, GpuSystem
from tests.support.dashboard_queries import CHOICES, ELSE_ZERO, PRICE, QUERIES
from tests.support.node_features import uuid_of
from tests.support.promql import filled, measured, selectors

VARIABLES = {**CHOICES, **PRICE, "$__rate_interval": "8s", "$__range": "30m"}
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
READER = f"{BINDINGS}/{constants.METRICS_READER}"


@dataclass(frozen=True)
class RecordedHalfHour:
    """A Prometheus that scraped the half hour."""

    prometheus: Prometheus
    since: float
    until: float

    async def has_values(self, expression: str) -> bool:
        return await self.prometheus.has_values(expression, since=self.since, until=self.until)


@pytest.fixture(scope="module")
def recorded(
    control_plane: ControlPlane,
    kubectl: Kubectl,
    kwok: components.Kwok,
    progress: Callable[[str], None],
) -> Iterator[RecordedHalfHour]:
    program = binaries.find_prometheus("prometheus", progress)
    prometheus = Prometheus(control_plane, program, name="prometheus-of-the-half-hour")
    system = GpuSystem(control_plane, kubectl, prefix="recorded-")
    started = time.monotonic()
    try:
        since, until = asyncio.run(play(system, control_plane, prometheus))
        took = time.monotonic() - started
        progress(f"half an hour was played in {until - since:.0f} s, {took:.0f} s with all around")
        yield RecordedHalfHour(prometheus, since, until)
    finally:
        prometheus.close()
        asyncio.run(system.uninstall())
        asyncio.run(delete_nodes(control_plane))


async def play(
    system: GpuSystem, control_plane: ControlPlane, prometheus: Prometheus
) -> tuple[float, float]:
    """Play it; return when it began and ended, in Prometheus' time."""
    await system.install()
    # It places the DaemonSets of the pools; those of pods have the scheduler of the system.
    scheduler = components.KubeScheduler(control_plane, name="scheduler-of-the-half-hour")
    async with (
        client.open_client(control_plane.kubeconfig()) as api,
        a_namespace(api, "half-hour") as namespace,
        device_pages() as (pages, device_job),
        pod_metrics(api, namespace) as pod_job,
    ):
        story = HalfHour(api, namespace, pages, seen=partial(wait_for_series, prometheus))
        uuids = [uuid_of(story.first, number) for number in range(GPUS)]
        try:
            async with plugin_process(
                control_plane, pool=story.train, node=story.first, uuids=uuids
            ) as plugin:
                jobs = [*await server_jobs(api, system, control_plane), device_job, pod_job]
                await prometheus.start(jobs=[*jobs, plugin.job])
                since = time.time()  # noqa: TID251  # as Prometheus counts
                await story.a_node_has_no_driver()
                await scheduler.start()
                await story.nodes_publish_their_devices()
                await story.pools_take_them()
                await story.pods_are_bound(plugin)
                await story.a_reservation_expires()
                await story.some_are_refused()
                await story.one_waits()
                await story.a_device_faults()
                await story.a_pool_is_cut_again()
                await story.pods_end(plugin)
                await all_is_scraped(prometheus)
                until = time.time()  # noqa: TID251  # likewise
        finally:
            await story.clean_up()
            scheduler.kill9()
            if await api.find(READER):
                await api.delete(READER)
    return since, until


@contextlib.asynccontextmanager
async def a_namespace(api: client.ApiClient, name: str) -> AsyncIterator[str]:
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    await polling.eventually(lambda: api.find(account), what=f"the default account of {name}")
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")


async def server_jobs(
    api: client.ApiClient, system: GpuSystem, control_plane: ControlPlane
) -> list[dict[str, Any]]:
    """Return what the Prometheus operator makes of the chart's ServiceMonitor, once a second."""
    monitor = build_service_monitor(
        NAMESPACE, "1s", {}, ca_secret=constants.SCHEDULER_SECRET, with_usage=True
    )
    files = await system.mount_secret()
    token_file = control_plane.run.directory / "prometheus-token"
    token_file.write_text(await token_of_a_reader(api))
    targets = [{"targets": [system.url.removeprefix("https://")]}]
    return [
        scrape_job(monitor, endpoint, targets, ca_file=files["ca.crt"], token_file=token_file)
        for endpoint in monitor["spec"]["endpoints"]
    ]


async def token_of_a_reader(api: client.ApiClient) -> str:
    """Return the token of an account that may read /metrics/usage."""
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    await api.create(accounts, {"metadata": {"name": "prometheus"}})
    role = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": constants.METRICS_READER,
    }
    subject = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "prometheus"}
    body = {
        "metadata": {"name": constants.METRICS_READER},
        "roleRef": role,
        "subjects": [subject],
    }
    await api.create(BINDINGS, body)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token: str = (await api.create(f"{accounts}/prometheus/token", request))["status"]["token"]
    return token


async def delete_nodes(control_plane: ControlPlane) -> None:
    """Delete kwok's nodes, which end the pods of the namespace that is deleted before them."""
    async with client.open_client(control_plane.kubeconfig()) as api:
        names = [item["metadata"]["name"] for item in (await api.get(nodes.NODES))["items"]]
        await nodes.delete_nodes(
            api, [name for name in names if name.startswith(nodes.KWOK_PREFIX)]
        )


async def wait_for_series(prometheus: Prometheus, expression: str) -> None:
    """Wait until Prometheus has series of an expression."""
    await polling.eventually(
        lambda: prometheus.query(expression), what=f"{expression} in Prometheus", every=0.2
    )


async def all_is_scraped(prometheus: Prometheus) -> None:
    """Wait for two more scrapes of every target."""
    (before,) = await prometheus.query("min(count_over_time(up[1h]))")

    async def are_there() -> bool:
        targets = await prometheus.targets()
        assert all(target["health"] == "up" for target in targets), f"{targets}"
        (now,) = await prometheus.query("min(count_over_time(up[1h]))")
        return bool(now[""] >= before[""] + 2)

    await polling.eventually(are_there, what="two more scrapes", every=0.5)


def ours(expression: str) -> str:
    """Return an expression without its zero for nothing, which would always be there."""
    return filled(expression.replace(ELSE_ZERO, ""), VARIABLES)


def is_unseen(expression: promql_parser.Expr) -> bool:
    """Say whether the expression asks for a series that is not there in the half hour."""
    return any(
        UNSEEN_SERIES.keys() & {selector.name, str(selector)} for selector in selectors(expression)
    )


@pytest.mark.parametrize("name", QUERIES)
async def test_a_panel_shows_what_happened(name: str, recorded: RecordedHalfHour):
    expression = ours(QUERIES[name])
    is_visible = await recorded.has_values(expression)
    if name in UNSEEN_ANSWERS or is_unseen(promql_parser.parse(expression)):
        return
    assert is_visible, expression


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
async def test_an_alert_watches_what_is_there(alert: Alert, recorded: RecordedHalfHour):
    """Not that it is raised: each value that it compares is there."""
    for part in measured(promql_parser.parse(alert.expression)):
        if not is_unseen(part):
            assert await recorded.has_values(str(part)), str(part)


@pytest.mark.parametrize("rule", RECORDING_RULES, ids=lambda rule: rule.name)
async def test_a_recorded_series_is_there(rule: RecordingRule, recorded: RecordedHalfHour):
    tree = promql_parser.parse(rule.expression)
    assert is_unseen(tree) or await recorded.has_values(rule.expression)


@pytest.mark.parametrize("series", UNSEEN_SERIES)
async def test_a_series_that_is_excused_is_not_there(series: str, recorded: RecordedHalfHour):
    assert not await recorded.has_values(series), UNSEEN_SERIES[series]


@pytest.mark.parametrize("name", UNSEEN_ANSWERS)
async def test_an_answer_that_is_excused_stays_empty(name: str, recorded: RecordedHalfHour):
    expression = ours(QUERIES[name])
    assert not is_unseen(promql_parser.parse(expression)), "excused twice"
    assert not await recorded.has_values(expression), UNSEEN_ANSWERS[name]


def test_every_excuse_is_of_something_that_is_asked_for():
    asked = [promql_parser.parse(ours(text)) for text in QUERIES.values()]
    asked += [promql_parser.parse(alert.expression) for alert in ALERTS]
    asked += [promql_parser.parse(rule.expression) for rule in RECORDING_RULES]
    named = {
        text
        for tree in asked
        for selector in selectors(tree)
        for text in (selector.name, str(selector))
    }
    assert UNSEEN_SERIES.keys() <= named
    assert UNSEEN_ANSWERS.keys() <= QUERIES.keys()
    assert all((*UNSEEN_SERIES.values(), *UNSEEN_ANSWERS.values()))
