"""What a node says of its own upgrade: the state label, and the record beside it.

A record belongs to the state that it names. Where the label says another one, another client changed it: the state then
begins now, or when an annotation of NVIDIA's GPU Operator says so. A time in the future does not count, so a clock that was
wrong once holds nothing up.
"""

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.driver_upgrade import (
    UPGRADE_RECORD_ANNOTATION,
    UPGRADE_STATE_LABEL,
    VALIDATION_START_ANNOTATION,
    WAIT_START_ANNOTATION,
    UpgradeState,
)
from api.field_errors import UNDECODABLE
from api.text import truncate
from operands.upgrade.reasons import UpgradeReason

if TYPE_CHECKING:
    from operands.upgrade.facts import UpgradeNode

_LONGEST: Final = 4096
"""Characters of a record; ours have up to 700."""
_LONGEST_MESSAGE: Final = 256
_MOST_DIGITS: Final = 11
"""Most digits of Unix seconds: until the year 5138."""
START_ANNOTATIONS: Final = {
    UpgradeState.WAIT_FOR_JOBS_REQUIRED: WAIT_START_ANNOTATION,
    UpgradeState.VALIDATION_REQUIRED: VALIDATION_START_ANNOTATION,
}
"""State -> the GPU Operator's annotation with its start."""


@final
class UpgradeRecord(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Value of `UPGRADE_RECORD_ANNOTATION`, as JSON."""

    state: UpgradeState
    since: dt.datetime | None
    """When the node came into the state."""
    attempt: int = 0
    reason: UpgradeReason | None = None
    """Why it came into the state."""
    message: str = ""
    revision: str = ""
    """Revision of the driver's DaemonSet that the attempt is for."""
    digest: str = ""
    """DRIVER_CONFIG_DIGEST of that revision."""
    replaces: str = ""
    """UID of a driver pod that is replaced even if it is up to date."""
    until: dt.datetime | None = None
    """When the state ends by itself, as it began; None: it may last. Until then the node's units are on their way back."""

    def encode(self) -> str:
        short = msgspec.structs.replace(self, message=truncate(self.message, _LONGEST_MESSAGE))
        return msgspec.json.encode(short).decode()


@final
@dataclass(frozen=True, slots=True)
class RecordedNode:
    """A node, and what it says of its upgrade."""

    node: "UpgradeNode"
    record: UpgradeRecord
    is_written: bool = False
    """Whether the annotation says the same; False: it is absent, of another state, or unreadable."""
    is_label_valid: bool = True

    @property
    def state(self) -> UpgradeState:
        return self.record.state


_decoder = msgspec.json.Decoder(UpgradeRecord)
_STATES: Final = {state.value: state for state in UpgradeState}


def read_record(node: "UpgradeNode", now: dt.datetime) -> RecordedNode:
    """Return the node's state; a label that names none counts as absent."""
    label = node.labels.get(UPGRADE_STATE_LABEL, "")
    state = _STATES.get(label)
    written = _decoded(node.annotations.get(UPGRADE_RECORD_ANNOTATION))
    if state is None:
        return RecordedNode(
            node,
            _record_of_foreign_state(UpgradeState.UNKNOWN, written, None),
            is_label_valid=False,
        )
    if written is None or written.state is not state:
        return RecordedNode(
            node, _record_of_foreign_state(state, written, _start(node, state, now))
        )
    if written.since is None or written.since > now:
        since = None if state.is_idle else now
        return RecordedNode(node, msgspec.structs.replace(written, since=since))
    return RecordedNode(node, written, is_written=True)


def _decoded(text: str | None) -> UpgradeRecord | None:
    if text is None or len(text) > _LONGEST:
        return None
    try:
        record = _decoder.decode(text)
    except UNDECODABLE:
        return None
    if record.since is not None and record.since.tzinfo is None:
        return None
    return record if 0 <= record.attempt < 2**31 else None


def _record_of_foreign_state(
    state: UpgradeState, written: UpgradeRecord | None, since: dt.datetime | None
) -> UpgradeRecord:
    """Return the record of a state that another client set; the attempt goes on."""
    if written is None:
        return UpgradeRecord(state, since, attempt=0 if state.is_idle else 1)
    return UpgradeRecord(
        state,
        since,
        attempt=written.attempt,
        revision=written.revision,
        digest=written.digest,
        replaces=written.replaces,
    )


def _start(node: "UpgradeNode", state: UpgradeState, now: dt.datetime) -> dt.datetime | None:
    if state.is_idle:
        return None
    text = node.annotations.get(START_ANNOTATIONS.get(state, ""), "")
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return now
    return min(now, dt.datetime.fromtimestamp(int(text), dt.UTC))
