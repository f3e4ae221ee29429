"""An uninstall whose requests fail, or that is killed: the next attempt ends where an undisturbed one does."""

from collections import Counter
from typing import Any

import pytest

from cli.uninstall.removal import RemovalError
from kube.client import KubeClient
from simulator.apiserver.injection import ErrorInjection
from tests.component.uninstall.installed_cluster import InstalledCluster, an_installed_cluster
from tests.support.client_of_api import a_client

pytestmark = pytest.mark.looptime

Json = dict[str, Any]


def what_is_left(cluster: InstalledCluster) -> dict[str, Json]:
    """Return the world without what differs from cluster to cluster."""
    world = cluster.world()
    for key, body in world.items():
        for volatile in ("uid", "creationTimestamp"):
            body["metadata"].pop(volatile, None)
        if key.startswith("CustomResourceDefinition "):
            body.pop("status")
    return world


async def undisturbed() -> tuple[list[tuple[str, str]], dict[str, Json]]:
    async with an_installed_cluster() as cluster:
        await cluster.removal().run()
        writes = [(write.method, write.path) for write in cluster.api.requests.writes()]
        return list(dict.fromkeys(writes)), what_is_left(cluster)


def inject(faults: ErrorInjection, way: str, method: str, path: str) -> None:
    if way == "reset before":
        faults.reset_before(method, f"^{path}$")
    elif way == "reset after":
        faults.reset_after(method, f"^{path}$")
    else:
        faults.fail(method, f"^{path}$", int(way))


@pytest.mark.parametrize("way", ["409", "503", "reset before", "reset after"])
async def test_every_write_may_fail_once(way: str):
    writes, expected = await undisturbed()
    async with an_installed_cluster() as cluster:
        for method, path in writes:
            inject(cluster.api.faults, way, method, path)
        await cluster.removal(timeout_s=3600).run()
        assert what_is_left(cluster) == expected
        hit = [rule for rule in cluster.api.faults if rule.seen]
        assert len(hit) >= len(writes) - 1  # the review of rights is asked once, or not at all


async def test_every_read_of_later_surveys_may_fail_once():
    _, expected = await undisturbed()
    async with an_installed_cluster() as cluster:
        await cluster.removal(is_dry_run=True).run()
        reads = Counter(request.path for request in cluster.api.requests if request.method == "GET")
        del reads["/apis/authorization.k8s.io/v1"]  # the review of rights is asked once
        for path, count in reads.items():
            # An error in the first survey ends the command.
            cluster.api.faults.fail("GET", f"^{path}$", 500, nth=count + 1)
        await cluster.removal(timeout_s=3600).run()
        assert what_is_left(cluster) == expected
        assert all(rule.seen >= rule.nth for rule in cluster.api.faults)


class KilledError(BaseException):
    """The process is gone: nothing of it runs any more."""


class KilledClient:
    """A client whose process is killed right after its nth write was carried out."""

    def __init__(self, client: KubeClient, nth: int) -> None:
        self._client = client
        self._left = nth

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._client, name)
        if name not in {"delete", "merge_patch", "replace"}:
            return verb

        async def write(*args: Any, **kwargs: Any) -> Any:
            answer = await verb(*args, **kwargs)
            self._left -= 1
            if self._left == 0:
                raise KilledError
            return answer

        return write


@pytest.mark.parametrize("nth", [1, 5], ids=lambda nth: f"after write {nth} of each run")
async def test_runs_that_are_killed_complete_each_other(nth: int):
    _, expected = await undisturbed()
    async with an_installed_cluster() as cluster:
        kills = 0
        while await is_killed(cluster, nth):
            kills += 1
        assert what_is_left(cluster) == expected
        assert kills > 40 // nth


async def is_killed(cluster: InstalledCluster, nth: int) -> bool:
    client: Any = KilledClient(cluster.client, nth)
    killed = False
    try:
        await cluster.removal(client).run()
    except* KilledError:  # in a group where it is one of the tasks that patch nodes
        killed = True
    return killed


async def test_write_that_is_forbidden_is_named_in_one_line():
    async with an_installed_cluster() as cluster:
        cluster.api.faults.fail("PATCH", "/gpupools/training$", 403)
        with pytest.raises(RemovalError, match="not everything was removed: ") as refused:
            await cluster.removal().run()
        assert "\n" not in str(refused.value)
        await cluster.removal().run()
        _, expected = await undisturbed()
        assert what_is_left(cluster) == expected


async def test_list_that_is_forbidden_leaves_all_as_it_was():
    async with an_installed_cluster() as cluster:
        before = cluster.world()
        cluster.api.faults.fail("GET", "/nodes$", 403)
        with pytest.raises(RemovalError, match=r"^nothing was removed: "):
            await cluster.removal().run()
        assert cluster.world() == before


@pytest.mark.parametrize(
    "what",
    [
        *("gpupools", "deployments", "nodefeatures", "leases/gpu-control-plane"),
        *("namespaces/gpu-control-plane", "gpucontrolplaneterms/gpu-control-plane"),
        *("secrets/gpu-control-plane-tls", "mutatingwebhookconfigurations/zz-gpu-control-plane"),
    ],
)
async def test_one_404_that_names_no_object_leaves_all_as_it_was(what: str):
    """A proxy answers so, and an API server that starts."""
    async with an_installed_cluster() as cluster:
        before = cluster.world()
        cluster.api.faults.fail("GET", f"/{what}$", 404)
        with pytest.raises(RemovalError, match=r"^nothing was removed: "):
            await cluster.removal().run()
        assert cluster.world() == before


@pytest.mark.parametrize(
    ("method", "path", "nth"),
    [("DELETE", "/secrets/gpu-control-plane-tls$", 1), ("GET", "/leases/gpu-control-plane$", 3)],
    ids=["deletion", "hold"],
)
async def test_a_write_that_no_api_server_answered_is_not_taken_for_done(
    method: str, path: str, nth: int
):
    _, expected = await undisturbed()
    async with an_installed_cluster() as cluster:
        cluster.api.faults.fail(method, path, 404, nth=nth)
        with pytest.raises(RemovalError, match=r"^not everything was removed: 404"):
            await cluster.removal().run()
        await cluster.removal().run()
        assert what_is_left(cluster) == expected


async def test_api_server_that_is_away_is_one_line():
    async with an_installed_cluster() as cluster:
        cluster.api.faults.reset_before("", "", times=10_000)
        with pytest.raises(RemovalError, match=r"^nothing was removed: ") as refused:
            await cluster.removal().run()
        assert "\n" not in str(refused.value)


async def test_api_server_that_goes_away_ends_the_command_in_time():
    async with an_installed_cluster() as cluster:
        cluster.api.faults.fail("DELETE", "", 503, nth=5, times=10_000)
        began = cluster.clock.monotonic()
        with pytest.raises(
            RemovalError, match=r"left after 30 s, first .*; 503 .*; run the command"
        ):
            await cluster.removal(timeout_s=30).run()
        assert cluster.clock.monotonic() - began < 60


async def test_request_that_nobody_answers_does_not_hang_for_ever():
    async with an_installed_cluster() as cluster:
        async with a_client(
            cluster.api, cluster.clock, timeout_s=2.0, list_timeout_s=2.0
        ) as client:
            cluster.api.faults.delay("DELETE", "/secrets/", 1e6, times=10_000)
            with pytest.raises(RemovalError, match="run the command again"):
                await cluster.removal(client, timeout_s=30).run()
        cluster.api.faults.clear()
