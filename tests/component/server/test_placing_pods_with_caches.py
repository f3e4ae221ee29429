"""The extender over HTTPS for pods that mount kernel caches: refusals, warmth, and what is counted."""

from typing import Any

from kernelcache.cache_index import CacheIndex
from manifests.constants import BIND_PATH, FILTER_PATH, PRIORITIZE_PATH
from tests.support.builders import a_device, a_node
from tests.support.cache_demands import LLAMA, a_resolved_cache, mounting, set_warm
from tests.support.scheduling import a_wire_pod, binding_args, extender_args
from tests.support.served_app import ServedApp, sample

NODES = ("old", "cold", "warm")


def with_caches(served: ServedApp) -> CacheIndex:
    caches, index = CacheIndex(), served.extender_setup.allocation_state.index
    index.caches = caches
    for node, capability in zip(NODES, ("8.0", "9.0", "9.0"), strict=True):
        index.replace_node(a_node(node))
        for number in range(2):
            index.replace_device(a_device(node, number, compute_capability=capability))
    caches.set_cache(LLAMA, a_resolved_cache(90))
    set_warm(caches, {LLAMA: ["warm"]})
    return caches


def a_pod(name: str = "p") -> dict[str, Any]:
    return mounting(a_wire_pod(name, whole=1), LLAMA)


async def test_a_pod_goes_to_a_warm_node_whose_devices_fit_and_is_counted(
    scheduler: ServedApp,
) -> None:
    with_caches(scheduler)
    filtered = (await scheduler.post(FILTER_PATH, extender_args(a_pod(), *NODES))).json
    assert filtered["NodeNames"] == ["cold", "warm"]
    assert filtered["FailedAndUnresolvableNodes"] == {
        "old": "GPU pool whole: kernel cache GKMCache default/llama fits no device of the pool on this node:"
        " arch 90 of the cache, device has 80"
    }
    scored = (await scheduler.post(PRIORITIZE_PATH, extender_args(a_pod(), "cold", "warm"))).json
    scores = {item["Host"]: item["Score"] for item in scored}
    assert scores["warm"] == scores["cold"] + 2
    for name, node in (("p", "warm"), ("q", "cold")):
        await scheduler.post(FILTER_PATH, extender_args(a_pod(name), *NODES))
        before = {
            item: sample("gpu_kernel_cache_placements_total", warmth=item)
            for item in ("warm", "cold")
        }
        reply = await scheduler.post(BIND_PATH, binding_args(name, node))
        assert reply.json == {"Error": ""}
        before[node] += 1
        after = {
            item: sample("gpu_kernel_cache_placements_total", warmth=item)
            for item in ("warm", "cold")
        }
        assert after == before


async def test_a_pod_without_a_cache_goes_anywhere_and_is_not_counted(
    scheduler: ServedApp,
) -> None:
    with_caches(scheduler)
    pod = extender_args(a_wire_pod(whole=1), *NODES)
    assert (await scheduler.post(FILTER_PATH, pod)).json["NodeNames"] == list(NODES)
    counted = [
        sample("gpu_kernel_cache_placements_total", warmth=item) for item in ("warm", "cold")
    ]
    assert (await scheduler.post(BIND_PATH, binding_args("p", "old"))).json == {"Error": ""}
    assert counted == [
        sample("gpu_kernel_cache_placements_total", warmth=item) for item in ("warm", "cold")
    ]


async def test_bind_refuses_a_node_whose_devices_do_not_fit(scheduler: ServedApp) -> None:
    """Another kube-scheduler, or a profile without our filter, may choose it."""
    with_caches(scheduler)
    await scheduler.post(FILTER_PATH, extender_args(a_pod(), *NODES))
    reply = await scheduler.post(BIND_PATH, binding_args("p", "old"))
    assert "fits no device of the pool on this node" in reply.json["Error"]
    assert scheduler.extender_setup.binder.bindings == []
