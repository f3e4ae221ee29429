"""Leader election by a Lease: at no moment do two processes lead.

The arithmetic, with `D` = lease duration, `R` = renew deadline, `R < D`:

* A leader renews by a PUT that carries the resourceVersion it knows. Call `S` the moment it *started*
  the last PUT that succeeded. It leads while its monotonic clock shows less than `S + R`, computed
  when it is asked, so that a loop that stood still cannot answer from memory.
* That PUT reached the server at some `W >= S`, and a follower saw the record it made at some `O >= W`.
  The follower takes over no earlier than `O + D` on its own monotonic clock, and starts to count anew
  with every change of the record. `O + D > S + R`: the old leader has stopped before.
* A PUT by a follower names the version it watched for `D`; had the leader renewed unseen, it is a
  conflict. Of two followers one gets the conflict.
* Somebody deletes the Lease: who saw it held counts `D` from the moment it was gone; only a process
  that never saw a holder creates it at once. Starting one in those seconds is what this cannot see.
* Timestamps in the record are for people. Clocks may be wrong, or be set, without any effect; only
  their speed matters, and `D / R` is how far it may differ (15/10: by half).

Every error is a failed renewal, and every call is bounded, so that none can keep us leading.
Two processes cannot book one device twice even so: the API server refuses to bind a bound pod.
"""

import asyncio
import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol, final

import msgspec
import structlog

from api.meta import Model, ObjectMeta
from kube.backoff import Backoff
from kube.errors import KubeError, NotFound, TimedOut, cut
from kube.events import micro_time
from kube.resources import LEASES
from telemetry.metrics import LEADING

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from api.clock import Clock
    from kube.resources import Resource

_log = structlog.get_logger()


class LeaseSpec(Model, frozen=True):
    """`spec` of a Lease, whole: it is written back as it was read."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0
    strategy: str = ""
    preferred_holder: str = ""


class Lease(Model, frozen=True):
    """A Lease; without defaults for what an object on the wire must have."""

    api_version: str
    kind: str
    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class LeaseClient(Protocol):
    """The part of `KubeClient` that an election needs."""

    async def get(
        self, resource: "Resource", type_: type[Lease], name: str, *, namespace: str | None = None
    ) -> Lease:
        """Return the Lease as it is now."""

    async def create(self, resource: "Resource", body: object, type_: type[Lease]) -> Lease:
        """Create it, or raise."""

    async def replace(self, resource: "Resource", body: object, type_: type[Lease]) -> Lease:
        """Write it if its resourceVersion is still the current one, or raise."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """Which Lease, and its times; those of client-go by default."""

    namespace: str
    name: str
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        """Refuse times with which the arithmetic does not hold, or renewals have no second chance."""
        if not 0 < 2 * self.retry_s < self.renew_deadline_s < self.lease_duration_s:
            raise ValueError(
                "a lease needs 2 * retry < renew deadline < lease duration, not "
                f"2 * {self.retry_s:g}, {self.renew_deadline_s:g}, {self.lease_duration_s:g}"
            )


@final
class LeaderElection:
    """One candidate for one Lease."""

    def __init__(
        self,
        client: LeaseClient,
        clock: "Clock",
        terms: LeaseTerms,
        *,
        identity: str,
        rng: "random.Random | None" = None,
    ) -> None:
        """Take the parts; `run` does the work.

        `identity` is for people; a random part is added, because two holders of one name would each
        take the other's record for their own.
        """
        self._client = client
        self._clock = clock
        self._terms = terms
        self._rng = Backoff(rng=rng).rng
        self.identity = f"{identity}_{secrets.token_hex(8)}"
        self.leading = asyncio.Event()
        """Follows `is_leading` as closely as the loop allows; for waiting, not for deciding."""
        self._leads_until = -math.inf
        self._record: Lease | None = None
        self._seen_at = -math.inf
        """When the record came to be as it is, or was first missed; by our clock."""
        self._record_is_ours_and_current = False
        self._log = _log.bind(lease=f"{terms.namespace}/{terms.name}", identity=self.identity)

    def is_leading(self) -> bool:
        """Say whether we lead at this very moment; ask right before every write."""
        return self._clock.monotonic() < self._leads_until

    async def run(
        self, on_started: "Callable[[], None]", on_stopped: "Callable[[], None]"
    ) -> NoReturn:
        """Try to lead until cancelled; no trouble of the API server ends it.

        The calls are plain ones and alternate: started, stopped, started, and so on; stopped is also
        called on the way out. Cancelled, we stop leading but keep the Lease; see `release`.
        """
        try:
            while True:
                await self._try()
                self._announce(on_started, on_stopped)
                await asyncio.sleep(self._pause_s())
                self._announce(on_started, on_stopped)
        finally:
            self._leads_until = -math.inf
            self._announce(on_started, on_stopped)

    async def release(self) -> None:
        """Give the Lease up, so that others take over at once and not after its duration.

        To be called when `run` has ended *and* the leader's last write is through, since from then on
        somebody else leads. A failure is logged; the Lease then runs out by itself.
        """
        self._leads_until = -math.inf
        try:
            record = self._record if self._record_is_ours_and_current else await self._look()
            if record is None or not self._is_ours(record):
                return
            self._record_is_ours_and_current = False
            spec = msgspec.structs.replace(
                record.spec, holder_identity="", renew_time=micro_time(self._clock.utc_now())
            )
            await self._bounded(
                self._client.replace(LEASES, msgspec.structs.replace(record, spec=spec), Lease)
            )
        except KubeError as error:
            self._log.warning("lease not released", cause=type(error).__name__, error=str(error))
        else:
            self._log.info("lease released")

    async def _try(self) -> None:
        try:
            await self._try_once()
        except KubeError as error:
            self._log.warning(
                "lease not renewed" if self.is_leading() else "lease not acquired",
                cause=type(error).__name__,
                error=cut(str(error)),
                leads_for_s=round(max(0.0, self._leads_until - self._clock.monotonic()), 2),
            )

    async def _try_once(self) -> None:
        record = self._record if self._record_is_ours_and_current else await self._look()
        # Whatever ends the write early leaves it open which version the server has: read again then.
        self._record_is_ours_and_current = False
        if record is not None and self._is_ours(record):
            await self._claim(record)
            return
        self._leads_until = -math.inf
        if self._is_free(record):
            await self._claim(record)

    async def _look(self) -> Lease | None:
        terms = self._terms
        try:
            record: Lease | None = await self._bounded(
                self._client.get(LEASES, Lease, terms.name, namespace=terms.namespace)
            )
        except NotFound:
            record = None
        if _version(record) != _version(self._record):
            # The moment after the answer: the record is at least as old.
            self._seen_at = self._clock.monotonic()
            self._record = record
        return record

    def _is_ours(self, record: Lease) -> bool:
        return record.spec.holder_identity == self.identity

    def _is_free(self, record: Lease | None) -> bool:
        if record is not None and not record.spec.holder_identity:
            return True
        duration_s = self._terms.lease_duration_s
        if record is not None:
            duration_s = max(duration_s, float(record.spec.lease_duration_seconds))
        return self._clock.monotonic() - self._seen_at >= duration_s

    async def _claim(self, record: Lease | None) -> None:
        now = micro_time(self._clock.utc_now())
        spec = LeaseSpec() if record is None else record.spec
        if record is None or not self._is_ours(record):
            transitions = 0 if record is None else spec.lease_transitions + 1
            spec = msgspec.structs.replace(spec, acquire_time=now, lease_transitions=transitions)
        spec = msgspec.structs.replace(
            spec,
            holder_identity=self.identity,
            lease_duration_seconds=math.ceil(self._terms.lease_duration_s),
            renew_time=now,
        )
        started = self._clock.monotonic()
        if record is None:
            written = await self._bounded(self._client.create(LEASES, self._new(spec), Lease))
        else:
            lease = msgspec.structs.replace(record, spec=spec)
            written = await self._bounded(self._client.replace(LEASES, lease, Lease))
        self._record = written
        self._seen_at = self._clock.monotonic()
        self._record_is_ours_and_current = True
        self._leads_until = started + self._terms.renew_deadline_s

    def _new(self, spec: LeaseSpec) -> Lease:
        metadata = ObjectMeta(name=self._terms.name, namespace=self._terms.namespace)
        return Lease(api_version=LEASES.api_version, kind=LEASES.kind, metadata=metadata, spec=spec)

    async def _bounded(self, call: "Awaitable[Lease]") -> Lease:
        """Await the call, but not beyond the end of our leading, nor so long that none can follow."""
        limit_s = self._terms.renew_deadline_s / 2
        if self.is_leading():
            limit_s = min(limit_s, self._leads_until - self._clock.monotonic())
        try:
            async with asyncio.timeout(limit_s):
                return await call
        except TimeoutError as error:
            raise TimedOut(f"no answer within {limit_s:.2f} s", request_sent=True) from error

    def _pause_s(self) -> float:
        pause_s = self._terms.retry_s * self._rng.uniform(0.8, 1.2)
        if self.is_leading():
            return min(pause_s, self._leads_until - self._clock.monotonic())
        return pause_s

    def _announce(self, on_started: "Callable[[], None]", on_stopped: "Callable[[], None]") -> None:
        leads = self.is_leading()
        if leads == self.leading.is_set():
            return
        LEADING.set(leads)
        if leads:
            self._log.info("started leading")
            self.leading.set()
            on_started()
        else:
            self._log.info("stopped leading")
            self.leading.clear()
            on_stopped()


def _version(record: Lease | None) -> str | None:
    return None if record is None else record.metadata.resource_version
