"""Inventories on their way into the store and the allocation state, and the Events about them."""

import functools
import re
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from api.kinds.gpunodeinventory import (
    ContainerDevices,
    DriverProcess,
    GPUNodeInventory,
    GPUNodeInventoryStatus,
    KubeletConfiguration,
    TopologyManagerPolicy,
    TopologyManagerScope,
)
from api.meta import ObjectMeta
from api.names import NodeName
from pool.allocation_state import AllocationState
from pool.model import KubeletTopology
from reconciler.sinks.inventory import InventorySink, record_mismatch
from reconciler.sinks.pod import PodSink
from telemetry.reasons import EventReason
from tests.support.allocation_state import a_bound_pod, some_allocation_state, some_devices, uid_of
from tests.support.builders import at
from tests.support.recorded_events import RecordedEvents

X, Y = "GPU-n1-0", "GPU-n1-1"


def an_inventory(name: str = "n1", version: int = 1, *, managed: bool = True, **units: str) -> Any:
    """What a node says: each pod's units."""
    entries = [
        ContainerDevices(
            namespace="default",
            pod=pod,
            container="c0",
            resource="gpu.deckhouse.io/whole",
            units=item.split(),
            uid=uid_of(pod),
        )
        for pod, item in units.items()
    ]
    return GPUNodeInventory(
        metadata=ObjectMeta(name=name, resource_version=str(version)),
        status=GPUNodeInventoryStatus(managed=managed, allocations=entries or None),
    )


class Reported(RecordedEvents):
    def of(self, reason: EventReason) -> list[tuple[str, str]]:
        """Pod and note of each Event with the reason."""
        found = [event for event in self.events if event.reason == reason.value]
        return [(item.regarding.name, item.note) for item in found]

    @property
    def doubles(self) -> list[tuple[str, str, str]]:
        """Pod, the other pod and the units."""
        found: list[tuple[str, str, str]] = []
        for name, note in self.of(EventReason.UNITS_HELD_TWICE):
            match = re.fullmatch(r"pod default/(.*) on node .* the same units: (.*?);.*", note)
            assert match is not None
            found.append((name, match[1], match[2]))
        return found

    @property
    def mismatches(self) -> list[tuple[str, str]]:
        return self.of(EventReason.ALLOCATION_MISMATCH)


class World:
    def __init__(self, count: int = 3) -> None:
        self.reported = Reported()
        self.allocation_state = some_allocation_state(
            devices=[*some_devices(count), *some_devices(1, "n2")]
        )
        self.allocation_state.pod_claims.mismatches._on_found = functools.partial(
            record_mismatch, recorder=self.reported
        )
        self.sink = InventorySink(self.allocation_state, self.reported)
        self.pods = PodSink(self.allocation_state, lambda: at(0), self.reported)
        self.heard: list[str] = []
        self.sink.store.changes.subscribe(self.heard.append)

    def used(self) -> set[str]:
        return used(self.allocation_state)


def used(allocation_state: AllocationState) -> set[str]:
    return {entry.facts.uuid for entry in allocation_state.index.devices.all() if entry.observed}


def test_what_an_inventory_reports_is_in_the_allocation_state() -> None:
    world = World()
    world.pods.upsert(a_bound_pod("p", X))
    world.sink.upsert(an_inventory(p=Y))
    assert world.used() == {Y}
    world.sink.upsert(an_inventory(version=2, p=X))
    assert world.used() == {X}


@pytest.mark.parametrize("how", ["discard", "relist"])
def test_an_inventory_that_is_gone_reports_nothing(how: str) -> None:
    world = World()
    world.pods.upsert(a_bound_pod("p", X))
    world.sink.upsert(an_inventory(p=Y))
    if how == "discard":
        world.sink.discard(an_inventory())
    else:
        world.sink.replace_all([an_inventory("n2")])
    assert world.used() == {X}
    assert "n1" not in world.sink.store.by_name


@pytest.mark.parametrize("how", ["discard", "relist", "unknown"])
def test_the_settings_of_its_kubelet_are_in_the_index_as_long_as_they_are_known(how: str) -> None:
    world = World()
    pod_scope = KubeletConfiguration(
        topology_manager_policy=TopologyManagerPolicy.RESTRICTED,
        topology_manager_scope=TopologyManagerScope.POD,
        aligned_resources=["cpu"],
    )
    status = GPUNodeInventoryStatus(kubelet=pod_scope)
    current = msgspec.structs.replace(an_inventory(), status=status)
    world.sink.upsert(current)
    assert world.allocation_state.index.kubelet_on(NodeName("n1")) == KubeletTopology(
        TopologyManagerPolicy.RESTRICTED, TopologyManagerScope.POD, knows_numa_nodes=True
    )
    if how == "discard":
        world.sink.discard(current)
    elif how == "relist":
        world.sink.replace_all([an_inventory("n2")])
    else:
        world.sink.upsert(an_inventory(version=2))
    assert world.allocation_state.index.kubelet_on(NodeName("n1")) is None


def test_a_full_list_is_taken_over_in_steps_with_its_reports() -> None:
    world = World()
    world.pods.upsert(a_bound_pod("p", X))
    items = [an_inventory(f"m{number}") for number in range(2000)]
    steps = list(world.sink.replace_in_steps([*items, an_inventory(p=Y)]))
    assert len(steps) > 5
    assert (world.used(), len(world.sink.store.by_name)) == ({Y}, 2001)


def test_who_follows_inventories_is_not_told_of_reports_alone() -> None:
    world = World()
    world.sink.upsert(an_inventory())
    world.heard.clear()
    world.sink.upsert(an_inventory(version=2, p=Y))
    assert world.heard == []
    assert world.sink.store.by_name["n1"] == an_inventory(version=2, p=Y)
    world.sink.upsert(an_inventory(version=3, p=X, managed=False))
    assert world.heard == ["n1"]
    world.sink.upsert(an_inventory(version=4, p=X, managed=False))
    assert world.heard == ["n1", "n1"]
    world.sink.upsert(an_inventory(version=4, p=X, managed=False))
    assert world.heard == ["n1", "n1"]


def test_who_follows_inventories_is_not_told_of_processes_alone() -> None:
    world = World()
    item = an_inventory(p=X)
    world.sink.upsert(item)
    world.heard.clear()
    found = [DriverProcess(command="nvtop", pid=70)]
    for processes in (found, None):
        status = msgspec.structs.replace(item.status, driver_processes=processes)
        changed = msgspec.structs.replace(item, status=status)
        world.sink.upsert(changed)
        assert world.sink.store.by_name["n1"] == changed
    assert world.heard == []


def test_entries_without_a_uid_are_nobodys() -> None:
    world = World()
    world.pods.upsert(a_bound_pod("p", X))
    inventory = an_inventory(p=Y)
    (entry,) = inventory.status.allocations
    nameless = [msgspec.structs.replace(entry, uid="")]
    status = msgspec.structs.replace(inventory.status, allocations=nameless)
    world.sink.upsert(msgspec.structs.replace(inventory, status=status))
    assert world.used() == {X}


def test_a_report_of_a_pod_on_another_node_is_ignored_and_logged() -> None:
    world = World()
    world.pods.upsert(a_bound_pod("p", X))
    with capture_logs() as logs:
        world.sink.upsert(an_inventory("n2", p="GPU-n2-0"))
        world.sink.upsert(an_inventory("n2", 2, p="GPU-n2-0"))
        world.sink.upsert(an_inventory("n2", 3))
    assert world.used() == {X}
    assert [(line["pod"], line["node"], line["reported_by"]) for line in logs] == [
        ("default/p", "n1", "n2")
    ]


def test_units_of_no_device_of_the_node_are_logged() -> None:
    world = World()
    world.pods.upsert(a_bound_pod("p", X))
    with capture_logs() as logs:
        world.sink.upsert(an_inventory(p="GPU-n2-0"))
    assert [(line["log_level"], line["units"]) for line in logs] == [("warning", ("GPU-n2-0",))]
    assert world.reported.mismatches == []


@pytest.mark.parametrize("first", ["pod", "report"])
def test_a_pod_with_other_units_is_told_of_whichever_came_first(first: str) -> None:
    world = World()
    if first == "report":
        world.sink.upsert(an_inventory(p=Y))
    world.pods.upsert(a_bound_pod("p", X))
    world.sink.upsert(an_inventory(version=2, p=Y))
    note = f"kubelet on node n1 allocated {Y} instead of {X}; accounting follows kubelet"
    assert world.reported.mismatches == [("p", note)]


def test_a_promise_of_what_another_pod_really_has_is_no_double() -> None:
    """kubelet gives a unit once: the pod that was promised it gets something else."""
    world = World()
    world.pods.upsert(a_bound_pod("p", X))
    world.sink.upsert(an_inventory(p=Y))
    world.pods.upsert(a_bound_pod("q", Y))
    assert world.allocation_state.index.claims.duplicates() != {}
    assert world.allocation_state.reader.shared_units() == {}
    world.pods.upsert(a_bound_pod("r", Y))
    assert world.reported.doubles == []
    world.pods.discard(a_bound_pod("r", Y))
    world.sink.upsert(an_inventory(version=2, p=Y, q=X))
    assert world.allocation_state.index.claims.duplicates() == {}
    assert world.reported.doubles == []


def test_a_unit_that_a_node_says_it_gave_twice_is_told_of_on_both_pods() -> None:
    world = World()
    for name, unit in (("p", X), ("q", Y)):
        world.pods.upsert(a_bound_pod(name, unit))
    world.sink.upsert(an_inventory(p=X))
    world.sink.upsert(an_inventory(version=2, p=X, q=X))
    assert world.reported.doubles == [("q", "p", X), ("p", "q", X)]
    world.pods.upsert(a_bound_pod("promised", X))
    assert world.allocation_state.reader.shared_units() == {X: {uid_of("p"), uid_of("q")}}
    assert len(world.reported.doubles) == 2


def test_two_promises_of_one_unit_are_told_of_as_ever() -> None:
    world = World()
    world.pods.upsert(a_bound_pod("p", X))
    world.pods.upsert(a_bound_pod("q", X))
    assert world.reported.doubles == [("q", "p", X), ("p", "q", X)]
