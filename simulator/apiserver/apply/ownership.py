"""Field ownership: `metadata.managedFields`, kept as sets of paths.

Every write moves ownership. An update gives the writer the changed fields; an apply gives the
applier exactly the applied fields. Changes by admission webhooks count as the writer's.
`managedFields` that a client sends are ignored.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

from simulator.apiserver.schema import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulator.apiserver.schema.fields import Path

Json = dict[str, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A writer, as managedFields distinguishes writers."""

    name: str
    operation: str
    """Apply or Update."""
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        if self.operation == "Update":
            text += f" using {self.api_version}"
        return text


@final
@dataclass(frozen=True, kw_only=True)
class Share:
    """The fields of one manager; never empty."""

    manager: Manager
    time: str
    paths: "frozenset[Path]"

    @cached_property
    def rendered(self) -> Json:
        """The entry of `metadata.managedFields`, encoded once for all versions that share it."""
        entry: Json = {
            "manager": self.manager.name,
            "operation": self.manager.operation,
            "apiVersion": self.manager.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": fields.path_text(self.paths),
        }
        if self.manager.subresource:
            entry["subresource"] = self.manager.subresource
        return entry


@final
@dataclass(frozen=True, slots=True)
class Ownership:
    """The shares of all managers of one object."""

    shares: tuple[Share, ...] = ()

    def render(self) -> list[Json]:
        """Return `metadata.managedFields`."""
        return [share.rendered for share in self.shares]

    def of(self, manager: Manager) -> "frozenset[Path]":
        for share in self.shares:
            if share.manager == manager:
                return share.paths
        return frozenset()

    def others(self, manager: Manager) -> "tuple[Share, ...]":
        return tuple(share for share in self.shares if share.manager != manager)

    def without(self, paths: "set[Path] | frozenset[Path]", *, keep: Manager) -> "Ownership":
        """Return the ownership after every manager except `keep` lost the paths."""
        shares = []
        for share in self.shares:
            if share.manager == keep or paths.isdisjoint(share.paths):
                shares.append(share)
            elif remaining := share.paths - paths:
                shares.append(replace(share, paths=remaining))
        return Ownership(tuple(shares))

    def with_share(self, manager: Manager, paths: "frozenset[Path]", now: str) -> "Ownership":
        """Return the ownership in which the manager has exactly these paths."""
        if paths == self.of(manager):
            return self
        shares = list(self.others(manager))
        if paths:
            shares.append(Share(manager=manager, time=now, paths=paths))
        shares.sort(key=lambda share: (share.manager.operation, share.manager.name))
        return Ownership(tuple(shares))

    def after_update(
        self,
        manager: Manager,
        difference: fields.Difference,
        now: str,
    ) -> "Ownership":
        """Return the ownership after the manager made this difference."""
        touched = difference.changed | difference.removed
        if not touched:
            return self
        remaining = self.without(touched, keep=manager)
        return remaining.with_share(
            manager, (self.of(manager) - difference.removed) | difference.changed, now
        )


def of_new(
    manager: Manager, body: Json, shape: "Mapping[str, Any]", *, now: str, has_status: bool
) -> Ownership:
    """Return the ownership of an object that the manager creates.

    `has_status` tells whether the manager owns its status, too.
    """
    part = fields.ownable(body)
    if not has_status:
        part.pop("status", None)
    paths = frozenset(fields.leaves(part, shape)) if part else frozenset()
    return Ownership().with_share(manager, paths, now)
