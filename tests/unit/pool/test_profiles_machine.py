"""Pools with several MIG profiles against a naive model: which pod has which instance, counted again at each step.

Two nodes have three devices of the pool. A device is withheld where its instances are not those of the pool's layout, or
it is faulted, and its free instances are nobody's then; pods that have one keep it.
"""

from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from api.names import NodeName, PoolName
from pool.placement.planner import Placed
from tests.support.allocation_state import (
    a_bound_pod,
    a_reserved_pod,
    plan_reservation,
    some_allocation_state,
)
from tests.support.builders import a_demand, a_device, at
from tests.unit.pool.test_profiles_of_a_pool import (
    CAPACITIES,
    INSTANCES,
    LARGE,
    MIXED,
    SMALL,
    a_mixed_pool,
)

NODE_OF: Final = ("n1", "n1", "n2")
PROFILES: Final = {LARGE: "3g.40gb", SMALL: "1g.10gb"}
DEVICE_STATES: Final = ("well", "well", "well", "faulted", "one missing", "a foreign one")

numbers = st.integers(0, len(NODE_OF) - 1)
profiles = st.sampled_from((LARGE, SMALL))


class ProfilesMachine(RuleBasedStateMachine):
    """Admission, kube-scheduler, nodes and another program that partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.state = some_allocation_state(a_mixed_pool())
        self.devices = dict.fromkeys(range(len(NODE_OF)), "well")
        self.owners: dict[str, str] = {}
        # instance -> the pod that has it, bound or by its reservation
        self.bound: set[str] = set()
        self.pods = 0

    @initialize()
    def devices_come(self) -> None:
        for number in self.devices:
            self.device_changes(number, "well")

    @rule(number=numbers, becomes=st.sampled_from(DEVICE_STATES))
    def device_changes(self, number: int, becomes: str) -> None:
        instances = [(profile, f"{uuid}-{number}") for profile, uuid in INSTANCES]
        if becomes == "one missing":
            del instances[-1]
        elif becomes == "a foreign one":
            instances.append(("2g.20gb", f"MIG-F-{number}"))
        device = a_device(
            NODE_OF[number],
            number,
            "mixed",
            is_partitioned=True,
            is_faulted=becomes == "faulted",
            mig_instances=tuple(instances),
            mig_capacities=CAPACITIES,
        )
        self.devices[number] = becomes
        self.state.index.replace_device(device)

    @rule(profile=profiles, units=st.integers(1, 5))
    def pod_is_admitted(self, profile: PoolName, units: int) -> None:
        fits = [len(self.free(profile, node)) >= units for node in ("n1", "n2")]
        plan = plan_reservation(self.state, a_demand(units, pool=profile))
        assert isinstance(plan, Placed) == any(fits)
        if not isinstance(plan, Placed):
            return
        name = self.new_pod()
        pod = a_reserved_pod(self.state, name, units, pool=profile)
        assert pod.reservation is not None
        given = pod.reservation.devices["c0"]
        assert len(set(given)) == units
        assert set(given) <= self.free(profile, str(pod.reservation.node))
        self.owners |= dict.fromkeys(given, name)

    @rule(profile=profiles, number=numbers, instance=st.integers(0, len(INSTANCES) - 1))
    def pod_is_bound_past_the_scheduler(
        self, profile: PoolName, number: int, instance: int
    ) -> None:
        """Of its profile or not, whatever the device is like: what its annotation says is in use."""
        unit = f"{INSTANCES[instance][1]}-{number}"
        if INSTANCES[instance][0] == PROFILES[profile] and unit not in self.owners:
            name = self.new_pod()
            pod = a_bound_pod(name, unit, node=NODE_OF[number], pool=profile)
            self.state.observe_pod(pod, at(0))
            self.owners[unit] = name
            self.bound.add(name)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def reserved_pod_is_bound(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(set(self.owners.values()))))
        if name in self.bound:
            return
        units = sorted(unit for unit, owner in self.owners.items() if owner == name)
        node = NODE_OF[int(units[0].rpartition("-")[2])]
        profile = LARGE if "-L-" in units[0] else SMALL
        self.state.observe_pod(a_bound_pod(name, *units, node=node, pool=profile), at(0))
        self.bound.add(name)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def pod_ends(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(set(self.owners.values()))))
        found = next(pod for pod in self.state.reader.pods.all() if pod.name == name)
        self.state.discard_pod(found.uid)
        self.owners = {unit: owner for unit, owner in self.owners.items() if owner != name}

    @invariant()
    def free_instances_are_those_of_the_model(self) -> None:
        for profile in PROFILES:
            state = self.state.index.state(profile)
            for node in ("n1", "n2"):
                view = state.node(NodeName(node))
                free = len(self.free(profile, node))
                assert (view.free if view is not None else 0) == free, (profile, node)
        free_of_all = sum(
            len(self.free(profile, node)) for profile in PROFILES for node in ("n1", "n2")
        )
        assert self.state.index.state(MIXED).capacity().available == free_of_all

    def free(self, profile: PoolName, node: str) -> set[str]:
        return {
            unit
            for number, becomes in self.devices.items()
            if becomes == "well" and NODE_OF[number] == node
            for name, uuid in INSTANCES
            if name == PROFILES[profile] and (unit := f"{uuid}-{number}") not in self.owners
        }

    def new_pod(self) -> str:
        self.pods += 1
        return f"p{self.pods}"


TestProfiles = ProfilesMachine.TestCase
PROFILE = settings()
TestProfiles.settings = settings(max_examples=PROFILE.max_examples, stateful_step_count=30)
