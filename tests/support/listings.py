"""A list given to a sink as an informer gives it: what could not be read stays as it was known, or is unread."""

from typing import Any

from kube.decoding import Listing
from kube.unread_objects import UnreadSink


def replace_listed(sink: Any, listing: Listing[Any]) -> None:
    last_reads = [sink.last_read(item) for item in listing.unread]
    sink.replace_all([*listing.items, *(item for item in last_reads if item is not None)])
    if isinstance(sink, UnreadSink):
        sink.replace_unread([item for item in listing.unread if sink.last_read(item) is None])
