"""What earlier leaders have bound, read afresh, because the watch may be behind.

The watch goes on meanwhile, so what is read may be older than what it has shown. A pod's phase only
goes forward in the books, so an old state changes nothing; but a pod that the watch has shown gone
must not come back, hence those are noted while a read is under way.
"""

from typing import TYPE_CHECKING, Final, final

from api.core import Pod
from api.names import POOL_LABEL
from kube.resources import PODS
from pool.facts import pod_facts
from pool.model import PodPhase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from api.names import PodUid
    from kube.client import KubeClient
    from kube.decoding import Listing
    from kube.watching import SteppingSink
    from pool.model import PodFacts

BOUND: Final = "spec.nodeName!="


@final
class BoundPods:
    """The pods' sink, and a read of the bound ones into it."""

    def __init__(self, client: "KubeClient", sink: "SteppingSink[PodFacts]") -> None:
        self._client = client
        self._sink = sink
        self._gone: set[PodUid] = set()
        self._was_relisted = False

    def replace_all(self, items: "Sequence[PodFacts]") -> None:
        """Pass on a full list; which pods are gone cannot be told from it."""
        self._was_relisted = True
        self._sink.replace_all(items)

    def replacing(self, items: "Sequence[PodFacts]") -> "Iterator[None]":
        """Pass on a full list in steps; which pods are gone cannot be told from it."""
        self._was_relisted = True
        return self._sink.replacing(items)

    def upsert(self, item: "PodFacts") -> None:
        """Pass on a pod."""
        self._sink.upsert(item)

    def discard(self, item: "PodFacts") -> None:
        """Pass on that a pod is gone."""
        self._gone.add(item.uid)
        self._sink.discard(item)

    async def read(self) -> None:
        """Take over every binding that the API server has stored by now.

        Raises:
            KubeError: they could not be read.
        """
        listing = await self._list()
        while self._was_relisted:
            listing = await self._list()
        # What has ended first: another pod of the list may have its units by now.
        for facts in sorted(listing.items, key=lambda facts: facts.phase is not PodPhase.ENDED):
            if facts.uid not in self._gone:
                self._sink.upsert(facts)

    async def _list(self) -> "Listing[PodFacts]":
        self._was_relisted = False
        self._gone.clear()
        return await self._client.list_as(
            PODS, Pod, pod_facts, label_selector=POOL_LABEL, field_selector=BOUND
        )
