"""Reservations at admission for pods that mount kernel caches."""

import json
from typing import Any

from admission.webhooks import mutate_pod, validate_pod
from api.annotations import decode_reservation
from api.cache_name import CacheName
from kernelcache.cache_index import CacheIndex
from tests.support.builders import a_device, a_node
from tests.support.cache_demands import LLAMA, a_cache_volume, a_resolved_cache, set_warm
from tests.support.reviews import AdmissionSetup, Reply, a_pod_object, stored

RESERVATION = "gpu.deckhouse.io/reservation"
SHAPES = {"shapes": [{"name": "two", "devices": 2}]}


def a_setup(*nodes: tuple[str, ...], **spec: Any) -> tuple[AdmissionSetup, CacheIndex]:
    """Nodes n0, n1 with devices of these capabilities."""
    setup, caches = AdmissionSetup(), CacheIndex()
    setup.add_pool(**spec)
    index = setup.allocation_state.index
    index.caches = caches
    for number, capabilities in enumerate(nodes):
        index.replace_node(a_node(f"n{number}"))
        for position, capability in enumerate(capabilities):
            index.replace_device(a_device(f"n{number}", position, compute_capability=capability))
    return setup, caches


def a_pod(units: int = 1) -> dict[str, Any]:
    namespace = a_pod_object(units)["metadata"]["namespace"]
    volume = a_cache_volume(LLAMA, {"csi.gkm.io/namespace": namespace})
    return a_pod_object(units, spec={"volumes": [volume]})


def note_of(reply: Reply, pod: dict[str, Any]) -> Any:
    return decode_reservation(reply.applied_to(pod)["metadata"]["annotations"][RESERVATION])


def add_cache_of_the_pods_namespace(caches: CacheIndex, *archs: int) -> CacheName:
    name = CacheName(namespace=a_pod()["metadata"]["namespace"], name="llama")
    caches.set_cache(name, a_resolved_cache(*archs))
    return name


def test_units_are_reserved_on_devices_that_fit():
    setup, caches = a_setup(("8.0", "9.0"), ("8.0", "9.0"))
    add_cache_of_the_pods_namespace(caches, 90)
    pod = a_pod()
    assert note_of(setup.ask(mutate_pod, pod), pod).devices == {"main": ("GPU-n0-1",)}


def test_the_warm_node_goes_before_the_first_one():
    setup, caches = a_setup(("8.0", "9.0"), ("8.0", "9.0"))
    set_warm(caches, {add_cache_of_the_pods_namespace(caches, 90): ["n1"]})
    pod = a_pod()
    reply = setup.ask(mutate_pod, pod)
    assert note_of(reply, pod).devices == {"main": ("GPU-n1-1",)}
    assert setup.ask(validate_pod, stored(reply.applied_to(pod))).allowed


def test_a_pod_whose_cache_fits_no_device_waits_and_is_told_why():
    setup, caches = a_setup(("8.0",))
    add_cache_of_the_pods_namespace(caches, 90)
    reply = setup.ask(mutate_pod, a_pod())
    namespace = a_pod()["metadata"]["namespace"]
    assert reply.warnings == [
        f"the pod waits: kernel cache GKMCache {namespace}/llama fits no device of GPU pool whole:"
        " arch 90 of the cache, device has 80"
    ]
    assert not note_of(reply, a_pod()).node


def test_a_pool_that_refuses_waiting_pods_says_that_the_cache_does_not_fit():
    setup, caches = a_setup(("8.0",), reservation={"ttl": "60s", "whenExhausted": "Reject"})
    add_cache_of_the_pods_namespace(caches, 90)
    reply = setup.ask(mutate_pod, a_pod())
    assert not reply.allowed
    namespace = a_pod()["metadata"]["namespace"]
    assert reply.message == (
        f"InsufficientCapacity: kernel cache GKMCache {namespace}/llama fits no device of pool whole: arch 90 of the"
        " cache, device has 80; use another pool, or an image with kernels for these devices (the pool refuses pods"
        " that would have to wait)"
    )


def test_capacity_is_awaited_for_a_pod_that_fits_no_device_which_the_pool_has():
    """A shape may have others: the planner knows which do."""
    for capabilities in (("8.0",), ("9.0",), ()):
        setup, caches = a_setup(capabilities, autoscaling=SHAPES)
        add_cache_of_the_pods_namespace(caches, 90)
        pod = a_pod(2)
        gates = setup.ask(mutate_pod, pod).applied_to(pod)["spec"].get("schedulingGates")
        assert gates, json.dumps(capabilities)
