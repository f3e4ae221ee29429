"""Denial of a demand that no node of the pool can ever serve, those that autoscaling may add included."""

from typing import TYPE_CHECKING

from admission.decision import Denied
from api.kinds.gpupool import DeviceTopology, SlicePlacement
from api.text import units
from pool.placement.same_device import Unservable, groups_of, is_valid_size, nearest_sizes
from pool.placement.unit_request import request_by_containers
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from pool.model import Demand, PoolFacts


def exceeds(pool: "PoolFacts", demand: "Demand", context: "AdmissionContext") -> Denied | None:
    """Deny a demand that no node can ever serve. A pool without units may still get large nodes.

    A temporary lack of units, while devices are partitioned or drivers start, is no reason to deny.
    """
    unservable = _unservable(pool, demand)
    if unservable is not None:
        return unservable
    if pool.scales and demand.units <= pool.largest_shape:
        return None
    state = context.index.state(pool.name)
    largest_node, largest = state.largest_node(), state.largest_possible()
    if pool.scales and largest <= pool.largest_shape:
        return _exceeds_shapes(pool, demand)
    if not largest_node or demand.units <= largest:
        return _unalignable(pool, demand, context)
    text = (
        f"the pod asks for {units(demand.units)} of {pool.resource}, but the largest node of pool"
        f" {pool.name} {'has' if largest == largest_node else 'can have'} {largest}, and the units of a pod"
        f" come from one node; ask for at most {largest}"
    )
    return Denied(RefusalReason.EXCEEDS_CAPACITY, text)


def _exceeds_shapes(pool: "PoolFacts", demand: "Demand") -> Denied:
    text = (
        f"the pod asks for {units(demand.units)} of {pool.resource}, but the largest node that pool {pool.name} has or"
        f" may get (spec.autoscaling.shapes) has {pool.largest_shape}, and the units of a pod come from one node; ask"
        f" for at most {pool.largest_shape}"
    )
    return Denied(RefusalReason.EXCEEDS_CAPACITY, text)


def _unservable(pool: "PoolFacts", demand: "Demand") -> Denied | None:
    """Deny a container's number of slices that is no part of a device and no number of devices."""
    if pool.slice_placement is not SlicePlacement.SAME_DEVICE:
        return None
    slices = pool.slices_per_device
    groups = groups_of(request_by_containers(demand).containers, slices)
    if not isinstance(groups, Unservable):
        return None
    container = demand.containers[groups.container]
    rule = (
        f"in pool {pool.name} a container gets up to {slices} slices of one device, or whole devices of"
        f" {slices} slices"
    )
    if is_valid_size(container.units, slices):
        text = (
            f"container {container.name} asks for {units(container.units)} of {pool.resource} and would reuse some of"
            f" those of the init containers before it, which are not on one device with the others; {rule}: let the"
            " init containers ask for as many, or for none"
        )
    else:
        sizes = " or ".join(map(str, nearest_sizes(container.units, slices)))
        text = (
            f"container {container.name} asks for {units(container.units)} of {pool.resource}, but {rule}; ask for"
            f" {sizes}"
        )
    return Denied(RefusalReason.BAD_QUANTITY, text)


def _unalignable(pool: "PoolFacts", demand: "Demand", context: "AdmissionContext") -> Denied | None:
    """Deny a demand for which no node has, or may yet have, an aligned set of devices."""
    if pool.device_topology is not DeviceTopology.REQUIRED:
        return None
    state = context.index.state(pool.name)
    largest = state.largest_alignable(state.request_of(demand))
    if largest is None:
        return None
    text = (
        f"the pod asks for {units(demand.units)} of {pool.resource}, and pool {pool.name} requires the devices of a pod"
        " to be on one NUMA node or connected by NVLink (spec.scheduling.deviceTopology), but no node has more than"
        f" {largest} so; ask for at most {largest}, or use another pool"
    )
    return Denied(RefusalReason.EXCEEDS_CAPACITY, text)
