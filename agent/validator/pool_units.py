"""The step `plugin`: the pools that have devices of this node show units in the Node's allocatable."""

from typing import TYPE_CHECKING, Any

from telemetry.conditions import PoolCondition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool


def missing_units(
    devices: "Iterable[GPUDevice]", pools: "Mapping[str, GPUPool]", allocatable: "Mapping[str, Any]"
) -> list[tuple[str, str]]:
    """Return the pools without a unit on the node, by name, with their resources.

    A pool that does not serve (in maintenance, misconfigured, without a healthy device) has none to show, and neither
    has one whose devices here are faulted or draining.
    """
    usable = {
        device.status.pool_ref.name
        for device in devices
        if device.status.pool_ref is not None
        and not (device.is_faulted or device.is_draining or device.is_ignored)
    }
    serving = (pools[name] for name in sorted(usable & pools.keys()) if _serves(pools[name]))
    return [
        (pool.metadata.name, resource)
        for pool in serving
        for resource in pool.resources
        if str(allocatable.get(resource, "0")) == "0"
    ]


def _serves(pool: "GPUPool") -> bool:
    return any(
        condition.type == PoolCondition.READY.value and condition.status == "True"
        for condition in pool.status.conditions or ()
    )
