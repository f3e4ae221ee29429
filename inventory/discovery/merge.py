"""Merge of all sources of a node: the reports on each device, in order of trust.

The merge orders reports and does not choose between two values; `inventory.discovery.plan` compares them with
the known status. A source whose heartbeat is too old is *silent*: its reports keep their rank, and prove no
longer which devices are present.
"""

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from api.kinds.gpunodeinventory import KubeletConfiguration, NodeSystem
from inventory.discovery.labels import LabelReport
from inventory.discovery.sources import (
    BadFeature,
    DeviceList,
    FeatureReport,
    ReportedDevice,
    Source,
    Versions,
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """The facts that one source reports on a device."""

    source: Source
    is_fresh: bool
    facts: ReportedDevice


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MergedReport:
    """The reports of all sources of a node."""

    by_address: Mapping[str, tuple[DeviceReport, ...]]
    """Address of a listed or known device -> reports, the most trusted first."""
    listed: frozenset[str]
    """Addresses of the present devices, by fresh sources."""
    is_whole: bool
    """Whether a fresh source lists all devices of the node: any other device is gone."""
    expected: int | None
    """Number of devices that NFD finds on the bus; None without a count."""
    slots: tuple[int, ...]
    """Numbers of the devices in labels."""
    withheld: frozenset[str]
    """Fields that a fresh source cannot report now."""
    has_devices: bool
    """Whether any source reports a device, even an invalid one."""
    versions: Versions
    system: NodeSystem
    kubelet: KubeletConfiguration | None
    heartbeat: dt.datetime | None
    is_silent: bool
    """Whether the heartbeat is too old."""
    bad: frozenset[BadFeature]

    def is_passed_through(self, address: str) -> bool:
        """Whether a device is bound to a VFIO driver: a virtual machine has it, and no driver of ours reports it.

        It stays so while the source that said it is silent.
        """
        drivers = (item.facts.driver for item in self.by_address.get(address, ()))
        return "vfio" in next(filter(None, drivers), "")


_NOTHING: Final = ReportedDevice()


def merge(
    labels: LabelReport,
    features: Sequence[FeatureReport],
    *,
    addresses: Collection[str],
    now: dt.datetime,
    fresh_for: dt.timedelta,
) -> MergedReport:
    """Return the merged report of a node.

    Args:
        labels: of the node, and those that NodeFeatures ask for.
        features: the report of each NodeFeature of the node; the first one with a value wins.
        addresses: addresses of the node's GPUDevices.
        now: for the age of heartbeats.
        fresh_for: maximum age of a heartbeat; also the maximum distance into the future, since a clock
            that is off by more proves nothing.
    """
    heartbeat = max(
        (feature.heartbeat for feature in features if feature.heartbeat is not None), default=None
    )
    is_silent = heartbeat is not None and abs(now - heartbeat) > fresh_for
    agent = _union([feature.agent for feature in features])
    instances = _union([feature.instances for feature in features])
    lists = ((Source.AGENT, agent, not is_silent), (Source.INSTANCES, instances, True))
    listed, is_whole = _presence(agent if not is_silent else None, instances, labels)
    reported: dict[str, list[DeviceReport]] = {
        address: [] for address in sorted({*listed, *addresses})
    }
    for source, devices, is_fresh in lists:
        for device in devices.devices if devices is not None else ():
            if device.address in reported:
                report = DeviceReport(source=source, is_fresh=is_fresh, facts=device)
                reported[device.address].append(report)
    _add_labels(reported, labels)
    return MergedReport(
        by_address={address: tuple(reports) for address, reports in reported.items()},
        listed=listed,
        is_whole=is_whole,
        expected=labels.devices,
        slots=tuple(labels.slots),
        withheld=labels.withheld,
        has_devices=labels.has_devices
        or any(
            feature.is_on_bus or feature.agent is not None or feature.instances is not None
            for feature in features
        ),
        versions=_first_versions([*(feature.versions for feature in features), labels.versions]),
        system=_first_system([*(feature.system for feature in features), labels.system]),
        kubelet=next(
            (feature.kubelet for feature in features if feature.kubelet is not None), None
        ),
        heartbeat=heartbeat,
        is_silent=is_silent,
        bad=labels.bad.union(*(feature.bad for feature in features)),
    )


def merged_labels(node: Mapping[str, str], features: Sequence[FeatureReport]) -> Mapping[str, str]:
    """Return the node's labels, with those that its NodeFeatures ask for and the node lacks."""
    asked: dict[str, str] = {}
    for feature in reversed(features):
        asked.update(feature.labels)
    return {**asked, **node} if asked else node


def _union(lists: Sequence[DeviceList | None]) -> DeviceList | None:
    """Return one list of several; the first report on an address wins."""
    given = [list_ for list_ in lists if list_ is not None]
    if not given:
        return None
    devices: dict[str, ReportedDevice] = {}
    for item in given:
        for device in item.devices:
            if device.address is not None:
                devices.setdefault(device.address, device)
    return DeviceList(
        devices=tuple(devices[key] for key in sorted(devices)),
        is_complete=all(item.is_complete for item in given),
    )


def _presence(
    agent: DeviceList | None, instances: DeviceList | None, labels: LabelReport
) -> tuple[frozenset[str], bool]:
    """Return the present devices, and whether the list is complete.

    The agent reads the bus. NVML, the source of instances, does not see a device that fell off the bus or has no
    driver, so it is trusted as long as it lists no fewer devices than NFD counts.
    """
    if agent is not None and agent.is_complete:
        return _addresses(agent), True
    if instances is not None and instances.is_complete:
        listed = _addresses(instances)
        least = labels.devices if labels.devices is not None else int(labels.has_devices)
        return listed | _addresses(agent), agent is None and len(listed) >= least
    return _addresses(agent) | _addresses(instances), False


def _addresses(devices: DeviceList | None) -> frozenset[str]:
    given = devices.devices if devices is not None else ()
    return frozenset(device.address for device in given if device.address is not None)


def _add_labels(reported: Mapping[str, list[DeviceReport]], labels: LabelReport) -> None:
    """Add the facts of labels, where the devices they mean are certain."""
    numbered = [labels.slots[number] for number in sorted(labels.slots)]
    pairs = list(zip(reported.values(), numbered, strict=False))
    if len(numbered) == len(reported) and all(_agree(reports, slot) for reports, slot in pairs):
        for reports, slot in pairs:
            reports.append(DeviceReport(source=Source.SLOTS, is_fresh=True, facts=slot))
    if labels.common != _NOTHING and _is_of_one_model(reported, labels):
        common = DeviceReport(source=Source.NODE, is_fresh=True, facts=labels.common)
        for reports in reported.values():
            reports.append(common)


def _agree(reports: Sequence[DeviceReport], slot: ReportedDevice) -> bool:
    """Whether a numbered device may be this one: no id contradicts."""
    for field in ("vendor", "device"):
        expected, actual = _first(reports, field), getattr(slot, field)
        if expected is not None and actual is not None and expected != actual:
            return False
    return True


def _is_of_one_model(reported: Mapping[str, Sequence[DeviceReport]], labels: LabelReport) -> bool:
    """Whether the facts about all devices of the node hold for each of them.

    On a node with two models GFD's labels describe either of them, so they are used for none. Two vGPUs of one device have
    one id and may be two models, so GFD has to count as many of the model as there are; where it counts MIG instances
    instead, the id decides.
    """
    ids = {_first(reports, "device") for reports in reported.values()}
    return len(ids) == 1 and (bool(labels.withheld) or labels.model_count == len(reported))


def _first(reports: Sequence[DeviceReport], field: str) -> str | None:
    found = (getattr(report.facts, field) for report in reports)
    return next((value for value in found if value is not None), None)


def _first_versions(reported: Sequence[Versions]) -> Versions:
    return Versions(
        driver=next((item.driver for item in reported if item.driver is not None), None),
        cuda=next((item.cuda for item in reported if item.cuda is not None), None),
        toolkit=next((item.toolkit for item in reported if item.toolkit is not None), None),
    )


def _first_system(reported: Sequence[NodeSystem]) -> NodeSystem:
    """Return kernel and operating system; ID and version are of one source, since they belong together."""
    system = next((item for item in reported if item.os), NodeSystem())
    return NodeSystem(
        kernel=next((item.kernel for item in reported if item.kernel), ""),
        os=system.os,
        os_version=system.os_version,
    )
