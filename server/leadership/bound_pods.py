"""Read of all bound pods at a takeover, because the watch may be behind the bindings of earlier leaders.

The watch continues meanwhile, so the read may be older than the watch. A pod's phase only goes forward in the
allocation state, so an older state changes nothing. A pod that the watch has reported as deleted must not come back:
deletions during a read are kept and left out of its result.

The informer may relist at the same time, page after page as of the first one. Its list may be older than the
read: a pod that is missing there is not deleted, and stays. The higher resourceVersion is the newer of the two.

A bound pod that the read names and that cannot be decoded is unread as one of the informer is: it closes its node.
"""

from typing import TYPE_CHECKING, Final, final

from api.foreign.core import Pod
from api.meta import compared
from api.names import POOL_LABEL, PodUid
from kube.resources import PODS
from kube.unread_objects import UnreadSink
from pool.facts import pod_facts
from pool.model import PodPhase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kube.client import KubeClient
    from kube.decoding import Listing
    from kube.sink import SteppingSink
    from kube.unread_objects import UnreadObject
    from pool.model import AnyPod, PodFacts

BOUND: Final = "spec.nodeName!="


@final
class BoundPods:
    """Sink of the informer of pods, which also reads the bound pods into the wrapped sink."""

    def __init__(self, client: "KubeClient", sink: "SteppingSink[AnyPod]") -> None:
        self._client = client
        self._sink = sink
        self._gone: set[PodUid] = set()
        """Pods that were deleted during the read that is under way."""
        self._is_reading = False
        self._was_relisted = False
        self._is_listing = False
        self._read: Listing[PodFacts] | None = None
        """Result of a read while the informer is listing."""
        self._watch_unread: tuple[UnreadObject, ...] = ()
        """Unread pods of the informer."""
        self._read_unread: dict[PodUid, UnreadObject] = {}
        """Unread pods of the last read, until the informer shows them read, deleted, or in a newer list."""

    def list_begins(self) -> None:
        """Drop an earlier read: the list that begins is newer."""
        self._is_listing = True
        self._read = None

    def list_ends(self, version: str) -> None:
        """Keep a read of the meantime if it is newer than the list, which is handed over next."""
        self._is_listing = False
        if self._read is not None and not _is_later(self._read.resource_version, version):
            self._read = None

    def replace_all(self, items: "Sequence[AnyPod]") -> None:
        """Pass on a full list; deletions of the meantime are unknown, so a read under way is repeated."""
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[AnyPod]") -> "Iterator[None]":
        """Pass on a full list in steps; like `replace_all`."""
        self._was_relisted = True
        outdated = () if self._read is not None else tuple(self._read_unread)
        yield from self._sink.replace_in_steps(self._with_later(items))
        self._drop_unread(*outdated)

    def last_read(self, unread: "UnreadObject") -> "AnyPod | None":
        return self._sink.last_read(unread) if isinstance(self._sink, UnreadSink) else None

    def replace_unread(self, unread: "Collection[UnreadObject]") -> None:
        self._watch_unread = tuple(unread)
        self._publish_unread()

    def upsert(self, item: "AnyPod") -> None:
        self._sink.upsert(item)
        self._drop_unread(item.uid)

    def discard(self, item: "AnyPod") -> None:
        if self._is_reading:
            self._gone.add(item.uid)
        self._sink.discard(item)
        self._drop_unread(item.uid)

    async def read(self) -> str:
        """Apply every binding that the API server has stored by now, and return the resourceVersion of now.

        Raises:
            KubeError: they could not be read.
        """
        self._is_reading = True
        try:
            listing = await self._list()
            while self._was_relisted:
                listing = await self._list()
            listing.items[:] = [facts for facts in listing.items if facts.uid not in self._gone]
        finally:
            self._is_reading = False
            self._gone.clear()
        # Ended pods first: another pod of the list may have their units by now.
        for facts in sorted(listing.items, key=lambda facts: facts.phase is not PodPhase.ENDED):
            self._sink.upsert(facts)
        self._read_unread = {
            PodUid(item.uid): item for item in listing.unread if self.last_read(item) is None
        }
        self._publish_unread()
        if self._is_listing:
            self._read = listing
        return listing.resource_version

    def _drop_unread(self, *uids: "PodUid") -> None:
        if self._read_unread.keys() & uids:
            for uid in uids:
                self._read_unread.pop(uid, None)
            self._publish_unread()

    def _publish_unread(self) -> None:
        if isinstance(self._sink, UnreadSink):
            found = (*self._watch_unread, *self._read_unread.values())
            self._sink.replace_unread({item.key: item for item in found}.values())

    async def _list(self) -> "Listing[PodFacts]":
        self._was_relisted = False
        self._gone.clear()
        return await self._client.list_as(
            PODS, Pod, pod_facts, label_selector=POOL_LABEL, field_selector=BOUND
        )

    def _with_later(self, items: "Sequence[AnyPod]") -> "Sequence[AnyPod]":
        """Return the informer's list plus the pods that only a newer read has."""
        if self._read is None:
            return items
        listed = {facts.uid for facts in items}
        later = [facts for facts in self._read.items if facts.uid not in listed]
        self._read = None
        return [*items, *later]


def _is_later(version: str, other: str) -> bool:
    """Compare resourceVersions; incomparable counts as later, which costs a deleted pod's units until the next list."""
    order = compared(version, other)
    return order is None or order > 0
