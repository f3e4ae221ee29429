"""A cluster whose drivers are upgraded, in plain values: nodes, driver pods, users of the driver, and what moves them.

It carries out actions as an API server and controllers do, refuses what they refuse, and fails at once where an action does
what none may do: uncordon a node of another client, delete a pod beside a budget, unload a driver that is in use.
"""

import datetime as dt
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from api.driver_upgrade import (
    AGENT_DEPLOY_LABEL,
    DRIVER_DEPLOY_LABEL,
    DRIVER_UPGRADE,
    PAUSED_FOR_UPGRADE,
    SAFE_LOAD_ANNOTATION,
    UNITS_WITHHELD_ANNOTATION,
    UPGRADE_STATE_LABEL,
)
from api.names import NodeName, PodUid
from operands.upgrade import actions as acts
from operands.upgrade.facts import (
    DriverPod,
    DriverRevision,
    DriverUse,
    EvictionAnswer,
    HostProcess,
    PodOnNode,
    PodOwner,
    UpgradeNode,
    ValidatorPod,
)

START = dt.datetime(2026, 5, 4, tzinfo=dt.UTC)
OPERAND = "nvidia.com/gpu.deploy.dcgm"
USES = frozenset({DriverUse.POOL})
NO_USES: frozenset[DriverUse] = frozenset()


class BrokenPromiseError(AssertionError):
    """An action did what none may do."""


@dataclass(slots=True)
class Driver:
    uid: str
    revision: int | None
    """None: it has no revision label."""
    digest: str
    is_ready: bool = False
    is_orphan: bool = False
    is_terminating: bool = False
    is_scheduled: bool = True
    restarts: int = 0


@dataclass(slots=True)
class Workload:
    uid: str
    owner: str = "controller"
    uses: bool = True
    job: bool = False
    """It has the label of the pods that are waited for."""
    empty_dir: bool = False
    budget: bool = True
    """Its budgets allow its eviction."""
    priority: int = 0
    ends: int | None = None
    is_terminating: bool = False
    keeps: bool = False
    """A drain leaves it alone."""


@dataclass(slots=True)
class Machine:
    """A node, with what is true about it."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    cordoner: str = ""
    """What cordoned it: `us`, `other`, or nothing."""
    is_ready: bool = True
    is_selected: bool = True
    drivers: list[Driver] = field(default_factory=list)
    pods: dict[str, Workload] = field(default_factory=dict)
    processes: int = 0
    has_agent: bool = True
    has_operand: bool = True
    is_validated: bool = True
    breaks_driver: bool = False
    breaks_validator: bool = False
    breaks_agent: bool = False
    hides_pod: bool = False
    """The scheduler has no place for its driver pod."""
    taint: str = ""
    """Keeps new driver pods from it, and lets those stay that run."""

    @property
    def state(self) -> str:
        return self.labels.get(UPGRADE_STATE_LABEL, "")

    @property
    def is_withheld(self) -> bool:
        return UNITS_WITHHELD_ANNOTATION in self.annotations


class UpgradeWorld:
    def __init__(self, size: int) -> None:
        self.seconds = 0
        self.revision = 1
        self.digest = "d1"
        self._numbers = itertools.count()
        self.machines: dict[str, Machine] = {}
        for _ in range(size):
            self.add_node()

    # What exists

    def new_uid(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    def add_node(self) -> Machine:
        machine = Machine(self.new_uid("n"))
        machine.labels |= {OPERAND: "true", DRIVER_DEPLOY_LABEL: "true"}
        machine.drivers.append(
            Driver(self.new_uid("driver"), self.revision, self.digest, is_ready=True)
        )
        self.machines[machine.name] = machine
        return machine

    def serves(self, machine: Machine) -> bool:
        """Return whether a driver is there and stays: of whatever revision."""
        return bool(machine.drivers) and all(
            driver.is_ready and not driver.is_terminating for driver in machine.drivers
        )

    # Actions

    def apply(self, action: acts.UpgradeAction) -> bool:
        """Carry out an action; False: it is refused, since what it is for has changed."""
        machine = self.machines.get(action.node)
        if machine is None:
            return False
        match action:
            case acts.WaitUntil() | acts.ReportReason():
                return True
            case acts.WithholdUnits():
                machine.annotations[UNITS_WITHHELD_ANNOTATION] = DRIVER_UPGRADE
            case acts.ReturnUnits():
                machine.annotations.pop(UNITS_WITHHELD_ANNOTATION, None)
            case acts.Cordon():
                return self._cordon(machine)
            case acts.Uncordon():
                return self._uncordon(machine)
            case acts.SetState():
                return self._set_state(machine, action)
            case acts.Annotate():
                self._annotate(machine, action.annotations)
            case acts.EvictPod():
                return self._evict(machine, action)
            case acts.DeletePod():
                return self._delete(machine, action)
            case acts.PauseOperand():
                machine.labels[action.label] = PAUSED_FOR_UPGRADE
            case acts.ResumeOperand():
                if machine.labels.get(action.label) == PAUSED_FOR_UPGRADE:
                    machine.labels[action.label] = "true"
            case acts.ReleaseAgent():
                machine.labels[AGENT_DEPLOY_LABEL] = PAUSED_FOR_UPGRADE
            case acts.ReturnAgent():
                machine.labels.pop(AGENT_DEPLOY_LABEL, None)
        return True

    def _cordon(self, machine: Machine) -> bool:
        if machine.cordoner:
            return False
        machine.cordoner = "us"
        return True

    def _uncordon(self, machine: Machine) -> bool:
        """Do it; a pass that was overtaken by another cordon leaves that one."""
        if machine.cordoner == "us":
            machine.cordoner = ""
        return True

    def _set_state(self, machine: Machine, action: acts.SetState) -> bool:
        if machine.state != action.before:
            return False
        machine.labels.pop(UPGRADE_STATE_LABEL, None)
        if action.state.value:
            machine.labels[UPGRADE_STATE_LABEL] = action.state.value
        self._annotate(machine, action.annotations)
        return True

    @staticmethod
    def _annotate(machine: Machine, annotations: acts.Annotations) -> None:
        for key, value in annotations.items():
            if value is None:
                machine.annotations.pop(key, None)
            else:
                machine.annotations[key] = value

    def _evict(self, machine: Machine, action: acts.EvictPod) -> bool:
        pod = machine.pods.get(action.uid)
        if pod is None or not pod.budget:
            return False
        pod.is_terminating = True
        return True

    def _delete(self, machine: Machine, action: acts.DeletePod) -> bool:
        if action.uid in machine.pods:
            raise BrokenPromiseError(f"{action.uid} is deleted beside its budget")
        for driver in machine.drivers:
            driver.is_terminating = driver.is_terminating or driver.uid == action.uid
        return True

    # Promises

    def judge(self, action: acts.UpgradeAction) -> None:
        """Look at an action when it is decided: a pass that is overtaken by others may come too late.

        Raises:
            BrokenPromiseError: it is nothing that an upgrade may do.
        """
        machine = self.machines[action.node]
        match action:
            case acts.DeletePod() if machine.taint:
                raise BrokenPromiseError(f"{machine.name} would get no other driver pod")
            case acts.Uncordon() if machine.cordoner != "us":
                raise BrokenPromiseError(f"{machine.name} is uncordoned, and is not our cordon")
            case acts.EvictPod():
                pod = machine.pods[action.uid]
                if machine.state not in _EVICTING:
                    raise BrokenPromiseError(f"a pod is evicted in state {machine.state}")
                if pod.owner in {"daemon", "mirror"} or not pod.budget:
                    raise BrokenPromiseError(f"{pod.uid} is not to be evicted")
            case acts.DeletePod():
                (driver,) = (item for item in machine.drivers if item.uid == action.uid)
                users = [pod.uid for pod in machine.pods.values() if pod.uses]
                is_used = users or machine.has_agent or machine.has_operand or machine.processes
                if is_used and (driver.digest != self.digest or driver.is_orphan):
                    raise BrokenPromiseError(f"the driver of {machine.name} is unloaded in use")
            case _:
                pass

    # Time and controllers

    def pass_time(self, seconds: int) -> None:
        self.seconds += seconds
        for machine in self.machines.values():
            self._move(machine)

    def _move(self, machine: Machine) -> None:
        """Let kubelet, the DaemonSet controllers and the validator do what they have to do."""
        if not machine.is_ready:
            return
        is_held_off = machine.labels.get(DRIVER_DEPLOY_LABEL) == PAUSED_FOR_UPGRADE
        for driver in machine.drivers:
            driver.is_terminating |= is_held_off and not driver.is_orphan
        machine.drivers = [driver for driver in machine.drivers if not driver.is_terminating]
        is_free = not (machine.drivers or is_held_off or machine.taint)
        if is_free and machine.is_selected:
            machine.drivers.append(
                Driver(
                    self.new_uid("driver"),
                    self.revision,
                    self.digest,
                    is_scheduled=not machine.hides_pod,
                )
            )
        else:
            for driver in machine.drivers:
                self._start(machine, driver)
        machine.pods = {
            uid: pod
            for uid, pod in machine.pods.items()
            if not pod.is_terminating and (pod.ends is None or pod.ends > self.seconds)
        }
        machine.has_agent = machine.labels.get(AGENT_DEPLOY_LABEL) != PAUSED_FOR_UPGRADE
        machine.has_operand = machine.labels.get(OPERAND) == "true"
        machine.is_validated = (
            self.serves(machine) and machine.has_agent and not machine.breaks_validator
        )

    @staticmethod
    def _start(machine: Machine, driver: Driver) -> None:
        driver.is_scheduled = driver.is_scheduled or not machine.hides_pod
        if (
            not driver.is_scheduled
            or driver.is_ready
            or SAFE_LOAD_ANNOTATION in machine.annotations
        ):
            return
        if machine.breaks_driver:
            driver.restarts += 4
        else:
            driver.is_ready = True

    # Facts

    def facts(self) -> list[UpgradeNode]:
        return [self._facts_of(machine) for machine in self.machines.values()]

    def now(self, offset_s: int = 0) -> dt.datetime:
        return START + dt.timedelta(seconds=self.seconds + offset_s)

    def _facts_of(self, machine: Machine) -> UpgradeNode:
        own = ([self._own_pod("agent", machine, is_agent=True)] if machine.has_agent else []) + (
            [self._own_pod("dcgm", machine, label=OPERAND)] if machine.has_operand else []
        )
        return UpgradeNode(
            name=NodeName(machine.name),
            labels=machine.labels.copy(),
            annotations=machine.annotations.copy(),
            is_schedulable=not machine.cordoner,
            owns_cordon=machine.cordoner == "us",
            is_ready=machine.is_ready,
            is_selected=machine.is_selected,
            driver_pods=tuple(self._driver_facts(driver) for driver in machine.drivers),
            desired_revision=str(self.revision),
            desired_digest=self.digest,
            driver_obstacle=machine.taint,
            validators=(ValidatorPod(name="validator", is_ready=machine.is_validated),),
            pods=(*own, *map(self._pod_facts, machine.pods.values())),
            processes=tuple(HostProcess(item, "nvtop") for item in range(machine.processes)),
        )

    @staticmethod
    def _own_pod(
        name: str, machine: Machine, *, is_agent: bool = False, label: str = ""
    ) -> PodOnNode:
        return PodOnNode(
            namespace="gpu",
            name=f"{name}-{machine.name}",
            uid=PodUid(f"{name}-{machine.name}"),
            owner=PodOwner.DAEMON_SET,
            uses=frozenset({DriverUse.OPEN}),
            is_agent=is_agent,
            is_ready=not (is_agent and machine.breaks_agent),
            deploy_label=label,
        )

    def _driver_facts(self, one: Driver) -> DriverPod:
        if one.is_orphan:
            revision = DriverRevision.ORPHAN
        elif one.revision is None:
            revision = DriverRevision.UNKNOWN
        else:
            is_current = one.revision == self.revision
            revision = DriverRevision.CURRENT if is_current else DriverRevision.OUTDATED
        return DriverPod(
            namespace="gpu",
            name=one.uid,
            uid=PodUid(one.uid),
            revision=revision,
            is_ready=one.is_ready and not one.is_terminating,
            is_scheduled=one.is_scheduled,
            is_terminating=one.is_terminating,
            restarts=0 if one.is_ready else one.restarts,
            config_digest=one.digest,
        )

    def _pod_facts(self, pod: Workload) -> PodOnNode:
        labels = {"job": "yes"} if pod.job else {}
        if pod.keeps:
            labels["nvidia.com/gpu-driver-upgrade-drain.skip"] = "true"
        return PodOnNode(
            namespace="team",
            name=pod.uid,
            uid=PodUid(pod.uid),
            labels=labels,
            owner=_OWNERS[pod.owner],
            uses=USES if pod.uses else NO_USES,
            is_terminating=pod.is_terminating,
            has_empty_dir=pod.empty_dir,
            priority=pod.priority,
            ends_at=None if pod.ends is None else START + dt.timedelta(seconds=pod.ends),
            eviction=EvictionAnswer.ALLOWED if pod.budget else EvictionAnswer.REFUSED,
        )


_OWNERS = {
    "controller": PodOwner.CONTROLLER,
    "daemon": PodOwner.DAEMON_SET,
    "mirror": PodOwner.MIRROR,
    "none": PodOwner.NONE,
}
_EVICTING = {"pod-deletion-required", "drain-required", "pod-restart-required"}


def away(machines: Iterable[Machine]) -> int:
    """Count the nodes that cannot take pods, from what is true: for an observer beside everything."""
    return sum(1 for machine in machines if machine.cordoner or not machine.is_ready)
