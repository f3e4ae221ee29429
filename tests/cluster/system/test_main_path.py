"""A pod that asks for a pool is admitted, held for, placed, and bound to devices of its own."""

from tests.cluster.environment import pods
from tests.cluster.system.installation import SERVER_USER
from tests.cluster.system.objects import (
    a_container,
    a_deployment,
    a_pod,
    all_bound,
    check_devices,
    devices_of,
    reservation_of,
    units_of,
)


async def test_pods_of_a_deployment_run_each_on_devices_of_its_own(
    make_pool, kubectl, api, namespace, figures
):
    pool = await make_pool(nodes=2, devices=4)
    deployment = a_deployment("train", pool, replicas=4, units=2)
    deployment["metadata"]["namespace"] = namespace
    await kubectl.apply_yaml(deployment)

    await kubectl("rollout", "status", "deployment/train", "-n", namespace, "--timeout=120s")

    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 4))
    assert len(check_devices(found.values())) == 8
    assert {pod["spec"]["nodeName"] for pod in found.values()} == set(pool.nodes)
    for pod in found.values():
        assert pod["metadata"]["labels"]["gpu.deckhouse.io/pool"] == pool.name
        assert pod["spec"]["schedulerName"] == "gpu-scheduler"
        reservation = reservation_of(pod)
        # A pod of a burst may be admitted without units while one before it waits (docs/access.md).
        if "node" in reservation:
            assert (reservation["node"], reservation["devices"]) == (
                pod["spec"]["nodeName"],
                devices_of(pod),
            )
    await figures(pool, total=8, used=8, reserved=0, available=0)

    await kubectl("delete", "deployment", "train", "-n", namespace)
    await figures(pool, used=0, available=8)


async def test_bind_is_one_write_and_no_read_of_a_pod(
    make_pool, system, api, namespace, audit, figures
):
    pool = await make_pool(nodes=2, devices=5)
    before, mark = await system.metrics(), await audit.mark()

    for number in range(10):
        await api.create(pods.collection(namespace), a_pod(f"p-{number}", pool))
    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 10))

    assert len(check_devices(found.values())) == 10
    await figures(pool, used=10)
    writes = await audit.writes(mark, user=SERVER_USER)
    on_pods = [write for write in writes if write.resource.startswith("pods")]
    assert [(write.verb, write.resource, write.status) for write in on_pods] == 10 * [
        ("create", "pods/binding", 201)
    ]
    after = await system.metrics()
    requests = "gpu_api_request_duration_seconds_count"
    assert after.total(requests, method="POST", resource="pods/binding") == 10 + before.total(
        requests, method="POST", resource="pods/binding"
    )
    assert after.total(requests, method="GET", resource="pods") == before.total(
        requests, method="GET", resource="pods"
    )


async def test_two_pools_on_one_node_do_not_mix(make_pool, api, namespace, figures):
    whole = await make_pool(devices=2)
    sliced = await make_pool(devices=2, slices=4, on=whole)
    for number in range(2):
        await api.create(pods.collection(namespace), a_pod(f"whole-{number}", whole))
        await api.create(pods.collection(namespace), a_pod(f"sliced-{number}", sliced, 2))

    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 4))

    check_devices(found.values())
    assert all(
        "::" not in unit for name in found if "whole" in name for unit in units_of(found[name])
    )
    assert all("::" in unit for name in found if "sliced" in name for unit in units_of(found[name]))
    await figures(whole, used=2, available=0)
    await figures(sliced, used=4, available=4)


async def test_slices_of_one_container_lie_on_distinct_devices(make_pool, api, namespace):
    pool = await make_pool(devices=3, slices=4)
    await api.create(pods.collection(namespace), a_pod("notebook", pool, 3))

    pod = await pods.wait_for_pod(api, namespace, "notebook")

    assert len({unit.split("::")[0] for unit in units_of(pod)}) == 3


async def test_instances_of_the_profile_of_a_mig_pool_are_given_out(
    make_pool, api, namespace, figures
):
    pool = await make_pool(devices=2, mig_profiles=("1g.18gb", "1g.18gb", "3g.71gb"))
    for number in range(2):
        await api.create(pods.collection(namespace), a_pod(f"p-{number}", pool, 2))

    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 2))

    given = check_devices(found.values())
    (node,) = pool.nodes
    assert sorted(given) == [
        f"MIG-{node}-{device}-{number}" for device in (0, 1) for number in (0, 1)
    ]
    await figures(pool, total=4, used=4)


async def test_each_container_has_its_own_devices_and_an_init_container_shares_them(
    make_pool, api, namespace, figures
):
    pool = await make_pool(devices=6)
    pod = a_pod("pipeline", pool)
    pod["spec"]["containers"] = [
        a_container("load", pool, 1),
        a_container("infer", pool, 2),
        a_container("log", pool, 0),
    ]
    pod["spec"]["initContainers"] = [
        a_container("warm-up", pool, 2),
        a_container("sidecar", pool, 1, restartPolicy="Always"),
    ]
    await api.create(pods.collection(namespace), pod)

    bound = await pods.wait_for_pod(api, namespace, "pipeline")

    given = devices_of(bound)
    assert {name: len(units) for name, units in given.items()} == {
        "warm-up": 2,
        "sidecar": 1,
        "load": 1,
        "infer": 2,
    }
    check_devices([bound])
    running = given["sidecar"] + given["load"] + given["infer"]
    assert len(set(running)) == 4
    assert set(given["warm-up"]) <= set(running)
    await figures(pool, used=4, available=2)


async def test_pod_that_names_no_pool_goes_the_ordinary_way(system, api, namespace):
    before = await system.metrics()
    await api.create(pods.collection(namespace), pods.a_pod("plain", limits={"cpu": 1}))
    stored = await api.get(f"{pods.collection(namespace)}/plain")
    after = await system.metrics()

    assert stored["spec"]["schedulerName"] == "default-scheduler"
    assert "labels" not in stored["metadata"]
    # Of pods: pools of tests before this one may still be on their way out.
    calls = "gpu_admission_duration_seconds_count"
    for webhook in ("mutate-pods", "validate-pods"):
        assert before.total(calls, webhook=webhook) == after.total(calls, webhook=webhook)
