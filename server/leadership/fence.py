"""Our term at the API server: what the fence compares bindings with (`manifests.install.leadership_policy`).

The Lease says who leads; this object says which number that is, in a place that the API server's
admission follows. It is written once in each take-over, by compare and set: of two replicas that both
believe to lead one gets a conflict, looks again, and goes on only if the Lease is still its own.
The numbers are the object's own. A Lease that is deleted starts to count anew, this does not.
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
    """The term object, as one candidate sees it."""

    def __init__(self, client: "KubeClient", name: str, holder: str) -> None:
        """Take what the object is called, and who we are."""
        self._client = client
        self._name = name
        self._holder = holder
        self._number = 0
        """Of our present term, or of the one that we try to begin."""
        self._ended = 0
        """The highest number of a term of ours that is over: no two may have one name."""

    @property
    def token(self) -> str:
        """Return what a Binding says of our term."""
        return leadership_token(self._holder, self._number)

    def end(self) -> None:
        """Give up the present number, so that the next term has a higher one."""
        self._ended = self._number

    async def begin(self, leads: "Callable[[], bool]") -> None:
        """Write our term, unless it is there: an answer to an earlier attempt may have been lost.

        `leads` is asked between the read and the write. Whoever lost the lead by then must not
        write, and whoever loses it later has its write refused, if the next one has written.

        Raises:
            LeadLost: nothing was written.
            KubeError: it is not known to be written; Conflict where somebody else wrote meanwhile.
        """
        stored = await self._look()
        if self._is_ours(stored):
            return
        self._number = max(self._ended, 0 if stored is None else stored.spec.number) + 1
        if not leads():
            raise LeadershipLostError("the Lease is not ours any more")
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
        """Say whether the API server has our term.

        Raises:
            KubeError: it could not be read.
        """
        return self._is_ours(await self._look())

    async def _look(self) -> GPUControlPlaneTerm | None:
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
