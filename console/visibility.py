"""What a viewer may see. Pools and devices are seen by every viewer: without the right to list them there is none."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """Rights that decide what a stream has; viewers with equal rights share its bytes."""

    namespaces: frozenset[str] | None
    """Namespaces whose pods are seen; None for those of all."""
    nodes: bool
    """Whether the states of nodes are seen."""

    def sees(self, namespace: str) -> bool:
        """Say whether pods of the namespace are seen; of others their units are used, by nobody."""
        return self.namespaces is None or namespace in self.namespaces
