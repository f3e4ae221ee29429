"""Limits of the console's port, in number and time, that no peer can exceed."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ViewerLimits:
    """What one port has for all, and each peer for itself."""

    connections: int = 1_000
    """A page has one for its stream and a few for questions."""
    idle_s: float = 30.0
    """Seconds from the end of an answer, or of the handshake, to the end of the next request's head."""
    answer_s: float = 30.0
    """Seconds in which a peer reads an answer, or a piece of a stream, beyond what the system's buffers hold."""
    linger_s: float = 2.0
    """Seconds for which the body of a refused request is read, so that the peer reads the refusal."""
    close_s: float = 10.0
    """Seconds for what is under way at the end; a review takes as long where the API server does not answer."""
    unreviewed_s: float = 300.0
    """Seconds for which a stream goes on while the API server does not say who its viewer is."""
