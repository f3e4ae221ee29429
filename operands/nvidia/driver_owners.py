"""Which NVIDIADriver owns which node. Pure, total and deterministic: names decide the order of everything.

A driver with a nodeSelector owns the nodes that it selects, one without owns every node, and the default owns those that
no other selects. Two that would own one node leave it alone: the label that names its owner stays as it is. So does one
that cannot be read, on every node. A driver that is being deleted owns nothing, so that its deletion ends a conflict.
"""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.names import DRIVER_OWNER_LABEL, NVIDIA_GROUP
from api.text import listed
from api.vendor import NFD_PREFIX
from operands.nvidia.node_software import gets_operands

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.kinds.nvidia.nvidiadriver import NVIDIADriver

KIND: Final = "NVIDIADriver"
_MAX_LABEL = 63
_FEATURE_PREFIXES: Final = (NFD_PREFIX, f"{NVIDIA_GROUP}/")
"""Labels that are gone while Node Feature Discovery restarts."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DriverClaim:
    """What decides about the nodes of a driver."""

    name: str
    selector: tuple[tuple[str, str], ...] = ()
    """Sorted; empty: every node."""
    is_default: bool = False
    upgrades: bool = False
    """Whether its nodes get a new driver by themselves."""

    def selects(self, labels: "Mapping[str, str]") -> bool:
        return all(labels.get(key) == value for key, value in self.selector)

    def may_select(self, labels: "Mapping[str, str]") -> bool:
        """Say whether it would select the node if the labels of feature discovery that are missing were there."""
        return all(
            labels[key] == value if key in labels else key.startswith(_FEATURE_PREFIXES)
            for key, value in self.selector
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerConflict:
    """Drivers that would own one node."""

    drivers: tuple[str, ...]
    """Sorted; at least two, or those that cannot be read."""
    is_of_defaults: bool = False
    is_unread: bool = False

    @property
    def text(self) -> str:
        """Return the fact with its fields, and the cure."""
        names = listed(self.drivers)
        if self.is_unread:
            return (
                f"{KIND}s {names} cannot be read by this version, and may select the node: upgrade the control plane, or"
                " write them in the form of this version; until then the node keeps the driver that it has"
            )
        if self.is_of_defaults:
            return (
                f"spec.default is true of {KIND}s {names}: leave it true of one; until then nodes that no other"
                " selects keep the driver that they have"
            )
        return (
            f"spec.nodeSelector of {KIND}s {names} selects the same node: change all but one of them; until then the"
            " node keeps the driver that it has"
        )


@final
class DriverOwners:
    """The owner of any node, of a set of drivers. Two with equal claims are equal."""

    __slots__ = ("_by_name", "_default", "_selecting", "_unread", "claims")

    def __init__(
        self, claims: "Iterable[DriverClaim]" = (), *, unread: "Iterable[str]" = ()
    ) -> None:
        """Take the claims, and the names of drivers that exist and whose claims are unknown."""
        names = tuple(sorted(unread))
        self._unread = OwnerConflict(drivers=names, is_unread=True) if names else None
        self.claims: Final = tuple(sorted(claims))
        self._by_name = {claim.name: claim for claim in self.claims}
        self._selecting = tuple(claim for claim in self.claims if not claim.is_default)
        defaults = tuple(claim.name for claim in self.claims if claim.is_default)
        self._default: str | OwnerConflict | None = None
        if defaults:
            self._default = defaults[0]
        if len(defaults) > 1:
            self._default = OwnerConflict(drivers=defaults, is_of_defaults=True)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DriverOwners)
            and self.claims == other.claims
            and self._unread == other._unread
        )

    def __hash__(self) -> int:
        return hash((self.claims, self._unread))

    def owner_of(self, labels: "Mapping[str, str]") -> str | OwnerConflict | None:
        """Return the name of the driver that owns a node of these labels; None where none does.

        A driver that cannot be read may own any node.
        """
        if self._unread is not None:
            return self._unread
        found = [item.name for item in self._selecting if item.selects(labels)]
        if len(found) > 1:
            return OwnerConflict(drivers=tuple(found))
        return found[0] if found else self._default

    def unlabelled_nodes(
        self, name: str, labels_by_node: "Mapping[str, Mapping[str, str]]"
    ) -> list[str]:
        """Return the nodes that the driver owns and that do not say of any driver yet that it owns them."""
        return [
            node
            for node, labels in labels_by_node.items()
            if DRIVER_OWNER_LABEL not in labels
            and gets_operands(labels)
            and self.owner_of(labels) == name
        ]

    def claim(self, name: str) -> DriverClaim | None:
        return self._by_name.get(name)

    def may_keep(self, name: str, labels: "Mapping[str, str]") -> bool:
        """Say whether a driver lost the node only since labels of feature discovery are missing."""
        claim = self._by_name.get(name)
        return (
            claim is not None
            and not claim.is_default
            and not claim.selects(labels)
            and claim.may_select(labels)
        )


def driver_owners(
    drivers: "Iterable[NVIDIADriver]", *, unread: "Iterable[str]" = ()
) -> DriverOwners:
    """Return the owners of these drivers; those that are being deleted own nothing.

    Args:
        drivers: all that can be read.
        unread: names of those that cannot.
    """
    claims = (
        DriverClaim(
            name=driver.metadata.name,
            selector=() if driver.spec.default else _sorted(driver.spec.node_selector),
            is_default=driver.spec.default,
            upgrades=driver.spec.upgrade_policy.auto_upgrade,
        )
        for driver in drivers
        if driver.metadata.deletion_timestamp is None
    )
    return DriverOwners(claims, unread=unread)


def _sorted(selector: "Mapping[str, str] | None") -> tuple[tuple[str, str], ...]:
    return tuple(sorted((selector or {}).items()))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSurvey:
    """The drivers of a cluster on its nodes with a GPU."""

    nodes_by_driver: "Mapping[str, tuple[str, ...]]"
    """Sorted; every driver is in it."""
    conflicts: "Mapping[str, OwnerConflict]"
    """Conflicts by node."""

    def conflict_of(self, driver: str) -> OwnerConflict | None:
        """Return the conflict of the first node by name that this driver and another one would own."""
        return next(
            (item for _, item in sorted(self.conflicts.items()) if driver in item.drivers), None
        )

    def is_idle(self, driver: str) -> bool:
        """Say whether it selects no node, not even together with another driver."""
        return not self.nodes_by_driver.get(driver) and self.conflict_of(driver) is None


def survey_drivers(
    owners: DriverOwners, labels_by_node: "Mapping[str, Mapping[str, str]]"
) -> DriverSurvey:
    """Return who owns which of the nodes with a GPU."""
    nodes: dict[str, list[str]] = {claim.name: [] for claim in owners.claims}
    conflicts: dict[str, OwnerConflict] = {}
    for node, labels in sorted(labels_by_node.items()):
        owner = owners.owner_of(labels)
        if isinstance(owner, OwnerConflict):
            conflicts[node] = owner
        elif owner is not None:
            nodes[owner].append(node)
    return DriverSurvey(
        nodes_by_driver={name: tuple(found) for name, found in nodes.items()},
        conflicts=conflicts,
    )


def idle_text(claim: DriverClaim) -> str:
    """Return why a driver has no node, and the cure."""
    if not claim.selector:
        return f"no node with a GPU is left for {KIND} {claim.name}"
    selector = ", ".join(f"{key}={value}" for key, value in claim.selector)
    return (
        f"spec.nodeSelector of {KIND} {claim.name} selects no node with a GPU: change it, or label a node with"
        f" {selector}"
    )


def owner_value(name: str) -> str:
    """Return the value of the owner label for a driver: its name, shortened with a digest where no label can hold it."""
    if len(name) <= _MAX_LABEL:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _MAX_LABEL - 9].rstrip('.-')}-{digest}"
