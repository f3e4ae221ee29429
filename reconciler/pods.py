"""`pod.index`: pods that name a pool into the books.

All pods of the cluster are watched, not only labelled ones: a pod that names a pool is counted
however it was created. Those that name none are dropped as soon as they are decoded.
"""

from typing import TYPE_CHECKING, Final, final

import structlog

from api.names import PodUid
from manifests.rbac import Rule
from pool.facts import pod_facts
from pool.model import PodPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from api.core import Pod
    from pool.books import Books
    from pool.model import Instant

_log = structlog.get_logger()


RBAC: Final = (Rule(resources=("pods",), verbs=("get", "list", "watch")),)


@final
class PodFeed:
    """Keeps the books' pods equal to the API server's."""

    def __init__(self, books: "Books", now: "Callable[[], Instant]") -> None:
        self._books = books
        self._now = now

    def replace_all(self, items: "Sequence[Pod]") -> None:
        """Take over a full list: pods that are not in it are gone.

        Bound pods come first, so that a hold restored from an annotation cannot take their units.
        """
        found = [facts for facts in map(pod_facts, items) if facts is not None]
        uids = {facts.uid for facts in found}
        for uid in [pod.uid for pod in self._books.pods() if pod.uid not in uids]:
            self._books.discard_pod(uid)
        for facts in sorted(found, key=lambda facts: facts.phase is PodPhase.PENDING):
            self._books.observe_pod(facts, self._now())

    def upsert(self, item: "Pod") -> None:
        """Take over a pod that is new or changed."""
        facts = pod_facts(item)
        if facts is None:
            return
        before = self._books.pod(facts.uid)
        self._books.observe_pod(facts, self._now())
        if facts.phase is PodPhase.BOUND and (before is None or before.phase is PodPhase.PENDING):
            _log.info(
                "pod bound",
                pod=facts.ref,
                uid=facts.uid,
                node=facts.node,
                devices=facts.devices,
                resource=facts.demand.resource,
            )

    def discard(self, item: "Pod") -> None:
        """Forget a pod that is gone."""
        self._books.discard_pod(PodUid(item.metadata.uid))
