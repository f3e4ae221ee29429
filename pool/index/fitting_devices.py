"""A node as a pod sees it that mounts kernel caches: devices that they do not fit have no units.

Pools are nearly always of one product, so that mostly all devices fit, or none.
"""

from typing import TYPE_CHECKING

from pool.index.devices import DeviceEntry
from pool.refusal import CacheIncompatibility

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pool.device_limit import DeviceLimit
    from pool.placement.device_rules import DeviceRules


def limited(
    entries: "Sequence[DeviceEntry]", limit: "DeviceLimit", rules: "DeviceRules"
) -> "tuple[Sequence[DeviceEntry], CacheIncompatibility | None]":
    """Return the devices of a node, those that do not fit without their units, and why these do not."""
    unfit = {
        capability
        for capability in {entry.facts.compute_capability for entry in entries if entry.layout.full}
        if not limit.fits(capability)
    }
    if not unfit:
        return entries, None
    subject, reason = limit.incompatibility(sorted(unfit))
    if rules.is_kubelets_choice:  # it does not know what fits
        reason = f"kubelet chooses among them, and not all fit ({reason})"
    incompatibility = CacheIncompatibility(subject, reason)
    return [
        DeviceEntry(entry.facts)
        if entry.facts.compute_capability in unfit or rules.is_kubelets_choice
        else entry
        for entry in entries
    ], incompatibility
