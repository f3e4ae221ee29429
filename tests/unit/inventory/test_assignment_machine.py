"""Whatever operators, pods and the inventory do, and in whatever order decisions are carried out: no device goes
from one pool to another without having been free, none is released under a pod, and it comes to rest.
"""

import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from api.names import RESOURCE_PREFIX
from inventory.assignment.candidates import PoolCandidates
from inventory.assignment.decide import Action, Decision
from inventory.pools.validation import VALID_POOL, PoolValidity
from tests.support import assignment

POOLS = ("a", "b", "c")
DEVICES = range(4)
MODELS = ("A100", "H100")
A_FEW = 3 * len(DEVICES) + 3
"""Rounds in which everything must have come to rest: drain, release, claim of every device, one by one."""

pools = st.fixed_dictionaries(
    {
        "by_itself": st.booleans(),
        "cap": st.sampled_from((None, 1, 2)),
        "is_terminating": st.sampled_from((False, False, True)),
        "created": st.integers(0, 2),
        "deviceSelector": st.sampled_from(
            ({}, {"include": {"products": ["A100"]}}, {"exclude": {"products": ["A100"]}})
        ),
        "nodeSelector": st.sampled_from((None, {"matchLabels": {"zone": "a"}})),
    }
)


class AssignmentRun(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.facts: dict[int, dict[str, Any]] = {}
        self.devices: dict[str, GPUDevice] = {}
        self.pools: dict[str, GPUPool] = {name: assignment.a_gpupool(name) for name in POOLS}
        self.validity: dict[str, PoolValidity] = {}
        self.users: dict[str, set[str]] = {}
        # device -> resources of pods that have a unit of it
        self.node: dict[str, Any] = {"labels": {"zone": "a"}, "unready": ""}
        for number in DEVICES:
            self.set_facts(number, {"annotated": None})

    def set_facts(self, number: int, facts: dict[str, Any]) -> None:
        self.facts[number] = {**self.facts.get(number, {}), **facts}
        before = self.devices.get(f"n1-{number}")
        owner = before.status.pool_ref.name if before and before.status.pool_ref else None
        is_draining = before is not None and before.is_draining
        device = assignment.a_device(
            number, owner=owner, draining=is_draining, **self.facts[number]
        )
        self.devices[device.name] = device

    # --- what others do ----------------------------------------------------------------------------

    @rule(
        number=st.sampled_from(DEVICES),
        facts=st.one_of(
            st.fixed_dictionaries({"annotated": st.sampled_from((None, *POOLS, "gone"))}),
            st.fixed_dictionaries({"is_ignored": st.booleans()}),
            st.fixed_dictionaries({"managed": st.booleans()}),
            st.fixed_dictionaries({"faulted": st.booleans()}),
            st.fixed_dictionaries({"product": st.sampled_from(MODELS)}),
            st.fixed_dictionaries({"uuid": st.sampled_from(("GPU", ""))}),
        ),
    )
    def a_device_changes(self, number: int, facts: dict[str, Any]) -> None:
        self.set_facts(number, facts)

    @rule(name=st.sampled_from(POOLS), spec=pools)
    def a_pool_changes(self, name: str, spec: dict[str, Any]) -> None:
        self.pools[name] = assignment.a_gpupool(name, **spec)

    @rule(name=st.sampled_from(POOLS))
    def a_pool_goes(self, name: str) -> None:
        self.pools.pop(name, None)

    @rule(
        name=st.sampled_from(POOLS),
        result=st.sampled_from((VALID_POOL, assignment.UNSUPPORTED, assignment.MISCONFIGURED)),
    )
    def a_pool_is_judged(self, name: str, result: PoolValidity) -> None:
        self.validity[name] = result

    @rule(zone=st.sampled_from(("a", "b", None)), unready=st.sampled_from(("", "DriverMissing")))
    def the_node_changes(self, zone: str | None, unready: str) -> None:
        labels = None if zone is None else {"zone": zone}
        self.node = {"labels": labels, "unready": unready}

    @rule(number=st.sampled_from(DEVICES))
    def a_pod_starts(self, number: int) -> None:
        """The index gives a unit of it away: not of what was decided to leave, written or not."""
        device = self.devices[f"n1-{number}"]
        ref = device.status.pool_ref
        action = self.decide()[device.name].action
        if ref is not None and not device.is_draining and action is Action.KEEP:
            self.users.setdefault(device.name, set()).add(RESOURCE_PREFIX + ref.name)

    @rule(number=st.sampled_from(DEVICES))
    def the_pods_of_a_device_end(self, number: int) -> None:
        self.users.pop(f"n1-{number}", None)

    # --- what we do --------------------------------------------------------------------------------

    @rule(seed=st.integers(0, 1000))
    def some_decisions_are_carried_out(self, seed: int) -> None:
        """In any order, and the process may die between any two."""
        dice = random.Random(seed)
        decisions = list(self.decide().values())
        dice.shuffle(decisions)
        for decision in decisions[: dice.randrange(len(decisions) + 1)]:
            self.carry_out(decision)

    @rule()
    def it_becomes_idle(self) -> None:
        for _ in range(A_FEW):
            before = dict(self.devices)
            for item in self.decide().values():
                self.carry_out(item)
            if self.devices == before:
                return
        raise AssertionError("it never comes to rest")

    @invariant()
    def order_decides_nothing(self) -> None:
        devices, pool_list = list(self.devices.values()), list(self.pools.values())
        random.Random(1).shuffle(devices)
        assert self.decide() == self.decide(devices[::-1], pool_list[::-1])

    @invariant()
    def nobody_has_more_than_it_may_get(self) -> None:
        """Claims never lead above the maximum; only a lowered one is exceeded, and then nothing is claimed."""
        owners = [device.status.pool_ref for device in self.devices.values()]
        decisions = list(self.decide().values())
        for name, pool in self.pools.items():
            cap = pool.spec.allocation.max_devices_per_node
            claims = sum(
                decision.action is Action.CLAIM and decision.owner == name for decision in decisions
            )
            have = sum(ref is not None and ref.name == name for ref in owners)
            assert cap is None or not claims or have + claims <= cap

    def decide(
        self, devices: list[GPUDevice] | None = None, pool_list: list[GPUPool] | None = None
    ) -> dict[str, Decision]:
        candidates = PoolCandidates(
            list(self.pools.values()) if pool_list is None else pool_list,
            lambda name: self.validity.get(name, VALID_POOL),
        )
        given = list(self.devices.values()) if devices is None else devices
        users = {name: frozenset(resources) for name, resources in self.users.items()}
        return assignment.decided(given, candidates, users=users, **self.node)

    def carry_out(self, one: Decision) -> None:
        device = self.devices[one.device]
        before = device.status.pool_ref
        is_used = bool(self.users.get(device.name))
        match one.action:
            case Action.CLAIM:
                assert before is None
                resource = f"{RESOURCE_PREFIX}{one.owner}"
                assert self.users.get(device.name, set()) <= {resource}
            case Action.KEEP | Action.DRAIN:
                assert before is not None
                assert before.name == one.owner
            case Action.RELEASE:
                assert before is not None
                assert device.is_draining
                assert not is_used
            case Action.NOTHING:
                assert before is None
            case Action.HOLD:
                raise AssertionError("no pool of this run is unread")
        self.devices[device.name] = assignment.carried_out(device, one)


PROFILE = settings()
AssignmentRun.TestCase.settings = settings(
    max_examples=max(50, PROFILE.max_examples), stateful_step_count=25
)
TestAssigning = AssignmentRun.TestCase
