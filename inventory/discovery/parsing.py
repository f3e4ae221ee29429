"""Parsers from the text of a label or attribute to a value; None for invalid text.

Plain functions of text, bounded, that never raise: foreign sources may write any text.
"""

import re
from decimal import Decimal
from typing import Final

import msgspec

from api.field_errors import UNDECODABLE
from api.kinds.gpudevice import LastXid
from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from api.mig.profile import reported_profile
from api.names import MAX_MIG_INSTANCES, MAX_NUMA_NODE, UUID_PATTERN
from api.status_conditions import parse_time
from inventory.identity import canonical_address

MAX_MEMORY_MIB: Final = 2**24
"""16 TiB: more than any device has."""
_MAX_INDEX: Final = 1024
_MAX_PRODUCT: Final = 256
_MIB: Final = {
    "": Decimal(1),
    "m": Decimal(1),
    "mb": Decimal(1),
    "mib": Decimal(1),
    "g": Decimal(2**10),
    "gb": Decimal(2**10),
    "gib": Decimal(2**10),
    "t": Decimal(2**20),
    "tb": Decimal(2**20),
    "tib": Decimal(2**20),
    "kb": Decimal(1) / 2**10,
    "kib": Decimal(1) / 2**10,
    "b": Decimal(1) / 2**20,
    "bytes": Decimal(1) / 2**20,
}
"""NVIDIA's tools write MB and GB where they mean binary ones; a bare number is MiB."""
_MEMORY: Final = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([A-Za-z]{0,5})", re.ASCII)
_UUID: Final = re.compile(UUID_PATTERN, re.ASCII)
_HEX: Final = re.compile(r"(?:0x)?([0-9a-f]{1,4})", re.ASCII | re.IGNORECASE)
_CLASS: Final = re.compile(r"(?:0x)?([0-9a-f]{4})(?:[0-9a-f]{2})?", re.ASCII | re.IGNORECASE)
_CAPABILITY: Final = re.compile(r"\d{1,2}\.\d{1,2}", re.ASCII)
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_RESOURCE: Final = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9._-]{1,63}", re.ASCII)
_MAX_RESOURCES: Final = 64
_POLICIES: Final = {item.value: item for item in TopologyManagerPolicy}
_SCOPES: Final = {item.value: item for item in TopologyManagerScope}
_WORDS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def topology_policy(text: str) -> TopologyManagerPolicy | None:
    return _POLICIES.get(text)


def topology_scope(text: str) -> TopologyManagerScope | None:
    return _SCOPES.get(text)


def resources(text: str) -> list[str] | None:
    names = list(dict.fromkeys(text.split(",")))
    is_valid = len(names) <= _MAX_RESOURCES and all(map(_RESOURCE.fullmatch, names))
    return names if is_valid else None


class PeerLink(msgspec.Struct, frozen=True):
    """A link to another device, by its address."""

    peer: str
    type: str
    count: int = 1


class MigPartition(msgspec.Struct, frozen=True):
    """A MIG instance on a device."""

    profile: str
    uuid: str


_links = msgspec.json.Decoder(tuple[PeerLink, ...])
_capacities = msgspec.json.Decoder(dict[str, int])
_partitions = msgspec.json.Decoder(tuple[MigPartition, ...])
_last_xid = msgspec.json.Decoder(LastXid)


def memory_mib(text: str) -> int | None:
    """Return MiB of `81559`, `80 GiB`, `85899345920 bytes`."""
    found = _MEMORY.fullmatch(text.strip())
    unit = _MIB.get(found.group(2).lower()) if found is not None else None
    if found is None or unit is None:
        return None
    mib = int(Decimal(found.group(1)) * unit)
    return mib if 0 < mib <= MAX_MEMORY_MIB else None


def uuid(text: str) -> str | None:
    """Return a UUID of a device or instance; it never contains `::`, the separator of slices."""
    return text if _UUID.fullmatch(text) else None


def address(text: str) -> str | None:
    return canonical_address(text)


def hex_id(text: str) -> str | None:
    """Return four lower-case hex digits."""
    found = _HEX.fullmatch(text.strip())
    return found.group(1).lower().rjust(4, "0") if found is not None else None


def pci_class(text: str) -> str | None:
    """Return the class as four lower-case hex digits, without the programming interface."""
    found = _CLASS.fullmatch(text.strip())
    return found.group(1).lower() if found is not None else None


def compute_capability(text: str) -> str | None:
    return text if _CAPABILITY.fullmatch(text) else None


def count(text: str) -> int | None:
    """Return a number of devices, or a device's index."""
    plain = text.isascii() and text.isdecimal() and len(text) < 6
    return int(text) if plain and int(text) <= _MAX_INDEX else None


def numa_node(text: str) -> int | None:
    """Return a NUMA node; -1 is none."""
    found = -1 if text == "-1" else count(text)
    return found if found is None or found <= MAX_NUMA_NODE else None


def flag(text: str) -> bool | None:
    return _WORDS.get(text.lower())


def version(text: str) -> str | None:
    return text if _VERSION.fullmatch(text) else None


def word(text: str) -> str | None:
    """Return a single word: a letter, then letters, digits, `_`, `.`, `-`."""
    return text if _WORD.fullmatch(text) else None


def product(text: str) -> str | None:
    """Return a product's name, unchanged; each begins with a letter."""
    is_name = text.isprintable() and text.strip()[:1].isalpha()
    return text if is_name and len(text) <= _MAX_PRODUCT else None


def profile(text: str) -> str | None:
    """Return a MIG profile such as `1g.10gb+me`; case does not matter."""
    return reported_profile(text)


def profiles(text: str) -> tuple[str, ...] | None:
    """Return the profiles of a comma-separated list; one invalid profile makes the whole list invalid."""
    found = [profile(part.strip()) for part in text.split(",") if part.strip()]
    parsed = [item for item in found if item is not None]
    return tuple(sorted(set(parsed))) if len(parsed) == len(found) else None


def links(text: str) -> tuple[PeerLink, ...] | None:
    """Return the links of a device, in order of peer and type."""
    try:
        reported = _links.decode(text)
    except UNDECODABLE:
        return None
    found = {}
    for item in reported:
        peer = canonical_address(item.peer)
        if peer is None or word(item.type) is None or not 0 < item.count <= _MAX_INDEX:
            return None
        found[peer, item.type] = PeerLink(peer, item.type, item.count)
    return tuple(found[key] for key in sorted(found))


def capacities(text: str) -> tuple[tuple[str, int], ...] | None:
    """Return how many instances of each MIG profile fit the empty device, in order of the profiles."""
    try:
        reported = _capacities.decode(text)
    except UNDECODABLE:
        return None
    found = {profile(name): count for name, count in reported.items()}
    if None in found or not all(0 < count <= MAX_MIG_INSTANCES for count in found.values()):
        return None
    return tuple(sorted((name, count) for name, count in found.items() if name is not None))


def last_xid(text: str) -> LastXid | None:
    try:
        reported = _last_xid.decode(text)
    except UNDECODABLE:
        return None
    return None if parse_time(reported.time) is None else reported


def partitions(text: str) -> tuple[MigPartition, ...] | None:
    """Return the MIG instances of a device, in order of profile and UUID."""
    try:
        reported = _partitions.decode(text)
    except UNDECODABLE:
        return None
    found = {}
    for item in reported:
        kind = profile(item.profile)
        if kind is None or uuid(item.uuid) is None:
            return None
        found[item.uuid] = MigPartition(kind, item.uuid)
    if len(found) > MAX_MIG_INSTANCES:
        return None
    return tuple(sorted(found.values(), key=lambda item: (item.profile, item.uuid)))
