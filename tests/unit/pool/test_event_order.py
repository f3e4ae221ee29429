"""Events of different objects come in any order, and twice: the end is the same.

Pods end before they are gone, as kubelet shows them. A pod that is deleted by force keeps units only if it was observed
and reported before, so there the order matters (`test_deleted_pods.py`).
"""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpunodeinventory import ContainerDevices
from api.names import NodeName, PoolName
from pool.allocation_state import AllocationState
from pool.model import PodPhase
from tests.support.allocation_state import a_bound_pod, uid_of
from tests.support.builders import a_demand, a_device, a_node, a_pool, a_slice_pool, at

NODES = ("n1", "n2")
POOLS = ("a", "b")
UNITS = [f"G{n}{cut}" for n in range(4) for cut in ("", "::0", "::1")]

Event = tuple[str, Any]
"""Kind, and facts or the name of what is gone."""


def apply(event: Event, allocation_state: AllocationState) -> None:
    match event:
        case ("pod", facts):
            allocation_state.observe_pod(facts, at(0))
        case ("report", (node, units_by_pod)):
            allocation_state.observe_reports(
                node, {uid_of(name): units for name, units in units_by_pod.items()}
            )
        case ("no pod", name):
            observed = allocation_state.reader.pods.get(uid_of(name))
            if observed is not None:
                allocation_state.observe_pod(replace(observed, phase=PodPhase.ENDED), at(0))
            allocation_state.discard_pod(uid_of(name))
        case (kind, facts):
            verb = "discard_" if isinstance(facts, str) else "replace_"
            getattr(allocation_state.index, verb + kind)(facts)


def device(name: str) -> st.SearchStrategy[Event]:
    facts = st.builds(
        a_device,
        st.sampled_from(NODES),
        pool=st.sampled_from([*POOLS, None]),
        name=st.just(name),
        uuid=st.sampled_from(["G0", "G1", f"G{name[1:]}", ""]),
        is_faulted=st.booleans(),
    )
    return st.tuples(st.just("device"), st.just(name) | facts)


def pool(name: str) -> st.SearchStrategy[Event]:
    whole = st.builds(a_pool, st.just(name), resource=st.sampled_from(["r", "s"]))
    sliced = st.builds(a_slice_pool, st.just(name), st.integers(2, 3), resource=st.just("r"))
    return st.tuples(st.just("pool"), st.just(name) | whole | sliced)


def node(name: str) -> st.SearchStrategy[Event]:
    facts = st.builds(a_node, st.just(name), is_ready=st.booleans())
    return st.tuples(st.just("node"), st.just(name) | facts)


def pod(name: str) -> st.SearchStrategy[Event]:
    units = st.none() | st.lists(st.sampled_from(UNITS), max_size=2).map(lambda item: {"c0": item})
    facts = st.builds(
        lambda where, devices: a_bound_pod(name, node=where, units=2, devices=devices),
        st.sampled_from(NODES),
        units,
    )
    return st.just(("no pod", name)) | st.tuples(st.just("pod"), facts)


def report(node: str) -> st.SearchStrategy[Event]:
    entry = st.builds(
        ContainerDevices,
        namespace=st.just("default"),
        pod=st.just(""),
        container=st.just("c0"),
        resource=st.just("gpu.deckhouse.io/whole"),
        units=st.lists(st.sampled_from(UNITS), max_size=2),
    )
    pods = st.dictionaries(st.sampled_from("xyz"), st.tuples(entry), max_size=3)
    return st.tuples(st.just("report"), st.tuples(st.just(node), pods))


OBJECTS = [
    *(device(f"d{n}") for n in range(4)),
    *(pool(name) for name in POOLS),
    *(node(name) for name in NODES),
    *(pod(name) for name in "xyz"),
    *(report(name) for name in NODES),
]


def picture(allocation_state: AllocationState) -> Any:
    index = allocation_state.index
    return (
        {
            entry.facts.name: (entry.facts, entry.layout, entry.observed, entry.is_usable)
            for entry in index.devices.all()
        },
        {name: dict(index.state(PoolName(name)).nodes()) for name in POOLS},
        {name: index.state(PoolName(name)).capacity() for name in POOLS},
        {name: index.view(PoolName(name), a_demand(2)).refusals for name in POOLS},
        {resource: index.pool_of(resource) for resource in "rs"},
        {name: index.knows_node(NodeName(name)) for name in NODES},
    )


@given(st.data())
def test_the_index_depends_on_the_last_state_of_every_object_only(data: st.DataObject) -> None:
    histories = [data.draw(st.lists(events, min_size=1, max_size=3)) for events in OBJECTS]
    order = data.draw(st.permutations([n for n, events in enumerate(histories) for _ in events]))
    allocation_state, ahead = AllocationState(), [iter(events) for events in histories]
    reads = data.draw(st.sets(st.sampled_from(range(len(order)))))
    for step, n in enumerate(order):
        event = next(ahead[n])
        apply(event, allocation_state)
        if step in reads:
            apply(event, allocation_state)
            picture(allocation_state)
    fresh = AllocationState()
    for n in data.draw(st.permutations(range(len(histories)))):
        apply(histories[n][-1], fresh)
    assert picture(allocation_state) == picture(fresh)
