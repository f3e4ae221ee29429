"""The page of the devices' metrics in Prometheus' exposition format, with dcgm-exporter's labels: pure.

A device that one container has is a series of each field, with the container's labels. A device in time slices has a
series of the fields of usage for each container that has some, with the values of the whole device: the driver knows no others.
Its other fields are one series, of the pool alone: 16 devices of 64 slices would have 25,000 series otherwise. A
partitioned device has one series of each field, and one of its memory for each MIG instance.
"""

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agent.device_metrics.holders import Holder, Holders
from agent.driver.device_fields import DeviceField
from telemetry.device_page import DEVICE_METRICS_STALE, PROCESS_UNACCOUNTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from prometheus_client import Metric

    from agent.device_metrics.unaccounted_processes import UnaccountedDevice
    from agent.driver.device_fields import DeviceSample

[_STALE] = DEVICE_METRICS_STALE.describe()
[_UNACCOUNTED] = PROCESS_UNACCOUNTED.describe()
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_NO_HOLDERS: Final = Holders({})


class DevicePage(NamedTuple):
    content: bytearray
    """Not copied into bytes: it may have two megabytes."""
    implausible: "Sequence[DeviceField]"
    """The field of each value that was left out."""


class _Series(NamedTuple):
    """The label sets of a sample, for the fields of usage and for the others."""

    sample: "DeviceSample"
    usage: list[str]
    others: list[str]


def page_of(
    samples: "Iterable[DeviceSample]",
    holders: "Mapping[str, Holders]",
    *,
    pools: "Mapping[str, str]",
    node: str,
    unaccounted: "Mapping[UnaccountedDevice, int] | None" = None,
    is_stale: bool = False,
) -> DevicePage:
    """Return the page.

    Args:
        samples: values of the devices.
        holders: of each device and MIG instance that some container has, by UUID.
        pools: pool of each device, by UUID; devices without one are absent.
        node: name of the node.
        unaccounted: processes on devices that their pods were not given.
        is_stale: whether the values are those of an earlier page.
    """
    every = [_series(item, holders, pools, node=node) for item in samples]
    content = bytearray(f"{_head(_STALE)}{_STALE.name} {int(is_stale)}\n".encode())
    implausible: list[DeviceField] = []
    for field in DeviceField:
        description, name = field.value, field.value.name
        is_empty = True
        for sample, usage, others in every:
            value = sample.values.get(field)
            if value is None:
                continue
            # A value that is no number is not below the bound, either.
            if not 0 <= value <= description.maximum:
                implausible.append(field)
                continue
            if is_empty:
                content += (
                    f"# HELP {name} {description.help}\n# TYPE {name} {description.type}\n".encode()
                )
                is_empty = False
            end = f"}} {_number(value)}\n"
            labels = usage if description.is_usage else others
            # One text a device, because a shared one has a line for each container.
            content += (f"{name}{{" + f"{end}{name}{{".join(labels) + end).encode()
    if unaccounted:
        content += _unaccounted(every, unaccounted, node).encode()
    return DevicePage(content, implausible)


def _unaccounted(
    every: "Iterable[_Series]", counts: "Mapping[UnaccountedDevice, int]", node: str
) -> str:
    devices = {
        item.sample.unit or item.sample.uuid: _device_labels(item.sample, node) for item in every
    }
    lines = [
        f"{_UNACCOUNTED.name}{{{devices[device.unit]}{_holder_labels(device.holder)}}} {count}\n"
        for device, count in counts.items()
        if device.unit in devices
    ]
    return _head(_UNACCOUNTED) + "".join(lines) if lines else ""


def _head(family: "Metric") -> str:
    """Return the comments before a metric's samples."""
    name = family.name
    return f"# HELP {name} {family.documentation}\n# TYPE {name} {family.type}\n"


def _series(
    sample: "DeviceSample",
    holders: "Mapping[str, Holders]",
    pools: "Mapping[str, str]",
    *,
    node: str,
) -> _Series:
    device = _device_labels(sample, node)
    held = holders.get(sample.unit or sample.uuid, _NO_HOLDERS)
    own = Holder(pools.get(sample.uuid, ""), "", "", "")
    containers = list(held.containers) or [own]
    if held.is_shared:
        own = Holder(containers[0].pool, "", "", "")
    usage = [device + _holder_labels(container) for container in containers]
    return _Series(sample, usage, [device + _holder_labels(own)] if held.is_shared else usage)


def _device_labels(sample: "DeviceSample", node: str) -> str:
    """Return the labels of dcgm-exporter; `pci_bus_id` as NVML spells it."""
    domain, _, remaining = sample.address.partition(":")
    labels = {
        "gpu": str(sample.index),
        "UUID": sample.uuid,
        "pci_bus_id": f"{domain:0>8}:{remaining.upper()}",
        "device": f"nvidia{sample.minor}" if sample.minor >= 0 else "",
        "modelName": sample.product,
        "Hostname": node,
    }
    if sample.gpu_instance is not None:
        labels |= {"GPU_I_PROFILE": sample.profile, "GPU_I_ID": str(sample.gpu_instance)}
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _holder_labels(holder: Holder) -> str:
    """Return the labels of the container, which may be empty, and the pool where there is one.

    Prometheus adds the namespace, pod and container that it scrapes where a page does not have these labels, so that a
    free device would seem to be the agent's.
    """
    pairs = zip(Holder._fields, holder, strict=True)
    return "".join(
        f',{name}="{_escaped(value)}"' for name, value in pairs if value or name != "pool"
    )


def _escaped(value: str) -> str:
    return value.translate(_ESCAPES)


def _number(value: float) -> str:
    return str(int(value)) if value == math.floor(value) else repr(value)
