"""What the pods of each namespace have of each pool: sums that follow each pod."""

from typing import TYPE_CHECKING, final

from console.data.tables.pod_rows import units_of_pod
from console.rows import ShareRow

if TYPE_CHECKING:
    from api.names import PodUid
    from console.data.state.cluster_state import ClusterState
    from console.data.tables.pod_rows import SharePart


@final
class NamespaceShares:
    def __init__(self, cluster: "ClusterState") -> None:
        self._cluster = cluster
        self._by_pod: dict[PodUid, SharePart] = {}
        self._sums: dict[str, list[int]] = {}
        # key of the row -> pods, used, reserved, waiting; whole numbers, so that what is taken away is what was added

    def update(self, uid: "PodUid") -> set[str]:
        """Look again at a pod that has changed; return the keys of rows that change."""
        before, after = self._by_pod.get(uid), units_of_pod(self._cluster, uid)
        if before == after:
            return set()
        changed: set[str] = set()
        if before is not None:
            changed.add(self._count(before, -1))
            del self._by_pod[uid]
        if after is not None:
            changed.add(self._count(after, 1))
            self._by_pod[uid] = after
        return changed

    def row(self, key: str) -> ShareRow | None:
        """Return a row; None where no pod has or wants units any more."""
        sums = self._sums.get(key)
        if sums is None:
            return None
        namespace, _, pool = key.partition(" ")
        pods, used, reserved, waiting = sums
        return ShareRow(
            namespace=namespace,
            pool=pool,
            pods=pods,
            used=used,
            reserved=reserved,
            waiting=waiting,
        )

    def _count(self, share: "SharePart", by: int) -> str:
        key = f"{share.namespace} {share.pool}"
        sums = self._sums.setdefault(key, [0, 0, 0, 0])
        for place, units in enumerate((1, share.used, share.reserved, share.waiting)):
            sums[place] += by * units
        if not sums[0]:
            del self._sums[key]
        return key
