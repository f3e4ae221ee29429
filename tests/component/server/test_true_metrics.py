"""Metrics that are true: a run in a running server, and what an observer counts.

Every metric of ours is compared with what this test counted itself or reads in the API server. One that
nothing here moves fails.
"""

import datetime as dt
import functools
from collections import Counter

from certs.pem import DecodedPair, decode_pair
from telemetry import metrics
from telemetry.metric_declaration import DeclaredMetric
from tests.component.server import metrics_nodes
from tests.component.server.metrics_run import (
    DEVICES,
    NOT_SERVED,
    SERVING,
    WATCHED,
    MetricsRun,
    a_binding_is_lost,
    a_pool_is_cut_again,
    comes_to,
    pods_are_admitted_bound_and_deleted,
    requests_are_refused_and_malformed,
    strangers_bind,
    the_api_server_stumbles,
    the_world_begins,
)
from tests.support.dcgm import Exporter
from tests.support.exported_series import name_of
from tests.support.loop_clock import ServerClock
from tests.support.metric_samples import ASKED, exported
from tests.support.polling import until
from tests.support.running_server import Cluster, a_server


async def test_every_metric_says_what_happened(cluster: Cluster) -> None:
    ASKED.clear()  # of other tests in this process
    await cluster.install_discovery()
    await cluster.install_karpenter()
    clock = ServerClock()
    began = clock.monotonic()
    async with a_server(cluster, clock=clock, **metrics_nodes.IMPATIENT) as server:
        await server.until_ready()
        await cluster.until_stable()
        cluster.api.requests.clear()
        run = MetricsRun(cluster, server)
        before = exported("gpu_index_generation")[()]
        await the_world_begins(run)
        await pods_are_admitted_bound_and_deleted(run)
        await requests_are_refused_and_malformed(run)
        await a_binding_is_lost(run)
        await strangers_bind(run)
        await the_api_server_stumbles(run)
        async with metrics_nodes.a_node_publishes_its_devices(run) as exporter:
            await exporters_reads_are_exported(run, exporter)
            await what_was_counted_is_exported(run)
            await what_is_in_the_cluster_is_exported(run)
            await ages_are_those_of_the_servers_clock(run, clock, began)
            await metrics_nodes.nodes_and_pools_are_exported(run)
            assert exported("gpu_index_generation")[()] > before
            await units_are_counted_over_time(run)
            await every_request_of_ours_is_exported(run)
            await a_pool_is_cut_again(run)
    assert {name for name in OF_LEADERS if exported(name)} == set()
    assert exported("gpu_leading") == {(): 0}
    assert DECLARED - ASKED == ELSEWHERE


CONTROLLERS = {
    "cachenode.cleanup",
    "device.assignment",
    "device.health",
    "device.repair",
    "device.state",
    "namespace.pod-security",
    "node.bootstrap",
    "node.dcgm",
    "node.exports",
    "node.handover",
    "node.inventory",
    "node.leaving",
    "node.operands",
    "node.pool-marks",
    "node.present-label",
    "pool.capacity",
    "pool.conflict",
    "pool.kept-nodes",
    "pool.life",
    "pool.scaling",
    "pool.status",
    "pool.workloads",
    "scheduler.trust",
}

OF_LEADERS = (
    "gpupool_capacity_total",
    "gpupool_assignments",
    "gpupool_fragmentation",
    "gpupool_largest_demand",
    "gpupool_placeable_pods",
    "gpupool_fitting_pods",
    "gpupool_node_slots",
    "gpupool_condition",
    "gpu_reservations",
    "gpu_inventory_devices_total",
    "gpu_inventory_devices_state",
    "gpu_node_inventory_condition",
    "gpu_bootstrap_node_phase",
    "gpu_bootstrap_condition",
    "gpu_bootstrap_ready",
    "gpu_device_faulted_total",
    "gpu_device_info",
)
"""Of which nobody else has a series."""

DECLARED = {
    name_of(metric) for metric in vars(metrics).values() if isinstance(metric, DeclaredMetric)
}

ELSEWHERE = {
    "gpu_control_plane_config_problem",  # test_config_object.py
    "gpu_bootstrap_handler_errors",
    "gpu_daemonset_outdated_nodes",
    "gpu_device_repairs",
    "gpu_informer_decode_errors",
    "gpu_informer_unreadable_objects",
    "gpu_object_conflicts",
    "gpu_pods_nominated",
} | {name for name in DECLARED if name.startswith(("gpu_scale_", "gpu_smart_", "gpu_nodeclaim_"))}
"""No pool scales here (`tests/component/reconciler/test_node_claim_watch.py`) or has its devices repaired
(`tests/component/reconciler/test_device_repair.py`), no object of an operand is refused here, and no other client
writes one or keeps pods from its roll-out (`tests/component/reconciler/test_node_operands.py`, `test_object_applier.py`), no API server in memory
stores what we cannot read (`tests/component/kube/test_client_requests.py`), and only the tail of a long queue is
nominated (`tests/component/reconciler/test_nominating.py`)."""


async def exporters_reads_are_exported(run: MetricsRun, exporter: Exporter) -> None:
    """The exporter has been failing since the reads that the run counted."""
    grown = functools.partial(run.counted.growth, "gpu_health_scrapes_total")
    read = run.scrapes["read",]
    await until(lambda: sum(grown().values()) == exporter.asked)
    assert grown() == {("read",): read, ("failed",): exporter.asked - read}
    await comes_to(
        functools.partial(run.counted.growth, "gpu_inventory_bad_features_total"),
        {("node-labels",): 1},
    )


async def units_are_counted_over_time(run: MetricsRun) -> None:
    """Of every pool that has some; `tests/unit/reconciler/test_unit_seconds.py` has the sums."""

    def counted() -> set[str]:
        return {pool for pool, _ in run.counted.growth("gpupool_unit_seconds_total")}

    pools = {pool for (pool,), units in exported("gpupool_capacity_total").items() if units}
    assert pools
    await until(lambda: pools <= counted())


async def what_was_counted_is_exported(run: MetricsRun) -> None:
    for name, want in (
        ("gpu_reservations_ended_total", run.ended),
        ("gpu_admission_duration_seconds_count", run.admission),
        ("gpu_extender_duration_seconds_count", run.extender),
        ("gpu_refusals_total", run.refusals),
        ("gpu_task_failures_total", run.failed),
        ("gpupool_placements_total", {("whole", "single"): run.extender["bound", "bind"]}),
        ("gpu_allocation_mismatches_total", {}),  # told in `test_what_nodes_say`
    ):
        await comes_to(functools.partial(run.counted.growth, name), dict(want))
    waited = run.counted.growth("gpupool_wait_seconds_count")
    assert waited == {("whole",): run.extender["bound", "bind"]}
    # All of them had units from their creation on.
    assert run.counted.growth("gpupool_reserved_wait_seconds_count") == waited
    await events_are_counted(run)
    added = {
        "pods": len(await run.pods()) + 1,
        "operand pods": 1,
        "gpupools": 3,
        "gpudevices": DEVICES + 5,
        "gpunodeinventories": 1,
        "nodes": 2,
        "nodefeatures": 1,
        "namespaces": 1,
        "configmaps": len(SERVING),
        "daemonsets": len(SERVING),
    }
    await comes_to(lambda: seen(run, "ADDED"), added)
    await comes_to(lambda: seen(run, "DELETED"), {"pods": 1, "gpupools": 1, "nodefeatures": 1})
    # Of the controllers that write the pool's status, the one that came first.
    await comes_to(lambda: sum(failed_reconciles(run).values()), 1)
    assert failed_reconciles(run).keys() <= {"pool.conflict", "pool.status"}
    reconciled = reconciles(run)
    timed = run.counted.growth("gpu_reconcile_duration_seconds_count")
    outcomes = [(controller, count) for (controller, _), count in reconciled.items()]
    assert timed == {
        (name,): sum(count for controller, count in outcomes if controller == name)
        for name, _ in outcomes
    }
    assert {name for name, _ in outcomes} == CONTROLLERS
    await until(lambda: run.counted.growth("gpu_event_loop_lag_seconds_count")[()] > 10)


async def events_are_counted(run: MetricsRun) -> None:
    """Which they are is known; how often conditions of pools and nodes changed, or a source was silent or bad once more,
    is the timing of others."""
    events = {
        ("written", "GPUReservationExpired"): 2,
        ("written", "GPUPodUnaccounted"): 1,
        ("written", "GPUUnitsHeldTwice"): 2,
        ("written", "GPUDeviceDetected"): 2,
        ("written", "GPUDeviceAssigned"): 1,
        ("written", "GPUDeviceFaulted"): 1,
        ("written", "GPUBadFeature"): 1,
    }
    low = "GPUPoolCapacityLow"
    of_nodes = {"GPUNodeReadyForPooling", "GPUNodeRecovered", "GPUInventoryIncomplete"}
    of_pools = {low, "GPUPoolReady", "GPUPoolNotReady"}
    by_timing = of_nodes | of_pools | {"GPUDriverMissing", "GPUSourceSilent", "GPUPodWaits"}

    def counted() -> dict[tuple[str, ...], float]:
        return run.counted.growth("gpu_events_emitted_total")

    def written() -> float:
        return sum(count for (outcome, _), count in counted().items() if outcome == "written")

    await comes_to(
        lambda: {
            (outcome, reason): count
            for (outcome, reason), count in counted().items()
            if outcome == "written" and reason not in by_timing
        },
        events,
    )
    await until(lambda: counted().get(("written", low), 0) >= len(SERVING))
    # One whose answer came too late is stored and not counted as written.
    await until(lambda: written() <= run.written_events() <= sum(counted().values()))


def seen(run: MetricsRun, change: str) -> dict[str, float]:
    """Return how many changes of a kind were watched, by resource."""
    grown = run.counted.growth("gpu_informer_events_total")
    return {resource: count for (resource, kind), count in grown.items() if kind == change}


def failed_reconciles(run: MetricsRun) -> dict[str, float]:
    """Return how often controllers failed."""
    grown = reconciles(run)
    return {name: count for (name, outcome), count in grown.items() if outcome == "failed"}


def reconciles(run: MetricsRun) -> dict[tuple[str, ...], float]:
    """Return how often each controller came to each outcome."""
    return run.counted.growth("gpu_reconciles_total")


async def what_is_in_the_cluster_is_exported(run: MetricsRun) -> None:
    """Two pods of ours, a thief on the unit of one, a stranger on an unknown one; one device in doubt."""
    figures = {
        "total": {("whole",): DEVICES, ("slow",): 3},
        "used": {("whole",): 3, ("slow",): 0},
        "reserved": {("whole",): 1, ("slow",): 1},
        "available": {("whole",): 0, ("slow",): 2},
        "unhealthy": {("whole",): DEVICES - 4, ("slow",): 0},
    }
    for name, want in figures.items():
        await comes_to(functools.partial(exported, f"gpupool_capacity_{name}"), want)
    phases = dict.fromkeys(["held", "tied", "committed", "bound"], 0) | {
        "confirmed": 1,
        "doubtful": 1,
    }
    for name, counts in (
        ("gpu_reservations", {(phase,): count for phase, count in phases.items()}),
        ("gpu_device_reserved_total", {("whole",): 1, ("slow",): 1}),
        ("gpu_device_unassigned_total", {(): 2}),
        ("gpupool_largest_free", {("whole",): 0, ("slow",): 1}),
        ("gpupool_capacity_missing", {("whole",): 0, ("slow",): 0}),
        ("gpupool_ageing_access", {("whole",): 0, ("slow",): 0}),
        ("gpupool_fragmentation", {("whole",): 0, ("slow",): 0}),
        (
            "gpupool_largest_demand",
            {
                (pool, topology): count
                for pool, count in (("whole", 0), ("slow", 1))
                for topology in ("any", "aligned")
            },
        ),
        ("gpu_pods_waiting", {("whole",): 1, ("slow",): 1}),
        ("gpu_pods_unaccounted", {(): 1}),
        ("gpu_units_held_twice", {(): 1}),
        ("gpu_leading", {(): 1}),
    ):
        await comes_to(functools.partial(exported, name), counts)
    # What only earlier servers of this process watched is shown as 0.
    await comes_to(
        lambda: {
            item: synced for item, synced in exported("gpu_informer_synced").items() if synced
        },
        {(resource,): 1 for resource in (*WATCHED, *NOT_SERVED)},
    )
    placeable = {("1", "slow", topology): 2 for topology in ("any", "aligned")}
    await comes_to(
        lambda: {item: pods for item, pods in exported("gpupool_placeable_pods").items() if pods},
        placeable,
    )
    fitting = exported("gpupool_fitting_pods")
    assert {labels: pods for labels, pods in fitting.items() if pods} == {("slow", "1"): 2}
    bundle = await run.cluster.bundle()
    decoded = decode_pair(bundle.serving)
    assert isinstance(decoded, DecodedPair)
    ends = decoded.certificate.not_after.timestamp()
    assert exported("gpu_certificate_not_after_timestamp_seconds")["leaf",] == ends


async def ages_are_those_of_the_servers_clock(
    run: MetricsRun, clock: ServerClock, began: float
) -> None:
    """However long the test takes, nothing is older than the server, and a pod is as old as its object."""
    ages = exported("gpu_device_reservation_age_seconds")
    assert ages.keys() == {("whole",), ("slow",)}
    assert all(0 < age_s < clock.monotonic() - began for age_s in ages.values())
    for pool, name in (("whole", "expires"), ("slow", "queued")):
        created = (await run.cluster.stored_pod(name)).metadata.creation_timestamp
        since = dt.datetime.fromisoformat(created or "")
        age_s = (clock.utc_now() - since).total_seconds()
        await until(lambda: exported("gpu_pods_longest_wait_seconds")[pool,] >= age_s)  # noqa: B023
        waits = exported("gpu_pods_longest_wait_seconds")
        assert waits[pool,] <= (clock.utc_now() - since).total_seconds()
    lag = exported("gpu_informer_lag_seconds")
    assert lag.keys() == {(resource,) for resource in (*WATCHED, *NOT_SERVED)}
    assert all(0 <= lag_s < clock.monotonic() - began for lag_s in lag.values())


async def every_request_of_ours_is_exported(run: MetricsRun) -> None:
    def reported() -> Counter[str]:
        found: Counter[str] = Counter()
        grown = run.counted.growth("gpu_api_request_duration_seconds_count")
        for (_, method, resource), count in grown.items():
            if resource != "version":  # of the API server itself, which notes no such request
                found["GET" if method == "WATCH" else method] += int(count)
        return found

    # Leases are renewed all the time: at some moment no request is under way.
    try:
        await until(lambda: reported() == run.requests())
    except TimeoutError:
        assert reported() == run.requests()
