"""What is wrong with a pool, a node, a device or a Lease by its status, with the cure.

`kubectl gpu check` and the console say the same.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.kinds.gpudevice import DeviceState
from api.status_conditions import find_condition
from telemetry.conditions import DeviceAssigned, DeviceCondition, InventoryCondition, PoolCondition

if TYPE_CHECKING:
    from api.foreign.leases import PartialLease
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.kinds.gpupool import GPUPool
    from api.meta import Condition

_LEASE_IS_OLD: Final = dt.timedelta(seconds=30)
"""The leader renews its Lease each 0.4 s; clocks of machines may differ by seconds."""
_POOL_FAULTS: Final = (
    (PoolCondition.SUPPORTED, "False", True),
    (PoolCondition.MISCONFIGURED, "True", True),
    (PoolCondition.READY, "False", True),
    (PoolCondition.MAINTENANCE, "True", False),
    (PoolCondition.CONFLICT, "True", False),
)
"""Condition, status, and whether it is severe; the first that applies is shown. A pool without free units is in use,
and not at fault."""
_NODE_FAULTS: Final = (
    (InventoryCondition.READY_FOR_POOLING, "False", True),
    (InventoryCondition.DEGRADED_WORKLOADS, "True", True),
    (InventoryCondition.AGENT_DEGRADED, "True", False),
    (InventoryCondition.INFRA_DEGRADED, "True", False),
)


@final
class ObjectFault(msgspec.Struct, frozen=True):
    text: str
    cure: str
    """A command, or what to do."""
    is_severe: bool = False
    """Pods do not get their units, or not all of them."""
    gist: str = ""
    """The text without the message of a condition, which may name pods; empty where there is none in it."""


def pool_fault(pool: "GPUPool") -> ObjectFault | None:
    for kind, status, is_severe in _POOL_FAULTS:
        found = find_condition(pool.status.conditions, kind)
        if found is not None and found.status == status:
            return ObjectFault(
                f"{kind.value} is {status}: {_condition_text(found)}",
                f"kubectl describe gpupool {pool.name}",
                is_severe,
            )
    if find_condition(pool.status.conditions, PoolCondition.READY) is None:
        return ObjectFault("the control plane has not looked at it yet", "kubectl gpu check")
    return None


def node_fault(inventory: "GPUNodeInventory") -> ObjectFault | None:
    """Return what keeps a node's software or agent from working; nothing of a node that opts out."""
    name, conditions = inventory.metadata.name, inventory.status.conditions
    if not inventory.status.managed:
        return None
    for kind, status, is_severe in _NODE_FAULTS:
        found = find_condition(conditions, kind)
        if found is not None and found.status == status:
            return ObjectFault(
                f"{kind.value} is {status}: {_condition_text(found)}",
                f"kubectl describe gni {name}",
                is_severe,
                f"{kind.value} is {status}: {found.reason}",
            )
    if find_condition(conditions, InventoryCondition.AGENT_DEGRADED) is None:
        return ObjectFault(
            "no node agent has reported it: its devices are not watched",
            f"kubectl get pods -A -o wide --field-selector spec.nodeName={name}",
        )
    return None


def device_fault(device: "GPUDevice") -> ObjectFault | None:
    conditions = device.status.conditions
    healthy = find_condition(conditions, DeviceCondition.HEALTHY)
    stale = find_condition(conditions, DeviceCondition.STALE)
    cure = f"kubectl describe gdev {device.name}"
    if device.status.state is DeviceState.FAULTED or (healthy and healthy.status == "False"):
        why = _condition_text(healthy) if healthy else "no reason is given"
        return ObjectFault(f"faulted, no pod gets it: {why}", cure, is_severe=True)
    if device.status.managed and stale is not None and stale.status == "True":
        return ObjectFault(f"its facts are old: {stale.message or stale.reason}", cure)
    assigned = find_condition(conditions, DeviceCondition.ASSIGNED)
    if assigned is not None and is_awaiting_decision(device):
        return ObjectFault(assigned.message, f"kubectl gpu approve {device.name}")
    return None


def is_awaiting_decision(device: "GPUDevice") -> bool:
    assigned = find_condition(device.status.conditions, DeviceCondition.ASSIGNED)
    return assigned is not None and assigned.reason == DeviceAssigned.AWAITS_DECISION.value


def leader_fault(
    lease: "PartialLease | None", now: dt.datetime, *, deployment: str, namespace: str
) -> ObjectFault | None:
    """Return why the control plane has no leader.

    Args:
        lease: of the election; None where there is none.
        now: the wall clock.
        deployment: that runs the replicas.
        namespace: of it.
    """
    cure = f"kubectl -n {namespace} logs deployment/{deployment}"
    if lease is None or not lease.spec.holder_identity:
        return ObjectFault("no replica leads", cure, is_severe=True)
    if is_lease_old(lease, now):
        text = f"{lease.spec.holder_identity} has not renewed it since {lease.spec.renew_time}"
        return ObjectFault(text, cure, is_severe=True)
    return None


def is_lease_old(lease: "PartialLease", now: dt.datetime) -> bool:
    """Say whether the holder of a Lease has stopped renewing it."""
    try:
        renewed = dt.datetime.fromisoformat(lease.spec.renew_time or "")
    except ValueError:
        return True
    return renewed.tzinfo is None or now - renewed > _LEASE_IS_OLD


def _condition_text(condition: "Condition") -> str:
    return ": ".join(filter(None, (condition.reason, condition.message)))
