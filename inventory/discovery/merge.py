"""What all sources of a node say together: who says what of which card, in order of trust.

Nothing is decided between two values here, only who comes first; `inventory.discovery.plan` holds that against
what is known. A source with a heartbeat that is too old is *silent*: its words stand where they stood,
and prove nothing any more about who is there.
"""

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

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
class Statement:
    """What a source says of a card."""

    source: Source
    is_fresh: bool
    facts: ReportedDevice


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What all sources of a node say."""

    said: Mapping[str, tuple[Statement, ...]]
    """Address of a card that is listed or known -> statements, the most trusted first."""
    listed: frozenset[str]
    """Addresses of cards that are there, as a fresh source says."""
    is_whole: bool
    """A fresh source lists all cards of the node: what it does not list is gone."""
    expected: int | None
    """How many cards NFD finds on the bus; None where it does not say."""
    slots: tuple[int, ...]
    """The cards that labels number."""
    withheld: frozenset[str]
    """Fields that a fresh source cannot tell now."""
    has_devices: bool
    """Some source finds a card, or tried to tell of one."""
    versions: Versions
    heartbeat: dt.datetime | None
    is_silent: bool
    """The source with a heartbeat has not given one for too long."""
    bad: frozenset[BadFeature]


_NOTHING: Final = ReportedDevice()


def merge(
    labels: LabelReport,
    features: Sequence[FeatureReport],
    *,
    known: Collection[str],
    now: dt.datetime,
    fresh_for: dt.timedelta,
) -> Sighting:
    """Return what the sources of a node say together.

    Args:
        labels: of the node, and those that NodeFeatures ask for.
        features: what each NodeFeature of the node says; the first that says something is heard.
        known: addresses of the devices that the node has.
        now: for the age of heartbeats.
        fresh_for: how old a heartbeat may be. One from the future is judged alike: a clock that is off
            by more tells nothing.
    """
    heartbeat = max((one.heartbeat for one in features if one.heartbeat is not None), default=None)
    is_silent = heartbeat is not None and abs(now - heartbeat) > fresh_for
    agent = _union([one.agent for one in features])
    instances = _union([one.instances for one in features])
    lists = ((Source.AGENT, agent, not is_silent), (Source.INSTANCES, instances, True))
    listed, is_whole = _presence(agent if not is_silent else None, instances, labels)
    said: dict[str, list[Statement]] = {address: [] for address in sorted({*listed, *known})}
    for source, devices, is_fresh in lists:
        for device in devices.devices if devices is not None else ():
            if device.address in said:
                statement = Statement(source=source, is_fresh=is_fresh, facts=device)
                said[device.address].append(statement)
    _add_labels(said, labels)
    return Sighting(
        said={address: tuple(statements) for address, statements in said.items()},
        listed=listed,
        is_whole=is_whole,
        expected=labels.devices,
        slots=tuple(labels.slots),
        withheld=labels.withheld,
        has_devices=labels.has_devices
        or any(one.agent is not None or one.instances is not None for one in features),
        versions=_first_versions([*(one.versions for one in features), labels.versions]),
        heartbeat=heartbeat,
        is_silent=is_silent,
        bad=labels.bad.union(*(one.bad for one in features)),
    )


def merged_labels(node: Mapping[str, str], features: Sequence[FeatureReport]) -> Mapping[str, str]:
    """Return the node's labels, and those that its NodeFeatures ask for and it does not have yet."""
    asked: dict[str, str] = {}
    for feature in reversed(features):
        asked.update(feature.labels)
    return {**asked, **node} if asked else node


def _union(lists: Sequence[DeviceList | None]) -> DeviceList | None:
    """Return one list of several; the first that has an address tells of it."""
    given = [one for one in lists if one is not None]
    if not given:
        return None
    devices: dict[str, ReportedDevice] = {}
    for one in given:
        for device in one.devices:
            if device.address is not None:
                devices.setdefault(device.address, device)
    return DeviceList(
        devices=tuple(devices[key] for key in sorted(devices)),
        is_complete=all(one.is_complete for one in given),
    )


def _presence(
    agent: DeviceList | None, instances: DeviceList | None, labels: LabelReport
) -> tuple[frozenset[str], bool]:
    """Return the cards that are there, and whether those are all.

    The agent reads the bus. NVML, from which instances are made, does not see a card that fell off it or
    has no driver, so it is believed as long as it does not see less than NFD counts.
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


def _add_labels(said: Mapping[str, list[Statement]], labels: LabelReport) -> None:
    """Add what labels say, where it is certain which cards they mean."""
    numbered = [labels.slots[number] for number in sorted(labels.slots)]
    pairs = list(zip(said.values(), numbered, strict=False))
    if len(numbered) == len(said) and all(_agree(known, slot) for known, slot in pairs):
        for statements, slot in pairs:
            statements.append(Statement(source=Source.SLOTS, is_fresh=True, facts=slot))
    if labels.common != _NOTHING and _is_of_one_model(said, labels):
        common = Statement(source=Source.NODE, is_fresh=True, facts=labels.common)
        for statements in said.values():
            statements.append(common)


def _agree(known: Sequence[Statement], slot: ReportedDevice) -> bool:
    """Say whether a numbered card may be this one: no id contradicts."""
    for field in ("vendor", "device"):
        expected, actual = _first(known, field), getattr(slot, field)
        if expected is not None and actual is not None and expected != actual:
            return False
    return True


def _is_of_one_model(said: Mapping[str, Sequence[Statement]], labels: LabelReport) -> bool:
    """Say whether what is said of the node's cards at once is true of each.

    On a node with two models GFD's labels are of either, so they are about nobody there.
    """
    ids = {_first(statements, "device") for statements in said.values()}
    if None not in ids:
        return len(ids) == 1
    return len(ids) == 1 and labels.of_one_model in {None, len(said)}


def _first(statements: Sequence[Statement], field: str) -> str | None:
    found = (getattr(one.facts, field) for one in statements)
    return next((value for value in found if value is not None), None)


def _first_versions(said: Sequence[Versions]) -> Versions:
    return Versions(
        driver=next((one.driver for one in said if one.driver is not None), None),
        cuda=next((one.cuda for one in said if one.cuda is not None), None),
        toolkit=next((one.toolkit for one in said if one.toolkit is not None), None),
    )
