"""Port through which bind writes and reads, and the results.

`server` implements it with the API client, tests with a fake.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from api.annotations import Devices
    from api.names import NodeName, PodUid


@dataclass(frozen=True, slots=True)
class PodRef:
    """One incarnation of a pod."""

    namespace: str
    name: str
    uid: "PodUid"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodBinding:
    """Content of the Binding; the uid is its precondition."""

    namespace: str
    name: str
    uid: "PodUid"
    node: "NodeName"
    annotations: "Mapping[str, str]"
    """Merged into the pod in the same write."""
    labels: "Mapping[str, str]" = field(default_factory=dict)
    """Labels, like the annotations."""
    is_fenced: bool = False
    """Whether an annotation names a leadership term, which the API server then checks (`manifests.install.leadership_policy`)."""


@dataclass(frozen=True, slots=True)
class BindWritten:
    """The API server bound the pod."""


@dataclass(frozen=True, slots=True)
class BindRefused:
    """The API server did not carry this write out."""

    message: str
    is_conflict: bool
    """409: the pod is bound, gated or terminating, or its uid is another one."""
    left_s: float | None = None
    """Time that the write left for a read after it, which share one limit."""


@dataclass(frozen=True, slots=True)
class BindUnknown:
    """The write may have been carried out, or may still be."""

    message: str


BindOutcome = BindWritten | BindRefused | BindUnknown


@dataclass(frozen=True, slots=True)
class BoundReading:
    """The pod, with this uid, is bound."""

    node: "NodeName"
    devices: "Devices | None"
    """None where its annotation is missing or unreadable."""


@dataclass(frozen=True, slots=True)
class PendingReading:
    """The pod, with this uid, exists and is not bound."""


@dataclass(frozen=True, slots=True)
class MissingReading:
    """There is no pod with this uid."""


@dataclass(frozen=True, slots=True)
class FailedReading:
    """The pod could not be read."""

    message: str


PodReading = BoundReading | PendingReading | MissingReading | FailedReading


class ReportPort(Protocol):
    """Waits for what nodes report of their pods."""

    async def wait(
        self, unreported: "Callable[[], Mapping[PodUid, str]]"
    ) -> "Mapping[PodUid, str]":
        """Return once nothing is unreported, or what still is when the time is over.

        The last call of `unreported` is made without an await before the return. Raises nothing but CancelledError.
        """


@final
class NeverWaiting:
    """Goes by what is reported now."""

    async def wait(
        self, unreported: "Callable[[], Mapping[PodUid, str]]"
    ) -> "Mapping[PodUid, str]":
        return {}


class BindPort(Protocol):
    """Binds pods. Both calls bound their own time, below kube-scheduler's `httpTimeout` together."""

    async def bind(self, binding: PodBinding) -> BindOutcome:
        """Send one Binding: one API write, no retry. Raises nothing but CancelledError."""

    async def read(self, pod: PodRef, *, within_s: float | None = None) -> PodReading:
        """Read the pod once, from etcd and not from a cache (no resourceVersion).

        A read after a refused write has the time that the write left.
        Raises nothing but CancelledError.
        """
