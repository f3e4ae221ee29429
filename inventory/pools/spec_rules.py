"""Rules of a pool's spec beyond its shape: rules between fields, selectors, names, bounds.

Much of it is also in the CRD's schema. The API server checks that first, but reports one error of a rule
set at a time and knows no other pool; these rules report all errors in one message.
"""

import re
from typing import TYPE_CHECKING, Final

from api.field_errors import FieldError
from api.kinds.gpupool import AllocationMode, DeviceTopology, SlicePlacement
from api.names import MAX_DISTINCT_SLICES, POOL_NAME_PATTERN, RESERVED_POOL_NAMES, RESOURCE_PREFIX
from api.quantity import parse_duration_s
from api.text import truncate
from inventory.pools.scaling_rules import scaling_faults, scaling_warnings
from inventory.pools.selector_rules import key_fault, named, selector_faults, value_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.foreign.core import Taint
    from api.kinds import gpupool
    from api.kinds.gpupool import (
        Access,
        Allocation,
        Assignment,
        GPUPoolSpec,
        MIGShare,
        ReservationPolicy,
    )

MIN_TTL_S: Final = 5
"""The watch may take that long to deliver a pod."""
MAX_TTL_S: Final = 3600
MIN_DEADLINE_S: Final = 60
MAX_DEADLINE_S: Final = 168 * 3600

_TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DNS_LABEL: Final = re.compile(POOL_NAME_PATTERN)
_MAX_NAME_PART_LENGTH: Final = 63


def spec_faults(spec: "GPUPoolSpec") -> "Iterator[FieldError]":
    """Yield the errors of a spec whose shape is right."""
    suffix = spec.resource.name.removeprefix(RESOURCE_PREFIX)
    if suffix in RESERVED_POOL_NAMES:
        yield FieldError(
            "spec.resource.name", f'"{suffix}" is a reserved word, choose another name'
        )
    exclude = spec.device_selector.exclude
    if exclude is not None and exclude == type(exclude)():
        yield FieldError(
            "spec.deviceSelector.exclude", "is empty: name what to exclude, or remove it"
        )
    yield from selector_faults(spec.node_selector, "spec.nodeSelector")
    yield from _allocation_faults(spec.allocation, "spec.allocation")
    yield from _assignment_faults(spec.assignment, "spec.assignment")
    yield from _access_faults(spec.access, "spec.access")
    key = spec.scheduling.topology_key
    yield from named(key_fault(key), "spec.scheduling.topologyKey")
    yield from _taint_faults(spec.scheduling.taints or (), "spec.scheduling.taints")
    yield from _reservation_faults(spec.reservation, "spec.reservation")
    yield from _maintenance_faults(spec.maintenance, "spec.maintenance")
    yield from scaling_faults(spec)


def spec_warnings(spec: "GPUPoolSpec") -> "Iterator[str]":
    """Yield what a valid spec asks for without effect."""
    allocation, scheduling = spec.allocation, spec.scheduling
    if (
        scheduling.device_topology is DeviceTopology.REQUIRED
        and allocation.max_devices_per_node == 1
    ):
        yield (
            "spec.scheduling.deviceTopology: Required has no effect:"
            " with maxDevicesPerNode 1 every pod has one device"
        )
    yield from scaling_warnings(spec)


def change_warnings(before: "GPUPoolSpec", after: "GPUPoolSpec") -> "Iterator[str]":
    """Yield what the change of a valid spec does to pods that already run."""
    old, new = (
        item.allocation.slice_placement or SlicePlacement.DISTINCT_DEVICES
        for item in (before, after)
    )
    is_sliced = all(item.allocation.mode is AllocationMode.TIME_SLICE for item in (before, after))
    if is_sliced and old is not new:
        yield (
            f"spec.allocation.slicePlacement: {new.value} applies to new pods; running pods keep their slices"
        )


def _allocation_faults(allocation: "Allocation", path: str) -> "Iterator[FieldError]":
    mode = allocation.mode
    for field, value, owner in (
        ("migProfile", allocation.mig_profile, AllocationMode.MIG),
        ("slicesPerDevice", allocation.slices_per_device, AllocationMode.TIME_SLICE),
    ):
        is_listed = field == "migProfile" and allocation.mig is not None
        if mode is owner and value is None and not is_listed:
            yield FieldError(f"{path}.{field}", f"is required in mode {owner.value}")
        if mode is not owner and value is not None:
            text = f"has a meaning in mode {owner.value} only, the mode is {mode.value}"
            yield FieldError(f"{path}.{field}", text)
    if allocation.mig is not None:
        yield from _mig_faults(allocation, allocation.mig, f"{path}.mig")
    if mode is not AllocationMode.TIME_SLICE and allocation.slice_placement is not None:
        text = f"has a meaning in mode TimeSlice only, the mode is {mode.value}"
        yield FieldError(f"{path}.slicePlacement", text)
    if (
        allocation.slices_per_device is not None
        and allocation.slices_per_device > MAX_DISTINCT_SLICES
        and allocation.slice_placement is not SlicePlacement.SAME_DEVICE
    ):
        text = f"is above {MAX_DISTINCT_SLICES}, which needs slicePlacement SameDevice"
        yield FieldError(f"{path}.slicesPerDevice", text)


def _mig_faults(
    allocation: "Allocation", shares: "list[MIGShare]", path: str
) -> "Iterator[FieldError]":
    if allocation.mode is not AllocationMode.MIG:
        text = f"has a meaning in mode MIG only, the mode is {allocation.mode.value}"
        yield FieldError(path, text)
    if allocation.mig_profile is not None:
        yield FieldError(path, "and migProfile exclude each other: remove one of them")
    if not shares:
        yield FieldError(path, "is empty: name a profile, or remove it")
    profiles = [share.profile for share in shares]
    for profile in sorted({item for item in profiles if profiles.count(item) > 1}):
        yield FieldError(path, f"has {truncate(profile)} more than once: add up its counts")
    if sum(share.count is None for share in shares) > 1:
        text = "only one profile can have as many instances as fit: give the others a count"
        yield FieldError(path, text)


def _assignment_faults(assignment: "Assignment", path: str) -> "Iterator[FieldError]":
    selector = assignment.auto_approve_selector
    if selector is not None and assignment.require_annotation:
        text = (
            "contradicts requireAnnotation: true (the default): set that to false to take devices by"
            " label, or remove the selector"
        )
        yield FieldError(f"{path}.autoApproveSelector", text)
    yield from selector_faults(selector, f"{path}.autoApproveSelector")


def _access_faults(access: "Access", path: str) -> "Iterator[FieldError]":
    for number, namespace in enumerate(access.namespaces or ()):
        yield from named(_namespace_fault(namespace), f"{path}.namespaces[{number}]")
    yield from selector_faults(access.namespace_selector, f"{path}.namespaceSelector")
    for number, account in enumerate(access.service_accounts or ()):
        namespace, _, _ = account.partition("/")
        yield from named(_namespace_fault(namespace), f"{path}.serviceAccounts[{number}]")


def _taint_faults(taints: "tuple[Taint, ...] | list[Taint]", path: str) -> "Iterator[FieldError]":
    seen: set[tuple[str, str]] = set()
    for number, taint in enumerate(taints):
        where = f"{path}[{number}]"
        yield from named(key_fault(taint.key), f"{where}.key")
        yield from named(value_fault(taint.value), f"{where}.value")
        if taint.effect not in _TAINT_EFFECTS:
            text = f'"{truncate(taint.effect)}" is none of {", ".join(_TAINT_EFFECTS)}'
            yield FieldError(f"{where}.effect", text)
        if (taint.key, taint.effect) in seen:
            yield FieldError(
                where, "a node can carry one taint of this key and effect only: merge the two"
            )
        seen.add((taint.key, taint.effect))


def _reservation_faults(reservation: "ReservationPolicy", path: str) -> "Iterator[FieldError]":
    if not MIN_TTL_S <= parse_duration_s(reservation.ttl) <= MAX_TTL_S:
        yield FieldError(f"{path}.ttl", f"{reservation.ttl} is not between {MIN_TTL_S}s and 1h")


def _maintenance_faults(maintenance: "gpupool.Maintenance", path: str) -> "Iterator[FieldError]":
    if not MIN_DEADLINE_S <= parse_duration_s(maintenance.deadline) <= MAX_DEADLINE_S:
        yield FieldError(f"{path}.deadline", f"{maintenance.deadline} is not between 1m and 168h")


def _namespace_fault(name: str) -> str | None:
    if len(name) <= _MAX_NAME_PART_LENGTH and _DNS_LABEL.fullmatch(name):
        return None
    return f'"{truncate(name)}" is no valid namespace name'
