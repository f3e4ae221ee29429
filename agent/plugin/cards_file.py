"""The file of the node's cards: read whole, and read again when it changed.

The plugin needs no driver: what it has to know of a card is what the node's agent wrote down.
"""

from typing import TYPE_CHECKING, final

import msgspec

from agent.errors import BadPoolConfigError
from agent.files import file_identity
from api.field_errors import UNDECODABLE
from api.nodefiles.cards import CARDS_FILE, NodeCards

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.plugin.advertised import Unit
    from api.nodefiles.cards import NodeCard, NodeInstance, SharedParts

MAX_BYTES = 16 * 1024 * 1024
"""16 cards with 7 instances each take 20 KiB."""


@final
class KnownCards:
    """What one version of the file says, looked up by the UUIDs of cards and instances."""

    def __init__(self, content: NodeCards) -> None:
        self.shared: SharedParts = content.shared
        self._cards: dict[str, NodeCard] = {card.uuid: card for card in content.cards}
        self._instances: dict[str, tuple[NodeCard, NodeInstance]] = {
            instance.uuid: (card, instance)
            for card in content.cards
            for instance in card.instances or ()
        }

    def fault_of(self, unit: "Unit") -> str:
        """Say why the unit is not to be given out; nothing of a card that the file does not have."""
        card = self._cards.get(unit.card)
        if card is None:
            found = self._instances.get(unit.part)
            card = None if found is None else found[0]
        if card is None:
            return ""
        if not card.is_healthy:
            return card.reason or "Unhealthy"
        is_instance = unit.part != card.uuid
        if is_instance and card.instances is not None and unit.part not in self._instances:
            return "InstanceGone"
        return ""

    def nodes_of(self, part: str) -> "Sequence[str] | None":
        """Return the device files of a card or instance, without the shared ones; None if not known."""
        card = self._cards.get(part)
        if card is not None:
            return card.nodes or None
        found = self._instances.get(part)
        if found is None:
            return None
        of_card, instance = found
        return [*of_card.nodes, *instance.nodes] if of_card.nodes and instance.nodes else None


@final
class NodeFile:
    """Remembers which version was read, and keeps the last that made sense."""

    def __init__(self, directory: "Path") -> None:
        """Take the run directory; the file may come later."""
        self.path = directory / CARDS_FILE
        self.cards: KnownCards | None = None
        """None before there was one: then all cards are taken to be well."""
        self._seen: object = None

    def look(self) -> bool:
        """Read the file if it is another; say whether it was.

        A file that went away leaves what it said.

        Raises:
            BadConfig: it cannot be used; the same one is not tried again.
        """
        identity = file_identity(self.path)
        if identity is None or identity == self._seen:
            return False
        self._seen = identity
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise BadPoolConfigError(f"{self.path} cannot be read: {error}") from error
        if len(content) > MAX_BYTES:
            raise BadPoolConfigError(f"{self.path} is larger than {MAX_BYTES // 2**20} MiB")
        try:
            self.cards = KnownCards(msgspec.json.decode(content, type=NodeCards))
        except UNDECODABLE as error:
            raise BadPoolConfigError(
                f"{self.path} is not a list of the node's cards: {error}"
            ) from error
        return True
