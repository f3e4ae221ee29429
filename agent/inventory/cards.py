"""The cards of a node, put together from what the bus shows, the driver says, and health is judged to be.

Values in, values out: which cards there are, their attributes in the node's NodeFeature
(`api.foreign.nodefeature.AgentCard`), and the file of cards (`api.nodefiles.cards`).

Who is there:

* What the bus has is there. What the driver shows besides is there too, since a container may have no view
  of the bus.
* A card that the bus has and the driver does not show, though it did before, is *lost*: its UUID is
  remembered, because health is about a UUID. The same where the kernel's driver is bound to it, and the
  driver shows others only. A card that another driver has (vfio-pci) is none of ours, and not lost.
* Without a driver there are PCI facts alone: what the driver said before is the control plane's to remember.

Each attribute is held against the reader's own parser (`inventory.discovery.parsing`): what it would not take is left
out and named, so that one odd text of a driver does not cost the other facts.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

import msgspec

from agent.health.verdicts import DeviceHealthState, HealthState
from api.foreign.nodefeature import AgentCard, AgentNode
from api.nodefiles.cards import NodeCard, NodeCards, NodeInstance, SharedParts
from inventory.discovery import parsing as values
from inventory.identity import canonical_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent.driver.device_files import FoundFiles
    from agent.driver.pci import PciCard
    from agent.driver.port import DriverCard, DriverLook
    from api.nodefiles.cards import NodeMount

NVIDIA_DRIVER: Final = "nvidia"
"""The kernel's driver, as the bus names it."""
NOT_SHOWN: Final = DeviceHealthState(
    HealthState.LOST,
    "LostFromDriver",
    "the kernel's driver has the card, and NVML does not show it: see dmesg, and reset or reboot",
)
_MAX_UUID_LENGTH: Final = 63
"""`api.nodefiles.cards.Uuid`, and what kubelet takes."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredNode:
    """What was seen of a node's cards."""

    bus: "tuple[PciCard, ...] | None" = None
    """None where the bus cannot be read, which is not an empty one."""
    look: "DriverLook | None" = None
    """None where there is no driver."""
    known: "Mapping[str, str]" = field(default_factory=dict)
    """PCI address -> UUID, of cards that the driver showed and that were not taken out since."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCardFacts:
    """One card."""

    address: str
    pci: "PciCard | None" = None
    said: "DriverCard | None" = None
    """By the driver."""
    uuid: str = ""
    health: DeviceHealthState | None = None
    """None where nobody can judge it."""


def discovered_devices(
    sight: DiscoveredNode, health: "Callable[[str], DeviceHealthState]"
) -> tuple[NodeCardFacts, ...] | None:
    """Return the node's cards by address; None where neither bus nor driver can be asked."""
    if sight.bus is None and sight.look is None:
        return None
    bus = {one.address: one for one in sight.bus or ()}
    said = _by_address(sight.look)
    addresses = {*bus, *said}
    if sight.bus is None:
        addresses |= sight.known.keys()
    return tuple(
        _card(address, bus.get(address), said.get(address), sight, health)
        for address in sorted(addresses)
    )


def _by_address(look: "DriverLook | None") -> "dict[str, DriverCard]":
    found = {}
    for card in look.cards if look is not None else ():
        address = canonical_address(card.address)
        if address is not None:
            found[address] = card
    return found


def _card(  # noqa: PLR0917  # of one address: what each source has there
    address: str,
    pci: "PciCard | None",
    said: "DriverCard | None",
    sight: DiscoveredNode,
    health: "Callable[[str], DeviceHealthState]",
) -> NodeCardFacts:
    facts = NodeCardFacts(address=address, pci=pci, said=said)
    if said is not None:
        return replace(facts, uuid=said.uuid, health=health(said.uuid) if said.uuid else None)
    is_foreign = pci is not None and pci.driver not in {None, NVIDIA_DRIVER}
    if sight.look is None or is_foreign:
        return facts
    uuid = sight.known.get(address, "")
    if uuid:
        judged = health(uuid)
        return replace(facts, uuid=uuid, health=NOT_SHOWN if judged.is_healthy else judged)
    is_bound = pci is not None and pci.driver == NVIDIA_DRIVER
    return replace(facts, health=NOT_SHOWN) if is_bound and sight.look.cards else facts


def known_after(
    known: "Mapping[str, str]", look: "DriverLook", *, bus: "Sequence[PciCard] | None"
) -> dict[str, str]:
    """Return which card is where, after a look that the driver answered."""
    shown = {address: one.uuid for address, one in _by_address(look).items() if one.uuid}
    present = None if bus is None else {one.address for one in bus}
    kept = {
        address: uuid
        for address, uuid in known.items()
        if (present is None or address in present) and uuid not in shown.values()
    }
    return kept | shown


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What is said of the node and its cards."""

    cards: "tuple[Mapping[str, str], ...]"
    """Attributes of each, by address."""
    node: "Mapping[str, str]"
    unsayable: tuple[str, ...] = ()
    """Keys whose value the reader would not take, with their card."""


def published_of(cards: "Iterable[NodeCardFacts]", look: "DriverLook | None") -> Published:
    """Return what is to be published; the same facts give the same texts."""
    told: list[Mapping[str, str]] = []
    unsayable: list[str] = []
    for card in cards:
        saying = _Saying()
        _say_card(saying, card)
        told.append(saying.texts)
        unsayable += (f"{card.address} {key}" for key in saying.unsayable)
    node = _Saying()
    if look is not None:
        node.say(AgentNode.DRIVER_VERSION, look.driver_version, values.version)
        node.say(AgentNode.CUDA_VERSION, look.cuda_version, values.version)
    unsayable += node.unsayable
    return Published(cards=tuple(told), node=node.texts, unsayable=tuple(unsayable))


class _Saying:
    """Texts by key, of values that the reader takes."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.unsayable: list[str] = []

    def say(self, key: str, value: object | None, parse: "Callable[[str], object | None]") -> None:
        """Say a value; None and the empty text are nothing said."""
        text = "" if value is None else str(value)
        if not text:
            return
        if parse(text) is None:
            self.unsayable.append(key)
        else:
            self.texts[key] = text


def _say_card(saying: _Saying, card: NodeCardFacts) -> None:
    saying.say(AgentCard.ADDRESS, card.address, values.address)
    saying.say(AgentCard.UUID, card.uuid, values.uuid)
    if card.pci is not None:
        saying.say(AgentCard.VENDOR, card.pci.vendor, values.hex_id)
        saying.say(AgentCard.DEVICE, card.pci.device, values.hex_id)
        saying.say(AgentCard.CLASS, card.pci.class_, values.pci_class)
        saying.say(AgentCard.NUMA_NODE, card.pci.numa_node, values.numa_node)
    if card.said is not None and not card.said.is_lost:
        _say_driver(saying, card.said)
    if card.health is not None:
        saying.say(AgentCard.HEALTH, card.health.state.value, values.word)
        saying.say(AgentCard.HEALTH_REASON, card.health.reason, values.word)


def _say_driver(saying: _Saying, said: "DriverCard") -> None:
    saying.say(AgentCard.PRODUCT, said.product, values.product)
    saying.say(AgentCard.MEMORY, said.memory_mib, values.memory_mib)
    saying.say(AgentCard.COMPUTE_CAPABILITY, said.compute_capability, values.compute_capability)
    # Nobody reads watts yet: any whole number will do.
    saying.say(AgentCard.POWER_LIMIT, said.power_limit_watts, int)
    saying.say(AgentCard.MAX_POWER_LIMIT, said.max_power_limit_watts, int)
    links = [
        {"peer": one.peer, "type": one.type.value, "count": one.count}
        for one in sorted(said.links, key=lambda one: (one.peer, one.type.value))
    ]
    saying.say(AgentCard.LINKS, _json(links), values.links)
    saying.say(AgentCard.MIG_CAPABLE, str(said.is_mig_capable).lower(), values.flag)
    if not said.is_mig_capable:
        return
    saying.say(AgentCard.MIG_MODE, "Enabled" if said.is_mig_enabled else "Disabled", values.word)
    profiles = sorted({one.name for one in said.profiles})
    saying.say(AgentCard.MIG_PROFILES, ",".join(profiles), values.profiles)
    # What lacks its compute instance has no UUID, and can be given to nobody.
    instances = [
        {"profile": one.profile, "uuid": one.uuid}
        for one in sorted(said.instances, key=lambda one: (one.profile, one.uuid))
        if one.uuid
    ]
    saying.say(AgentCard.MIG_INSTANCES, _json(instances), values.partitions)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def node_cards(
    cards: "Iterable[NodeCardFacts]", files: "FoundFiles", mounts: "Sequence[NodeMount]"
) -> NodeCards:
    """Return the file of cards: those with a UUID that kubelet can be told."""
    return NodeCards(
        version="v1",
        cards=[_node_card(card, files) for card in cards if is_nameable(card.uuid)],
        shared=SharedParts(nodes=[one.host_path for one in files.shared], mounts=list(mounts)),
    )


def is_nameable(uuid: str) -> bool:
    """Say whether kubelet, the reader and the runtime all take the name."""
    return (
        len(uuid) <= _MAX_UUID_LENGTH and values.uuid(uuid) is not None and not uuid.endswith("-")
    )


def _node_card(card: NodeCardFacts, files: "FoundFiles") -> NodeCard:
    said, own = card.said, files.by_uuid.get(card.uuid, ())
    is_healthy = card.health is None or card.health.is_healthy
    instances = None
    if said is not None and said.is_mig_enabled:
        instances = [
            NodeInstance(
                uuid=one.uuid,
                profile=one.profile,
                nodes=[
                    file.host_path for file in files.by_uuid.get(one.uuid, ()) if file not in own
                ],
            )
            for one in sorted(said.instances, key=lambda one: one.gpu_instance)
            if is_nameable(one.uuid)
        ]
    return NodeCard(
        uuid=card.uuid,
        address=card.address,
        nodes=[file.host_path for file in own],
        instances=instances,
        is_healthy=is_healthy,
        reason="" if is_healthy or card.health is None else card.health.reason,
    )
