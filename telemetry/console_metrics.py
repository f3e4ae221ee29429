"""Metrics of the console, besides those of `telemetry.metrics` that it shares with the server.

A file of its own, so that the server's page has none of them. No label names a viewer.
"""

from telemetry.metrics import counter, gauge

VIEWERS = gauge("gpu_console_viewers", "Streams that are open, one for each page that is shown.")
STREAMS_DROPPED = counter(
    "gpu_console_streams_dropped_total",
    "Streams that were cut because their viewer does not read, by cause (backlog: too much waits; unread: nothing was"
    " read in 30 s).",
    ["cause"],
)
EVENTS_SENT = counter("gpu_console_events_sent_total", "Events written to streams.")
REVIEWS = counter(
    "gpu_console_reviews_total",
    "Tokens that the API server was asked about, by outcome (accepted, unauthenticated, forbidden, failed).",
    ["outcome"],
)
