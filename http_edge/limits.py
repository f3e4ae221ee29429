"""Limits of the port: connections, sizes and durations that no peer can exceed."""

from dataclasses import dataclass, replace
from typing import Self, final

import structlog

from http_edge import open_files

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The API server gives up a webhook call after 3 s, kube-scheduler an extender call after 5 s."""

    connections: int = 2048
    """An API server has one for each of its requests in flight, at most some hundreds."""
    body_bytes: int = 8 * 1024 * 1024
    """An AdmissionReview carries an object twice (1.5 MiB each, etcd's limit) in an envelope; 10,000 node names of
    63 characters are 0.7 MiB."""

    evicts_idle_first: bool = True
    """Whether one more connection takes the place of one without a request, if there is any; otherwise of the oldest."""
    handshake_s: float = 5.0
    first_request_s: float | None = None
    """Seconds from the handshake to the first byte; None for clients that open connections in advance."""
    head_s: float = 5.0
    """Seconds from the first byte of a request to the end of its head."""
    head_bytes: int = 16 * 1024
    """Bytes of a request line and its headers; a token of a ServiceAccount has 1 KiB."""
    head_fields: int = 128
    body_s: float = 2.5
    """Seconds from the head to the end of the body: below the webhooks' timeoutSeconds (3) and kube-scheduler's
    httpTimeout (5), whose callers have given up by then."""
    large_body_bytes: int = 64 * 1024
    """An AdmissionReview of an ordinary pod is a tenth of it."""
    large_bodies: int = 16
    """Most large bodies of callers without authentication, read at a time: at 8 MiB each they take 128 MiB of
    memory."""
    linger_s: float = 2.0
    """The rest of a refused body is read for so long, so that the peer reads the refusal."""
    pipelined: int = 128
    """Requests of a connection that wait for their answers. By HTTP/1.1 neither the API server nor
    kube-scheduler sends one before the answer to the last; by HTTP/2 these are its streams, and Go's client
    opens another connection beyond them."""
    idle_frames: int = 256
    """Most frames of HTTP/2, that bring neither a request nor an answer on. A health check is one every 5 s."""
    frames_per_batch: int = 64
    """Most frames of HTTP/2 on one connection, before the other connections have their turn: some 20 us each."""
    control_frame_bytes: int = 16 * 1024
    """The longest frame of HTTP/2 that is part of neither a head nor a body."""
    settings_per_frame: int = 32
    """HTTP/2 has nine of them."""
    answer_s: float = 30.0
    """Seconds in which a peer reads an answer, beyond what the system's buffers hold: a scrape of /metrics ends
    within 10 s."""
    finish_s: float = 10.0
    """How long requests under way may take on shutdown: a bind, 4 s, and the read after it, 4 s."""
    keep_alive_s: float = 300.0
    """The API server and kube-scheduler close idle connections after 90 s. A server that closes first may
    do so while a request is on its way, which costs a failed pod creation."""

    def within_open_files(self) -> Self:
        """Return them so that half of the open files stay free for the API server, for files and for closing connections."""
        possible = min(self.connections, open_files.limit() // 2)
        if possible < self.connections:
            _log.warning(
                "fewer connections than usual, because of the limit of open files",
                connections=possible,
                usual=self.connections,
            )
        return replace(self, connections=possible)
