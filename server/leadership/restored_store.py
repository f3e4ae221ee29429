"""Reaction of a replica to an API server whose store was restored from a backup, or is another cluster's.

resourceVersions go back. A watch from a version that lies in the future is accepted by the API server and stays
silent, pods that ended are bound again, and pods that were bound are pending again under their UIDs. Nothing that this process
knows can be told from what is true, so everything is listed again before the next decision:

    Lease older than before, a bound pod pending again, or another kube-system → term ended → all informers list → bound pods read → decide

A replica that started amid the restore has read no older Lease. Its lists are newer than the bound pods that it reads
at its takeover, and it lists again too.

Claims of pods stay until the list of pods replaces them. docs/restore.md has what an operator does.
"""

from typing import TYPE_CHECKING, Any, Final, final

import structlog

from api.meta import compared

if TYPE_CHECKING:
    from collections.abc import Collection

    from api.foreign.core import Namespace
    from kube.informer import Informer
    from kube.leader_election import LeaderElection
    from pool.allocation_state import AllocationState
    from server.leadership.bound_pods import BoundPods

CLUSTER_NAMESPACE: Final = "kube-system"
"""Its UID identifies a cluster."""

_log = structlog.get_logger()


@final
class RestoredStore:
    """Parts of one replica that start again when the store went back."""

    def __init__(
        self,
        election: "LeaderElection",
        informers: "Collection[Informer[Any]]",
        *,
        allocation_state: "AllocationState",
        bound_pods: "BoundPods",
    ) -> None:
        self._election = election
        self._informers = informers
        self._allocation_state = allocation_state
        self._bound_pods = bound_pods
        self._cluster_uid = ""
        election.store_restored.subscribe(lambda _: self.went_back())

    def observe_namespace(self, namespace: "Namespace") -> None:
        """Compare the UID of kube-system with the one before: another one is another cluster's."""
        uid = namespace.metadata.uid
        if namespace.metadata.name != CLUSTER_NAMESPACE or uid == self._cluster_uid:
            return
        is_first, self._cluster_uid = not self._cluster_uid, uid
        if not is_first:
            _log.error("another cluster answers: kube-system has another UID", uid=uid)
            self._election.void_record()
            self.went_back()

    def went_back(self) -> None:
        """List everything again; the term has ended, or has not begun."""
        self._allocation_state.let_pods_go_back(may=True)
        for informer in self._informers:
            informer.list_at_once()

    async def catch_up(self) -> None:
        """Return when the state is as new as the API server's: for a takeover.

        Raises:
            KubeError: bound pods could not be read.
        """
        await self._until_listed()
        versions = [informer.version for informer in self._informers]
        self._allocation_state.let_pods_go_back(may=False)
        stored = await self._bound_pods.read()
        if any((compared(version, stored) or 0) > 0 for version in versions if version):
            _log.error("lists are newer than what is stored: was the API server's store restored?")
            self.went_back()
            await self._until_listed()
            self._allocation_state.let_pods_go_back(may=False)
            await self._bound_pods.read()

    async def _until_listed(self) -> None:
        while not all(informer.listed.is_set() for informer in self._informers):
            for informer in self._informers:
                await informer.listed.wait()
