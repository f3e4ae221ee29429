"""Resolution of one device's facts: its known status against the current reports.

A known fact is never lost to silence. Facts that a device keeps for life change only when a source that
reports each device by itself reports something materially different; labels, which describe devices in bulk,
fill gaps only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from api.kinds.gpudevice import MIG, PCI, GPUDeviceStatus, Link, MIGInstance
from api.names import NodeName
from inventory.discovery.merge import DeviceReport
from inventory.discovery.sources import Source
from inventory.identity import inventory_id
from inventory.products import display_product, is_same_product, product_by_id

_REPORTED: Final = {
    "uuid": "uuid",
    "vendor": "pci",
    "device": "pci",
    "class_": "pci",
    "product": "product",
    "memory_mib": "memoryMiB",
    "compute_capability": "computeCapability",
    "numa_node": "numaNode",
    "links": "links",
    "mig_capable": "mig",
    "mig_mode": "mig",
    "mig_profiles": "mig",
    "mig_capacities": "mig",
    "mig_instances": "mig",
}
"""Field of ReportedDevice -> field of the status that shows it."""
_OF_EACH_DEVICE: Final = (Source.AGENT, Source.INSTANCES)
_SAME_SIZE: Final = 20
"""Sizes that differ by less than a twentieth are spellings of one size: 80 GB, 81,920 MiB, 81,559 MiB."""


@final
@dataclass(frozen=True, slots=True)
class ResolvedFacts:
    """The facts that a GPUDevice's status should show."""

    status: GPUDeviceStatus
    """The inventory's fields."""
    unreported: tuple[str, ...]
    """Known fields of the status that no fresh source reports any more."""


def resolve_facts(
    current: GPUDeviceStatus,
    reports: Sequence[DeviceReport],
    *,
    node: NodeName,
    address: str,
    withheld: frozenset[str] = frozenset(),
) -> ResolvedFacts:
    """Return the resolved facts of a device.

    Args:
        current: its current status; empty for a new GPUDevice.
        reports: on its place, the most trusted first.
        node: its node.
        address: its place there.
        withheld: fields whose absence proves nothing now.
    """
    # Only a fresh source may replace a known device by another one.
    fresh = [report for report in reports if report.is_fresh]
    uuid = present_uuid(fresh) or current.uuid or present_uuid(reports)
    about_it = [report for report in reports if report.facts.uuid in {None, uuid}]
    facts = _current_facts(current)
    unreported = set()
    for field in _REPORTED:
        winner = _winner(field, about_it)
        if winner is not None:
            facts[field] = _RESOLVERS.get(field, _resolved)(facts[field], field, winner)
        is_reported = winner is not None and winner.is_fresh
        if not is_reported and field not in withheld and facts[field] not in _NOTHING:
            unreported.add(_REPORTED[field])
    facts["uuid"] = uuid
    if not facts["product"]:
        facts["product"] = product_by_id(facts["vendor"], facts["device"])
    return ResolvedFacts(_status(node, address, facts), tuple(sorted(unreported)))


def present_uuid(reports: Sequence[DeviceReport]) -> str:
    """Return the UUID of the device that is present; a silent source counts only without any other."""
    for is_fresh in (True, False):
        for report in reports:
            if report.is_fresh is is_fresh and report.facts.uuid is not None:
                return report.facts.uuid
    return ""


_NOTHING: Final = ("", 0, None, False, (), -1)


def _current_facts(current: GPUDeviceStatus) -> dict[str, Any]:
    pci, mig = current.pci, current.mig
    # A product from the table of PCI ids gives way to any source.
    is_guess = current.product != "" and current.product == product_by_id(pci.vendor, pci.device)
    return {
        "uuid": current.uuid,
        "vendor": pci.vendor,
        "device": pci.device,
        "class_": pci.class_,
        "product": "" if is_guess else current.product,
        "memory_mib": current.memory_mib,
        "compute_capability": current.compute_capability,
        "numa_node": -1 if current.numa_node is None else current.numa_node,
        "links": tuple(current.links or ()),
        "mig_capable": mig.capable,
        "mig_mode": mig.mode,
        "mig_profiles": tuple(mig.profiles or ()),
        "mig_capacities": tuple(sorted((mig.capacities or {}).items())),
        "mig_instances": tuple(mig.instances or ()),
    }


def _winner(field: str, reports: Sequence[DeviceReport]) -> DeviceReport | None:
    return next((report for report in reports if getattr(report.facts, field) is not None), None)


def _resolved(current: Any, field: str, winner: DeviceReport) -> Any:  # noqa: ANN401  # of the field's type
    """Return the value of a field that has one spelling."""
    reported = getattr(winner.facts, field)
    return reported if current in _NOTHING or winner.source in _OF_EACH_DEVICE else current


def _product(current: str, field: str, winner: DeviceReport) -> str:
    reported = display_product(winner.facts.product or "", winner.facts.vendor or "")
    if not current or not reported:
        return reported or current
    is_other = winner.source in _OF_EACH_DEVICE and not is_same_product(current, reported)
    return reported if is_other else current


def _memory(current: int, field: str, winner: DeviceReport) -> int:
    reported = winner.facts.memory_mib or 0
    if winner.source is Source.AGENT or not current:
        return reported
    is_other = abs(reported - current) * _SAME_SIZE > max(reported, current)
    return reported if winner.source is Source.INSTANCES and is_other else current


def _profiles(current: tuple[str, ...], field: str, winner: DeviceReport) -> tuple[str, ...]:
    """Return the possible profiles; labels show only those of the instances that exist now."""
    reported = winner.facts.mig_profiles or ()
    return reported if winner.source in _OF_EACH_DEVICE else tuple(sorted({*current, *reported}))


_RESOLVERS: Final[Mapping[str, Callable[[Any, str, DeviceReport], Any]]] = {
    "product": _product,
    "memory_mib": _memory,
    "mig_profiles": _profiles,
}


def _status(node: NodeName, address: str, facts: Mapping[str, Any]) -> GPUDeviceStatus:
    return GPUDeviceStatus(
        node_name=node,
        inventory_id=inventory_id(node, address),
        uuid=facts["uuid"],
        product=facts["product"],
        memory_mib=facts["memory_mib"],
        compute_capability=facts["compute_capability"],
        pci=PCI(
            vendor=facts["vendor"],
            device=facts["device"],
            class_=facts["class_"],
            address=address,
        ),
        numa_node=facts["numa_node"] if facts["numa_node"] >= 0 else None,
        links=[_link(node, link) for link in facts["links"]] or None,
        mig=MIG(
            capable=facts["mig_capable"],
            mode=facts["mig_mode"],
            profiles=list(facts["mig_profiles"]) or None,
            capacities=dict(facts["mig_capacities"]) or None,
            instances=[_instance(instance) for instance in facts["mig_instances"]] or None,
        ),
    )


def _link(node: NodeName, link: Any) -> Link:  # noqa: ANN401  # a known link, or a reported one
    if isinstance(link, Link):
        return link
    return Link(peer=inventory_id(node, link.peer), type=link.type, count=link.count)


def _instance(instance: Any) -> MIGInstance:  # noqa: ANN401  # a known instance, or a reported one
    if isinstance(instance, MIGInstance):
        return instance
    return MIGInstance(profile=instance.profile, uuid=instance.uuid)
