"""What the edge asks of the data: streams for viewers, and single questions."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, final

from console.rows import DecisionAnswer, DeviceDetail, PodDetail, ViewerRow, WhatIfAnswer
from console.visibility import Visibility


class TooManyViewersError(Exception):
    """No further stream can be opened; the text says how many there are."""


class BadQuestionError(Exception):
    """A question that has no answer, such as one about a pool that is not there; the text is for the viewer."""


class DecisionRefusedError(Exception):
    """A decision that is not written, by us or by the API server; the text is for the viewer."""

    def __init__(
        self, status: HTTPStatus, text: str, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(text)
        self.status: Final = status
        self.retry_after_s: Final = retry_after_s


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDecision:
    """A decision by which a device joins a pool, or loses its approval."""

    device: str
    pool: str | None
    """The pool that it joins; None to take the approval away."""
    version: str = ""
    """Of the answer to the dry run that the viewer has confirmed; empty where none was made."""
    is_dry: bool = False
    """Whether the API server only says if it would be written."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PodTrial:
    """Equal pods with one container, placed one after the other on what is free now."""

    pool: str
    units: int
    times: int = 1
    cordoned: tuple[str, ...] = ()
    """Nodes that count as cordoned."""


class EventStream(Protocol):
    """The events of one viewer, as bytes of `text/event-stream`."""

    async def next_event(self) -> bytes:
        """Return the next event, waiting for it. The first is the snapshot, which comes in parts.

        Cancelled, it loses no event.

        Raises:
            ConnectionResetError: the stream is closed, or its viewer was dropped.
        """

    @property
    def is_inside_event(self) -> bool:
        """Whether what was returned last is part of an event, of which the rest is there: nothing else may be written."""

    def close(self) -> None:
        """Forget the viewer; idempotent."""


class ConsoleData(Protocol):
    """What is known of a cluster."""

    @property
    def is_ready(self) -> bool:
        """Say whether all lists have been read; before that nothing else may be asked."""

    def open_stream(
        self, viewer: ViewerRow, visibility: Visibility, *, drop: Callable[[], None]
    ) -> EventStream:
        """Return a new stream.

        `drop` is called once, from the event loop, where the viewer does not read: behind the snapshot more than 1 MB
        waits.

        Raises:
            TooManyViewersError: 100 streams are open.
        """

    def device(self, name: str, visibility: Visibility) -> DeviceDetail | None:
        """Return what is known of a device; None where there is none."""

    def pod(self, namespace: str, name: str, visibility: Visibility) -> PodDetail | None:
        """Return why a pod waits; None where none waits under this name, or the viewer may not see it."""

    def try_pods(self, trial: PodTrial, visibility: Visibility) -> WhatIfAnswer:
        """Place pods on what is free now, and take them back; nothing is written.

        Raises:
            BadQuestionError: there is no such pool or node, a number is out of range, or pods of all namespaces may
                not be listed, without which the answer would be a guess.
        """


class DeviceDecisions(Protocol):
    """Writes decisions of viewers, with their own credentials."""

    async def write(self, decision: DeviceDecision, token: str | None) -> DecisionAnswer:
        """Write a decision, or try it.

        Args:
            decision: of the viewer.
            token: the viewer's own; None where the process has the viewer's rights.

        Raises:
            DecisionRefusedError: nothing was written, unless the text says that it may have been.
        """
