"""Term object of the leader, against which the API server checks Bindings (`manifests.install.leadership_policy`).

The Lease names the leader; the term object numbers its terms where an admission policy can read them. Each
takeover writes it once, by compare and set: of two replicas that both believe to lead, one gets a Conflict, reads
again and continues only if it still holds the Lease. The numbers are the object's own: a deleted Lease counts from
zero again, the term object does not.
"""

from typing import TYPE_CHECKING, Final, final

from api.kinds.leadershipterm import GPUControlPlaneTerm
from api.names import GROUP
from kube.errors import KubeError, NotFound
from kube.resources import GPU_CONTROL_PLANE_TERMS
from manifests.install.leadership_policy import leadership_token
from manifests.install.rbac import PolicyRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube.client import KubeClient

RBAC: Final = (
    PolicyRule(
        group=GROUP,
        resources=(GPU_CONTROL_PLANE_TERMS.plural,),
        verbs=("create", "get", "patch"),
    ),
)


class LeadershipLostError(KubeError):
    """The Lease was lost before the term could be written."""


@final
class Fence:
    """Term object as one candidate writes and checks it."""

    def __init__(self, client: "KubeClient", name: str, holder: str) -> None:
        self._client = client
        self._name = name
        self._holder = holder
        self._number = 0
        """Number of our current term, or of the one that we try to begin."""
        self._ended = 0
        """Highest number of a term of ours that is over: a number is never used twice."""

    @property
    def token(self) -> str:
        """Return the token with which Bindings name our term."""
        return leadership_token(self._holder, self._number)

    def end(self) -> None:
        """Retire the current number, so that the next term has a higher one."""
        self._ended = self._number

    async def begin(self, leads: "Callable[[], bool]") -> None:
        """Write our term, unless it is stored: the response to an earlier attempt may have been lost.

        `leads` is checked between the read and the write. A replica that lost the Lease by then must not
        write; one that loses it later gets a Conflict if its successor has written.

        Raises:
            LeadershipLostError: nothing was written.
            KubeError: the outcome is unknown; Conflict where another replica wrote meanwhile.
        """
        stored = await self._read()
        if self._is_ours(stored):
            return
        self._number = max(self._ended, 0 if stored is None else stored.spec.number) + 1
        if not leads():
            raise LeadershipLostError("this replica no longer holds the Lease")
        spec = {"holder": self._holder, "number": self._number}
        if stored is None:
            body = {
                "apiVersion": GPU_CONTROL_PLANE_TERMS.api_version,
                "kind": GPU_CONTROL_PLANE_TERMS.kind,
                "metadata": {"name": self._name},
                "spec": spec,
            }
            await self._client.create(GPU_CONTROL_PLANE_TERMS, body)
            return
        metadata = {"resourceVersion": stored.metadata.resource_version}
        await self._client.merge_patch(
            GPU_CONTROL_PLANE_TERMS, {"metadata": metadata, "spec": spec}, name=self._name
        )

    async def holds(self) -> bool:
        """Return whether the stored term is ours.

        Raises:
            KubeError: the term could not be read.
        """
        return self._is_ours(await self._read())

    async def _read(self) -> GPUControlPlaneTerm | None:
        try:
            return await self._client.get(GPU_CONTROL_PLANE_TERMS, GPUControlPlaneTerm, self._name)
        except NotFound:
            return None

    def _is_ours(self, stored: GPUControlPlaneTerm | None) -> bool:
        return (
            stored is not None
            and stored.spec.holder == self._holder
            and stored.spec.number == self._number > self._ended
        )
