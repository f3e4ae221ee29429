"""One card: what is known of it, held against what its sources say now.

What was once known is never lost to silence. Facts that a card keeps for life change only when a source
that tells of each card by itself says something materially different; labels, which speak of cards in
bulk, fill gaps only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from api.kinds.gpudevice import MIG, PCI, GPUDeviceStatus, Link, MIGInstance
from api.names import NodeName
from inventory.discovery.merge import Statement
from inventory.discovery.sources import Source
from inventory.identity import inventory_id
from inventory.products import display_product, is_same_product, product_by_id

_SHOWN: Final = {
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
    "mig_instances": "mig",
}
"""Field of CardFacts -> of the status that shows it."""
_OF_EACH_DEVICE: Final = (Source.AGENT, Source.INSTANCES)
_SAME_SIZE: Final = 20
"""Sizes that differ by a twentieth are spellings of one: 80 GB, 81,920 MiB, 81,559 MiB."""


@final
@dataclass(frozen=True, slots=True)
class ResolvedFacts:
    """What a card's status should show."""

    status: GPUDeviceStatus
    """Our fields of it."""
    untold: tuple[str, ...]
    """Fields of the status that are known, and that no fresh source tells any more."""


def resolve_facts(
    known: GPUDeviceStatus,
    statements: Sequence[Statement],
    *,
    node: NodeName,
    address: str,
    withheld: frozenset[str] = frozenset(),
) -> ResolvedFacts:
    """Return what is to be known of a card.

    Args:
        known: what its status shows; empty for a new one.
        statements: what sources say of its place, the most trusted first.
        node: where it is.
        address: its place there.
        withheld: fields of which silence means nothing now.
    """
    # Of a card that is known, only a fresh source may say that it is another one.
    fresh = [one for one in statements if one.is_fresh]
    uuid = present_uuid(fresh) or known.uuid or present_uuid(statements)
    about_it = [one for one in statements if one.facts.uuid in {None, uuid}]
    facts = _known_facts(known)
    untold = set()
    for field in _SHOWN:
        winner = _winner(field, about_it)
        if winner is not None:
            facts[field] = _SETTLING.get(field, _settled)(facts[field], field, winner)
        is_told = winner is not None and winner.is_fresh
        if not is_told and field not in withheld and facts[field] not in _NOTHING:
            untold.add(_SHOWN[field])
    facts["uuid"] = uuid
    if not facts["product"]:
        facts["product"] = product_by_id(facts["vendor"], facts["device"])
    return ResolvedFacts(_status(node, address, facts), tuple(sorted(untold)))


def present_uuid(statements: Sequence[Statement]) -> str:
    """Return the UUID of the card that is there now; a silent source tells it only where no other does."""
    for is_fresh in (True, False):
        for one in statements:
            if one.is_fresh is is_fresh and one.facts.uuid is not None:
                return one.facts.uuid
    return ""


_NOTHING: Final = ("", 0, None, False, (), -1)


def _known_facts(known: GPUDeviceStatus) -> dict[str, Any]:
    pci, mig = known.pci, known.mig
    # What only the table of PCI ids told gives way to any source.
    is_guess = known.product != "" and known.product == product_by_id(pci.vendor, pci.device)
    return {
        "uuid": known.uuid,
        "vendor": pci.vendor,
        "device": pci.device,
        "class_": pci.class_,
        "product": "" if is_guess else known.product,
        "memory_mib": known.memory_mib,
        "compute_capability": known.compute_capability,
        "numa_node": -1 if known.numa_node is None else known.numa_node,
        "links": tuple(known.links or ()),
        "mig_capable": mig.capable,
        "mig_mode": mig.mode,
        "mig_profiles": tuple(mig.profiles or ()),
        "mig_instances": tuple(mig.instances or ()),
    }


def _winner(field: str, statements: Sequence[Statement]) -> Statement | None:
    return next((one for one in statements if getattr(one.facts, field) is not None), None)


def _settled(known: Any, field: str, winner: Statement) -> Any:  # noqa: ANN401  # of the field's type
    """Return the value of a field that has one spelling."""
    said = getattr(winner.facts, field)
    return said if known in _NOTHING or winner.source in _OF_EACH_DEVICE else known


def _product(known: str, field: str, winner: Statement) -> str:
    said = display_product(winner.facts.product or "", winner.facts.vendor or "")
    if not known or not said:
        return said or known
    is_other = winner.source in _OF_EACH_DEVICE and not is_same_product(known, said)
    return said if is_other else known


def _memory(known: int, field: str, winner: Statement) -> int:
    said = winner.facts.memory_mib or 0
    if winner.source is Source.AGENT or not known:
        return said
    is_other = abs(said - known) * _SAME_SIZE > max(said, known)
    return said if winner.source is Source.INSTANCES and is_other else known


def _profiles(known: tuple[str, ...], field: str, winner: Statement) -> tuple[str, ...]:
    """Return what the card can be cut into; labels show only what some card is cut into now."""
    said = winner.facts.mig_profiles or ()
    return said if winner.source in _OF_EACH_DEVICE else tuple(sorted({*known, *said}))


_SETTLING: Final[Mapping[str, Callable[[Any, str, Statement], Any]]] = {
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
        links=[_link(node, one) for one in facts["links"]] or None,
        mig=MIG(
            capable=facts["mig_capable"],
            mode=facts["mig_mode"],
            profiles=list(facts["mig_profiles"]) or None,
            instances=[_instance(one) for one in facts["mig_instances"]] or None,
        ),
    )


def _link(node: NodeName, link: Any) -> Link:  # noqa: ANN401  # a link that is known, or as the source tells it
    if isinstance(link, Link):
        return link
    return Link(peer=inventory_id(node, link.peer), type=link.type, count=link.count)


def _instance(instance: Any) -> MIGInstance:  # noqa: ANN401  # one that is known, or as the source tells it
    if isinstance(instance, MIGInstance):
        return instance
    return MIGInstance(profile=instance.profile, uuid=instance.uuid)
