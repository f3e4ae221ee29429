"""A reservation ends when its pod is never stored, or not scheduled in time, and its units go to others."""

import contextlib
import json

import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.objects import a_container, a_pod, check_devices, reservation_of
from tests.cluster.system.other_webhooks import append_container, inject_sidecar, reject, webhook

UNSCHEDULABLE = {"cpu": "1000"}
SHORT = {"ttl": "5s"}


@contextlib.asynccontextmanager
async def quota(api, namespace, pool, _control_plane):
    """One unit of the pool for the whole namespace."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {f"requests.{pool.resource}": "1"}
    await api.create(path, {"metadata": {"name": "gpu"}, "spec": {"hard": hard}})

    async def is_counted() -> bool:
        found = await api.get(f"{path}/gpu")
        return bool(found.get("status", {}).get("hard") == hard)

    await polling.eventually(is_counted, what="quota counted by its controller")
    yield
    await api.delete(f"{path}/gpu")


@contextlib.asynccontextmanager
async def rejecting_webhook(_api, namespace, _pool, control_plane):
    async with webhook(
        control_plane, kind="Validating", name="rejecting", namespace=namespace, decide=reject
    ):
        yield


@contextlib.asynccontextmanager
async def pod_of_that_name(api, namespace, _pool, _control_plane):
    await api.create(pods.collection(namespace), pods.a_pod("refused"))
    yield


@pytest.mark.parametrize(
    ("obstacle", "status", "words"),
    [
        pytest.param(quota, 403, "exceeded quota", id="quota"),
        pytest.param(rejecting_webhook, 403, "not on my watch", id="another webhook"),
        pytest.param(pod_of_that_name, 409, "already exists", id="name conflict"),
    ],
)
async def test_reservation_of_a_pod_that_is_never_stored_is_given_to_another(
    obstacle, status, words, make_pool, system, control_plane, api, namespace, figures
):
    pool = await make_pool(devices=2)
    before = await system.metrics()
    async with obstacle(api, namespace, pool, control_plane):
        with pytest.raises(client.ApiRefusedError, match=words) as refused:
            await api.create(pods.collection(namespace), a_pod("refused", pool, 2))
        assert refused.value.status == status
    await figures(pool, reserved=0, available=2)
    await api.create(pods.collection(namespace), a_pod("next", pool, 2))

    bound = await pods.wait_for_pod(api, namespace, "next")

    assert len(check_devices([bound])) == 2
    ended = "gpu_reservations_ended_total"
    after = await system.metrics()
    grown = {
        end: after.total(ended, end=end) - before.total(ended, end=end)
        for end in ("taken_over", "not_observed")
    }
    # The next pod does not wait until the watch is given up on; on a busy machine it may come later.
    assert sum(grown.values()) == 1
    await figures(pool, used=2, reserved=0)


async def test_dry_run_reserves_nothing_and_says_what_would_be(
    make_pool, system, api, kubectl, namespace, figures
):
    pool = await make_pool(devices=2)
    ended = "gpu_reservations_ended_total"
    before = (await system.metrics()).total(ended)
    pod = a_pod("dry", pool, 2)
    pod["metadata"]["namespace"] = namespace

    done = await kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))

    assert done.stdout == "pod/dry created (server dry run)\n"
    await api.create(pods.collection(namespace), a_pod("real", pool, 2))
    stored = await api.get(f"{pods.collection(namespace)}/real")
    assert len(reservation_of(stored)["devices"]["main"]) == 2
    await pods.wait_for_pod(api, namespace, "real", pods.is_running)
    await figures(pool, used=2, reserved=0)
    again = await kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    assert f"Warning: the pod waits: GPU pool {pool.name} has 0 of 2 free" in again.stderr
    after = await system.metrics()
    assert after.total(ended) == before + 1
    await figures(pool, used=2, reserved=0)


async def test_pods_with_generated_names_have_a_reservation_each(
    make_pool, system, api, namespace, figures
):
    pool = await make_pool(devices=3)
    before = await system.metrics()
    for _ in range(3):
        await api.create(pods.collection(namespace), a_pod("job-", pool))

    found = await pods.wait_for_pods(
        api, namespace, lambda found: len(found) == 3 and all(map(pods.is_bound, found.values()))
    )

    assert len(check_devices(found.values())) == 3
    await figures(pool, used=3, reserved=0)
    ended = "gpu_reservations_ended_total"
    after = await system.metrics()
    assert after.total(ended, end="bound") == before.total(ended, end="bound") + 3


@pytest.mark.parametrize("name", ["aa-injector", "zzz-injector"])
async def test_sidecar_injected_before_or_after_us_leaves_one_reservation(
    name, make_pool, system, control_plane, api, namespace, figures
):
    pool = await make_pool(devices=4)
    before = await system.metrics()
    async with webhook(
        control_plane, kind="Mutating", name=name, namespace=namespace, decide=inject_sidecar
    ):
        await api.create(pods.collection(namespace), a_pod("meshed", pool, 2))

    bound = await pods.wait_for_pod(api, namespace, "meshed")

    names = [container["name"] for container in bound["spec"]["containers"]]
    assert names == ["main", "injected"]
    check_devices([bound])
    await figures(pool, used=2, reserved=0)
    ended = "gpu_reservations_ended_total"
    after = await system.metrics()
    assert after.total(ended) == before.total(ended) + 1
    assert after.total(ended, end="bound") == before.total(ended, end="bound") + 1


async def test_pool_resource_added_by_a_later_webhook_is_refused(
    make_pool, control_plane, api, namespace
):
    pool = await make_pool(devices=1)
    limits = {pool.resource: "1"}
    resources = {"resources": {"limits": limits, "requests": limits}}

    def add_units(pod: client.JsonObject):
        return append_container(pod, a_container("injected", pool, 1) | resources)

    async with webhook(
        control_plane, kind="Mutating", name="zzz-adder", namespace=namespace, decide=add_units
    ):
        with pytest.raises(client.ApiRefusedError, match="did not pass the GPU control plane"):
            await api.create(pods.collection(namespace), pods.a_pod("plain"))
