"""`pod.index`: pods that name a pool into the books.

All pods of the cluster are watched, not only labelled ones: a pod that names a pool is counted
however it was created. `pool.facts.pod_facts` keeps of each what the books need, and nothing of
those that name none, as soon as it is decoded.
"""

from typing import TYPE_CHECKING, Final, final

import structlog

from manifests.rbac import Rule
from pool.model import PodPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pool.books import Books
    from pool.model import Instant, PodFacts

_log = structlog.get_logger()


RBAC: Final = (Rule(resources=("pods",), verbs=("list", "watch")),)


@final
class PodFeed:
    """Keeps the books' pods equal to the API server's."""

    def __init__(
        self,
        books: "Books",
        now: "Callable[[], Instant]",
        on_unaccounted: "Callable[[PodFacts, int], None] | None" = None,
    ) -> None:
        """Take the books.

        Args:
            books: what pods are told to.
            now: the time.
            on_unaccounted: told, with the number of units, of a bound pod of which nobody knows the
                devices; once, when that is first seen.
        """
        self._books = books
        self._now = now
        self._on_unaccounted = on_unaccounted

    def replace_all(self, items: "Sequence[PodFacts]") -> None:
        """Take over a full list: pods that are not in it are gone.

        Bound pods come first, so that a hold restored from an annotation cannot take their units.
        """
        uids = {facts.uid for facts in items}
        for uid in [pod.uid for pod in self._books.pods() if pod.uid not in uids]:
            self._books.discard_pod(uid)
        for facts in sorted(items, key=lambda facts: facts.phase is PodPhase.PENDING):
            self._observe(facts)

    def upsert(self, item: "PodFacts") -> None:
        """Take over a pod that is new or changed."""
        if self._observe(item):
            _log.info(
                "pod bound",
                pod=item.ref,
                uid=item.uid,
                node=item.node,
                devices=item.devices,
                resource=item.demand.resource,
            )

    def discard(self, item: "PodFacts") -> None:
        """Forget a pod that is gone."""
        self._books.discard_pod(item.uid)

    def _observe(self, pod: "PodFacts") -> bool:
        """Take over a pod; say whether this shows it bound for the first time."""
        before = self._books.pod(pod.uid)
        self._books.observe_pod(pod, self._now())
        is_news = pod.phase is PodPhase.BOUND and (
            before is None or before.phase is PodPhase.PENDING
        )
        if is_news:
            self._check_accounted(pod)
        return is_news

    def _check_accounted(self, pod: "PodFacts") -> None:
        if pod.node is None:
            return
        units = self._books.index.unaccounted_pods(pod.demand.resource, pod.node).get(pod.uid)
        if units:
            _log.warning(
                "pod runs on devices that nobody knows",
                pod=pod.ref,
                uid=pod.uid,
                node=pod.node,
                resource=pod.demand.resource,
                units=units,
            )
            if self._on_unaccounted is not None:
                self._on_unaccounted(pod, units)
