"""The extender's verbs for pods that mount kernel caches."""

import json
from typing import Any

from api.annotations import decode_devices
from api.cache_name import CacheName
from api.kinds.gpupool import Strategy
from api.names import DEVICES_ANNOTATION, NodeName
from kernelcache.cache_index import CacheIndex
from pool.model import Constraints, PodFacts
from pool.placement.fragmentation.placement_costs import PlacementCosts
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload
from scheduler.extender import bind, filter_nodes, preempt, prioritize
from scheduler.outcome import Warmth
from tests.support.builders import a_demand, a_device, a_node, a_pool
from tests.support.cache_demands import LLAMA, SHARED, a_resolved_cache, mounting, set_warm
from tests.support.scheduling import (
    ExtenderSetup,
    a_wire_pod,
    binding_args,
    extender_args,
    preemption_args,
)

TEXT = (
    "GPU pool whole: kernel cache GKMCache default/llama fits no device of the pool on this node:"
    " arch 90 of the cache, device has 80"
)


def a_setup(
    strategy: Strategy = Strategy.BIN_PACK, **nodes: tuple[str, ...]
) -> tuple[ExtenderSetup, CacheIndex]:
    """Nodes with devices of these capabilities, and cache llama for 90."""
    setup, caches = ExtenderSetup().pool(a_pool(strategy=strategy)), CacheIndex()
    index = setup.allocation_state.index
    index.caches = caches
    for node, capabilities in nodes.items():
        index.replace_node(a_node(node))
        for number, capability in enumerate(capabilities):
            index.replace_device(a_device(node, number, compute_capability=capability))
    caches.set_cache(LLAMA, a_resolved_cache(90))
    return setup, caches


def a_pod(name: str = "p", units: int = 1, *caches: CacheName) -> dict[str, Any]:
    return mounting(a_wire_pod(name, whole=units), *(caches or (LLAMA,)))


def a_pending_pod(setup: ExtenderSetup, name: str = "p", units: int = 1, **facts: Any) -> PodFacts:
    """The watch shows a pod that mounts llama."""
    demand = a_demand(units)
    return setup.pending(
        name,
        units,
        demand=type(demand)(demand.resource, demand.containers, units, (LLAMA,)),
        **facts,
    )


def filtered(setup: ExtenderSetup, pod: dict[str, Any], *names: str) -> Any:
    return json.loads(filter_nodes(extender_args(pod, *names), setup.context).body)


def scores(setup: ExtenderSetup, pod: dict[str, Any], *names: str) -> dict[str, int]:
    reply = json.loads(prioritize(extender_args(pod, *names), setup.context).body)
    return {item["Host"]: item["Score"] for item in reply}


def test_nodes_without_a_fitting_device_are_refused_and_no_eviction_helps_there():
    setup, _ = a_setup(old=("8.0", "8.0"), new=("9.0", "9.0"), mixed=("8.0", "9.0"))
    names = ("old", "new", "mixed")
    reply = filtered(setup, a_pod(), *names)
    assert reply["NodeNames"] == ["new", "mixed"]
    assert reply["FailedAndUnresolvableNodes"] == {"old": TEXT}
    assert reply["FailedNodes"] == {}
    assert filtered(setup, a_wire_pod("q", whole=1), *names)["NodeNames"] == list(names)


def test_nodes_with_too_few_free_fitting_devices_are_told_from_those_that_never_have_enough():
    setup, _ = a_setup(full=("9.0", "9.0", "8.0"), small=("9.0", "8.0"), free=("9.0", "9.0"))
    setup.bound("a", "full", "GPU-full-0")
    reply = filtered(setup, a_pod("p", 2), "full", "small", "free")
    assert reply["NodeNames"] == ["free"]
    assert list(reply["FailedNodes"]) == ["full"]
    assert list(reply["FailedAndUnresolvableNodes"]) == ["small"]


def test_an_unknown_cache_demands_nothing_and_one_that_is_resolved_later_counts_from_then_on():
    setup, caches = a_setup(old=("8.0",))
    caches.set_cache(LLAMA, None)
    assert filtered(setup, a_pod(), "old")["NodeNames"] == ["old"]
    caches.set_cache(LLAMA, a_resolved_cache(90))
    assert filtered(setup, a_pod(), "old")["FailedAndUnresolvableNodes"] == {"old": TEXT}
    caches.set_cache(LLAMA, a_resolved_cache(80, 90))
    assert filtered(setup, a_pod(), "old")["NodeNames"] == ["old"]


def test_a_cache_of_another_namespace_demands_nothing():
    setup, caches = a_setup(old=("8.0",))
    other = CacheName(namespace="other", name="llama")
    caches.set_cache(other, a_resolved_cache(90))
    assert filtered(setup, a_pod("p", 1, other), "old")["NodeNames"] == ["old"]


def test_warm_nodes_come_before_cold_ones_by_their_share_of_the_score():
    """7 of 9 by the strategy, 2 for warmth."""
    setup, caches = a_setup(n1=("9.0",) * 4, n2=("9.0",) * 4, n3=("9.0",) * 4)
    setup.bound("a", "n1", "GPU-n1-0", "GPU-n1-1")
    names = ("n1", "n2", "n3")
    assert scores(setup, a_wire_pod(whole=1), *names) == {"n1": 6, "n2": 2, "n3": 2}
    assert scores(setup, a_pod(), *names) == {"n1": 4, "n2": 1, "n3": 1}
    set_warm(caches, {LLAMA: ["n1", "n2"]})
    assert scores(setup, a_pod(), *names) == {"n1": 6, "n2": 3, "n3": 1}
    assert scores(setup, a_wire_pod(whole=1), *names) == {"n1": 6, "n2": 2, "n3": 2}


def test_a_node_is_warm_for_a_pod_that_finds_all_of_its_caches_there():
    setup, caches = a_setup(n1=("9.0",), n2=("9.0",))
    caches.set_cache(SHARED, a_resolved_cache(90))
    set_warm(caches, {LLAMA: ["n1", "n2"], SHARED: ["n2"]})
    assert scores(setup, a_pod("p", 1, LLAMA, SHARED), "n1", "n2") == {"n1": 7, "n2": 9}


def test_the_one_best_node_by_least_fragmentation_is_the_warm_one_where_it_scores_as_high():
    setup, caches = a_setup(
        Strategy.LEAST_FRAGMENTATION, n1=("9.0",) * 4, n2=("9.0",) * 5, n3=("9.0",) * 4
    )
    target = TargetWorkload(((TargetShape(0, 1000, 1), 8.0), (TargetShape(0, 1000, 4), 1.0)))
    setup.allocation_state.index.rank(
        PlacementCosts(a_pool(strategy=Strategy.LEAST_FRAGMENTATION), target)
    )
    names = ("n1", "n2", "n3")
    cold = scores(setup, a_pod(), *names)
    assert [name for name, score in cold.items() if score == 10] == ["n2"]
    set_warm(caches, {LLAMA: ["n3"]})
    assert scores(setup, a_pod(), *names) == {"n1": 4, "n2": 3, "n3": 10}


def test_the_node_of_the_pods_own_reservation_passes_alone_while_its_cache_fits_there():
    setup, caches = a_setup(n1=("9.0",), n2=("9.0",))
    setup.reserve("p", 1, "n1")
    set_warm(caches, {LLAMA: ["n2"]})
    assert filtered(setup, a_pod(), "n1", "n2")["NodeNames"] == ["n1"]
    assert scores(setup, a_pod(), "n1", "n2") == {"n1": 10, "n2": 9}
    caches.set_cache(LLAMA, a_resolved_cache(80))
    assert filtered(setup, a_pod(), "n1", "n2")["NodeNames"] == []


async def test_bind_names_devices_that_fit_and_says_whether_the_node_was_warm():
    setup, caches = a_setup(n1=("8.0", "9.0"), n2=("8.0", "9.0"))
    set_warm(caches, {LLAMA: ["n2"]})
    for name, node, warmth in (("p", "n1", Warmth.COLD), ("q", "n2", Warmth.WARM)):
        a_pending_pod(setup, name)
        answer = await bind(binding_args(name, node), setup.context)
        assert json.loads(answer.body) == {"Error": ""}
        assert answer.bound is not None
        assert answer.bound.warmth is warmth
        assert answer.facts["warmth"] == warmth.value
        devices = decode_devices(setup.binder.bindings[-1].annotations[DEVICES_ANNOTATION])
        assert devices == {"c0": (f"GPU-{node}-1",)}
    a_pending_pod(setup, "r")
    answer = await bind(binding_args("r", "n1"), setup.context)
    assert json.loads(answer.body)["Error"] == (
        "GPU pool whole: 1 requested, 0 free (0 used, 1 reserved of 1) on the devices of the pool on this node that kernel cache"
        " GKMCache default/llama fits: arch 90 of the cache, device has 80"
    )


async def test_bind_goes_by_the_pod_that_filter_saw():
    setup, _ = a_setup(n1=("8.0", "9.0"))
    filtered(setup, a_pod(), "n1")
    answer = await bind(binding_args(), setup.context)
    assert answer.outcome == "bound"
    devices = decode_devices(setup.binder.bindings[0].annotations[DEVICES_ANNOTATION])
    assert devices == {"c0": ("GPU-n1-1",)}


async def test_a_pod_without_caches_counts_neither_as_warm_nor_as_cold():
    setup, _ = a_setup(n1=("9.0",))
    setup.pending()
    answer = await bind(binding_args(), setup.context)
    assert answer.bound is not None
    assert answer.bound.warmth is None


def kept(setup: ExtenderSetup, pod: dict[str, Any], **victims: list[str]) -> Any:
    answer = preempt(preemption_args(pod, **victims), setup.context)
    return json.loads(answer.body)["NodeNameToMetaVictims"]


def test_only_victims_on_devices_that_fit_make_room():
    setup, _ = a_setup(n1=("8.0", "9.0"), n2=("8.0", "9.0"), old=("8.0",))
    for node in ("n1", "n2"):
        setup.bound(f"{node}-8", node, f"GPU-{node}-0")
        setup.bound(f"{node}-9", node, f"GPU-{node}-1")
    setup.bound("old-8", "old", "GPU-old-0")
    reply = kept(setup, a_pod(), n1=["uid-n1-8"], n2=["uid-n2-9"], old=["uid-old-8"])
    assert list(reply) == ["n2"]


def test_a_further_victim_is_found_where_kube_scheduler_proposed_one_on_a_device_that_does_not_fit():
    setup, _ = a_setup(n1=("8.0", "9.0"))
    setup.bound("a", "n1", "GPU-n1-0")
    setup.bound("b", "n1", "GPU-n1-1")
    a_pending_pod(setup, "p", priority=10)
    reply = kept(setup, a_pod(), n1=["uid-a"])
    assert reply == {"n1": {"Pods": [{"UID": "uid-a"}, {"UID": "uid-b"}], "NumPDBViolations": 1}}


def test_a_waiting_pod_that_is_nominated_gets_a_device_that_fits():
    setup, _ = a_setup(n1=("8.0", "9.0"))
    facts = a_pending_pod(setup)
    state = setup.allocation_state
    pool = state.index.pools()[0]
    planned = state.reader.admission.plan_stored(pool, facts, Constraints(), ahead={}, now=0)
    assert planned is not None
    assert (planned.node, planned.devices) == (NodeName("n1"), {"c0": ("GPU-n1-1",)})
