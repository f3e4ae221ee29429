"""What earlier leaders have bound, read afresh, because the watch may be behind.

The watch goes on meanwhile, so what is read may be older than what it has shown. A pod's phase only
goes forward in the books, so an old state changes nothing; but a pod that the watch has shown gone
must not come back, hence those are noted while a read is under way.

The informer may also be listing the pods anew, page after page as of the first one. Its list may be
older than what is read here: a pod that it lacks is then no deleted one, and stays. Of the two the
newer is the one of the higher resourceVersion.
"""

from typing import TYPE_CHECKING, Final, final

from api.foreign.core import Pod
from api.meta import compared
from api.names import POOL_LABEL
from kube.resources import PODS
from pool.facts import pod_facts
from pool.model import PodPhase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.names import PodUid
    from kube.client import KubeClient
    from kube.decoding import Listing
    from kube.informer import SteppingSink
    from pool.model import PodFacts

BOUND: Final = "spec.nodeName!="


@final
class BoundPods:
    """The pods' sink, and a read of the bound ones into it."""

    def __init__(self, client: "KubeClient", sink: "SteppingSink[PodFacts]") -> None:
        self._client = client
        self._sink = sink
        self._gone: set[PodUid] = set()
        """Pods that were shown gone during the read that is under way."""
        self._is_reading = False
        self._was_relisted = False
        self._is_listing = False
        self._read: Listing[PodFacts] | None = None
        """What was read while the informer is listing."""

    def list_begins(self) -> None:
        """Note that the informer asks for all pods; what was read before is older than its answer."""
        self._is_listing = True
        self._read = None

    def list_ends(self, version: str) -> None:
        """Keep what was read meanwhile if it is newer than the list, which is handed over next."""
        self._is_listing = False
        if self._read is not None and not _is_later(self._read.resource_version, version):
            self._read = None

    def replace_all(self, items: "Sequence[PodFacts]") -> None:
        """Pass on a full list; which pods are gone cannot be told from it."""
        self._was_relisted = True
        self._sink.replace_all(self._with_later(items))

    def replacing(self, items: "Sequence[PodFacts]") -> "Iterator[None]":
        """Pass on a full list in steps; which pods are gone cannot be told from it."""
        self._was_relisted = True
        return self._sink.replacing(self._with_later(items))

    def upsert(self, item: "PodFacts") -> None:
        """Pass on a pod."""
        self._sink.upsert(item)

    def discard(self, item: "PodFacts") -> None:
        """Pass on that a pod is gone."""
        if self._is_reading:
            self._gone.add(item.uid)
        self._sink.discard(item)

    async def read(self) -> None:
        """Take over every binding that the API server has stored by now.

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
        # What has ended first: another pod of the list may have its units by now.
        for facts in sorted(listing.items, key=lambda facts: facts.phase is not PodPhase.ENDED):
            self._sink.upsert(facts)
        if self._is_listing:
            self._read = listing

    async def _list(self) -> "Listing[PodFacts]":
        self._was_relisted = False
        self._gone.clear()
        return await self._client.list_as(
            PODS, Pod, pod_facts, label_selector=POOL_LABEL, field_selector=BOUND
        )

    def _with_later(self, items: "Sequence[PodFacts]") -> "Sequence[PodFacts]":
        """Return the informer's list, with what it lacks because it is older than what was read."""
        if self._read is None:
            return items
        listed = {facts.uid for facts in items}
        later = [facts for facts in self._read.items if facts.uid not in listed]
        self._read = None
        return [*items, *later]


def _is_later(version: str, other: str) -> bool:
    """What cannot be compared counts as later: units of a pod that is gone are lost until the next list."""
    order = compared(version, other)
    return order is None or order > 0
