"""Each kind of request that the server makes fails, one kind a run: everything comes to the same end.

Which kinds there are is tested too, and that they are all that our rights allow. The first request of a
kind is refused, the next one cut off before it is carried out, the one after it carried out and its answer
lost; of reads, which have no effect, the last is cut off as well.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from simulator.apiserver.injection import Breakage, InjectedError
from simulator.apiserver.requestlog import LoggedRequest
from tests.component.server import full_run
from tests.component.server.cluster_run import ClusterRun
from tests.component.server.request_kinds import DISCOVERY, fault_of_kind, kind_of, requests_of_ours
from tests.support import rights
from tests.support.metric_samples import Counted

# What is not asked over the network is not waited for, so few idle turns will do.
pytestmark = pytest.mark.looptime(noop_cycles=10)

WATCHED = (
    "gpupools",
    "gpudevices",
    "gpunodeinventories",
    "nodes",
    "nodefeatures",
    "namespaces",
    "pods",
    "pods of operands",
    "pods that are signals",
    "nodeclaims",
    "nodepools",
    "configmaps",
    "daemonsets",
)
READS = (
    *(f"{verb} {resource}" for verb in ("LIST", "WATCH") for resource in WATCHED),
    "LIST pods that are bound",
    "GET pods",
    "GET secrets gpu-control-plane-tls",
    "GET secrets gpu-control-plane-scheduler",
    "GET secrets gpu-control-plane-reservations",
    "GET secrets gpu-control-plane-caches",
    "GET mutatingwebhookconfigurations",
    "GET validatingwebhookconfigurations",
    "GET leases",
    "GET gpucontrolplaneterms",
    "GET namespaces",
    "GET deployments",
    "GET endpointslices",
    "GET services",
    "LIST serviceaccounts",
    "LIST services",
    "LIST roles",
    "LIST rolebindings",
    "LIST clusterroles",
    "LIST clusterrolebindings",
    "LIST servicemonitors",
    "LIST verticalpodautoscalers",
    # Their kinds are not installed here.
    "LIST gkmcaches",
    "LIST clustergkmcaches",
    "LIST gkmcachenodes",
    "LIST clustergkmcachenodes",
    DISCOVERY,
)
WRITES = (
    "POST secrets",
    "PATCH secrets gpu-control-plane-tls",
    "PATCH secrets gpu-control-plane-scheduler",
    "PATCH mutatingwebhookconfigurations",
    "PATCH validatingwebhookconfigurations",
    "POST leases",
    "PUT leases",
    "POST gpucontrolplaneterms",
    "PATCH gpucontrolplaneterms",
    "POST gpudevices",
    "PATCH gpudevices/status by node-inventory",
    "PATCH gpudevices/status by device-health",
    "PATCH gpudevices/status by device-assignment",
    "PATCH gpudevices/status by device-state",
    "POST gpunodeinventories",
    "PATCH gpunodeinventories/status by node-inventory",
    "PATCH gpunodeinventories/status by node-bootstrap",
    "PATCH gpunodeinventories/status by device-assignment",
    "PATCH gpupools",
    "PATCH gpupools/status by pool-life",
    "PATCH gpupools/status by pool-status",
    "PATCH configmaps by pool-workloads",
    "PATCH daemonsets by pool-workloads",
    "PATCH serviceaccounts by operands",
    "PATCH clusterroles by operands",
    "PATCH clusterrolebindings by operands",
    "PATCH services by operands",
    "PATCH daemonsets by operands",
    "PATCH nodes",
    "PATCH nodes by present-label",
    "PATCH namespaces by pod-security",
    "PATCH deployments",
    "PATCH endpointslices by endpoint",
    "POST pods/binding",
    "POST events",
)
WAITING = ("PATCH pods/status", "PATCH pods", "PATCH events")
"""What only pods cause that wait for long."""
CHANGES = (
    "PATCH gpudevices/status",
    "PATCH gpudevices",
    "PATCH gpunodeinventories",
    "PATCH gpupools/status by pool-conflict",
    "DELETE gpudevices",
    "DELETE gpunodeinventories",
    "DELETE configmaps",
    "DELETE daemonsets",
    "GET nodes",
    "POST pods/eviction",
)
"""What only changes of devices, nodes and pools cause: the first one takes a device's pool off."""


def device(allocated: int, capacity: int = 1) -> dict[str, int]:
    return {"capacity": capacity, "reserved": 0, "allocated": allocated}


def figures(total: int, **others: int) -> dict[str, int]:
    names = ("reserved", "used", "available", "unhealthy", "missing", "largestFree")
    return {"total": total, **dict.fromkeys(names, 0), **others}


LISTED = {"whole": {"GPU-w0", "GPU-w1", "GPU-w2"}, "slow": {"GPU-sliced"}}
OWNERS = {uuid: pool for pool, uuids in LISTED.items() for uuid in uuids}
WHOLE, SLICED = sorted(LISTED["whole"]), "GPU-sliced"
SERVING = {"Ready", "Supported"}
EMPTY: dict[str, Any] = {
    "bound": set(),
    "with devices": set(),
    "is any unit given twice": False,
    "pools": {
        "whole": figures(3, available=3, largestFree=3),
        "slow": figures(64, available=64, largestFree=64),
    },
    "modes": {"whole": "Exclusive", "slow": "TimeSlice"},
    "finalized": {"whole", "slow"},
    "devices": 4,
    "said of pools": {"whole": SERVING, "slow": SERVING},
    "units": {**dict.fromkeys(WHOLE, device(0)), SLICED: device(0, 64)},
    "owners": OWNERS,
    "said of devices": {uuid: {"Assigned", "Healthy"} for uuid in OWNERS},
    "labels": {"pool.gpu.deckhouse.io/whole", "pool.gpu.deckhouse.io/slow"},
    "taints": {"slow"},
    "our taints": "slow:PreferNoSchedule",
    "phases": {"n1": "Ready"},
    "said of nodes": {"n1": {"ReadyForPooling"}},
    "members": {"n1": {"whole": 3, "slow": 1}},
    "lists": LISTED,
    "plugins": {"whole", "slow"},
    "reservations": 0,
    "is a device present": "true",
    "is our namespace privileged": True,
    "does the Service lead here": True,
    "does the scheduler trust us": True,
    "are CAs injected": {True},
    "is all ready": True,
}
FULL = {
    **EMPTY,
    "bound": {*full_run.SERVED, "lost", "stolen"},
    "with devices": {*full_run.SERVED, "lost"},
    # A pod is on unknown slices: the node takes no others.
    "pools": {"whole": figures(3, used=3), "slow": figures(64, used=1, unhealthy=63)},
    "said of pools": {pool: {*SERVING, "CapacityLow"} for pool in LISTED},
    "units": {**dict.fromkeys(WHOLE, device(1)), SLICED: device(0, 64)},
}


async def pods_come_and_go(run: ClusterRun) -> None:
    await full_run.pods_come_and_the_lead_goes(run)
    await run.comes_to(FULL)
    for name in FULL["bound"]:
        await run.remove_pod(name)


async def the_run_ends_well(
    folder: Path, faults: list[InjectedError], *scenarios: full_run.Scenario
) -> list[LoggedRequest]:
    """Run the scenarios with these faults; return the requests that the server made."""
    loop = asyncio.get_running_loop()
    unhandled: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    with capture_logs() as logs:
        async with full_run.a_run(folder, *faults) as run:
            for scenario in scenarios:
                await scenario(run)
            await run.comes_to(EMPTY)
            assert not run.server.is_over
        asked = requests_of_ours(run.cluster)
    assert unhandled == []
    assert [log for log in logs if log["log_level"] not in {"debug", "info", "warning"}] == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return asked


async def test_the_run_makes_every_kind_of_request(tmp_path: Path) -> None:
    requests = await the_run_ends_well(
        tmp_path, [], full_run.pods_wait, pods_come_and_go, full_run.what_there_is_changes
    )
    assert {kind_of(request) for request in requests} == {*READS, *WRITES, *WAITING, *CHANGES}
    asked = rights.asked_in(requests)
    # What else operands may have, autoscaling, caches and reviews: test_rights.py, test_pool_scaling_faults.py,
    # test_cache_faults.py, test_usage_page.py, test_config_object.py.
    elsewhere = (
        rights.rights_of_operands() | rights.rights_of_autoscaling() | rights.rights_of_volumes()
    )
    elsewhere |= rights.rights_of_kernel_caches()
    elsewhere |= rights.rights_of_reviews() | rights.rights_of_settings()
    ours = rights.our_rights() - elsewhere
    assert [right for right in ours if not any(rights.allows(right, item) for item in asked)] == []


FAILURES: tuple[tuple[str, int, full_run.Scenario], ...] = (
    *((kind, 1, pods_come_and_go) for kind in (*READS, *WRITES)),
    *((kind, 1, full_run.pods_wait) for kind in WAITING),
    *((kind, 1, full_run.what_there_is_changes) for kind in CHANGES),
    # Two Secrets are made, by two parts of the server: either one's request fails.
    ("POST secrets", 2, pods_come_and_go),
    # Later requests of a kind that are for something else: a device's fault, after the first four devices are
    # well; the device of a node that went; a list in which a device is withheld; marks of a pool that goes; a
    # finalizer that is taken off; the switch to another allocation.
    ("PATCH gpudevices/status by device-health", 5, full_run.what_there_is_changes),
    ("DELETE gpudevices", 2, full_run.what_there_is_changes),
    ("PATCH configmaps by pool-workloads", 3, full_run.what_there_is_changes),
    ("PATCH nodes", 3, full_run.what_there_is_changes),
    ("PATCH gpupools", 5, full_run.what_there_is_changes),
    ("PATCH gpupools/status by pool-life", 6, full_run.what_there_is_changes),
)


IN_EVERY_RUN = frozenset(READS[::9])
"""A list, a watch and a get among them: reads differ by their resource only, which informers do not look at."""


SENT_AT_ONCE = {DISCOVERY: 4}
"""Requests of a kind of which the second attempts come after the first attempts of all: the four kinds of gkm.io."""


def every_failure() -> list[Any]:
    """Return each failure; without `--long` every write fails and a ninth of the reads."""
    return [
        pytest.param(
            kind,
            nth,
            scenario,
            id=kind if nth == 1 else f"{kind} {nth}",
            marks=[pytest.mark.long] if is_read(kind) and kind not in IN_EVERY_RUN else [],
        )
        for kind, nth, scenario in FAILURES
    ]


def is_read(kind: str) -> bool:
    return kind.startswith(("LIST ", "WATCH ", "GET "))


def failing(kind: str, nth: int) -> list[InjectedError]:
    refused = fault_of_kind(kind, Breakage.STATUS, nth=nth)
    if is_read(kind):
        # aiohttp itself asks a second time when a kept-alive connection is cut.
        times = 2 * SENT_AT_ONCE.get(kind, 1)
        return [refused, fault_of_kind(kind, Breakage.RESET_BEFORE, nth=nth, times=times)]
    ways = (Breakage.RESET_BEFORE, Breakage.RESET_AFTER)
    return [refused, *(fault_of_kind(kind, way, nth=nth) for way in ways)]


def codes_of(kind: str, counted: Counted) -> set[str]:
    """Return how requests of this kind ended, as the metrics say."""
    verb, _, remaining = kind.partition(" ")
    expected = ("GET" if verb == "LIST" else verb, remaining.split()[0])
    ends = counted.growth("gpu_api_request_duration_seconds_count")
    return {code for code, *of in ends if tuple(of) == expected}


@pytest.mark.parametrize(("kind", "nth", "scenario"), every_failure())
async def test_everything_comes_to_the_same_end(
    tmp_path: Path, kind: str, nth: int, scenario: full_run.Scenario
) -> None:
    counted = Counted()
    faults = failing(kind, nth)
    await the_run_ends_well(tmp_path, faults, scenario)
    assert [fault.seen >= fault.nth for fault in faults] == [True] * len(faults)
    assert {"500", "Unreachable"} <= codes_of(kind, counted)
