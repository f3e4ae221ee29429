"""Leader election by a Lease: at no moment do two processes lead.

The arithmetic, with `D` = lease duration, `R` = renew deadline, `R < D`:

* A leader renews by a PUT that carries the resourceVersion it knows. Call `S` the moment it *started*
  the last PUT that succeeded. It leads while its monotonic clock shows less than `S + R`, computed
  when it is asked, so that a loop that stood still cannot answer from memory.
* That PUT reached the server at some `W >= S`, and a follower saw the record it made at some `O >= W`.
  The follower takes over no earlier than `O + D` on its own monotonic clock, and starts again
  with every change of the record. `O + D > S + R`: the old leader has stopped before.
* A PUT by a follower names the version it watched for `D`; had the leader renewed unseen, it is a
  conflict. Of two followers one gets the conflict.
* After a deletion of the Lease, a process that saw a holder counts `D` from the moment it was gone; only a
  process that never saw a holder creates it at once. A process started in those seconds is not covered.
* Timestamps in the record are for people. Clocks may be wrong, or be set, without any effect; only
  their speed matters, and `D / R` is how far it may differ (2/1.5: by a third).

Every error is a failed renewal, and every call is bounded, so that none can keep us leading.

A leader that finds the API server slow asks for longer times (`LeasePace`) by writing them into the
record, which followers obey; `D` and `R` above are those of one PUT. A record that may have been
written with a shorter `D` than the one before must not be led beyond its own `R`, which is why the
deadline is cut before such a PUT is sent. And a follower that could not look gives the holder time to
renew before it counts the record's age against it.

A Lease with a lower resourceVersion than one that was read before is of a store that was restored from a backup.
Another process may have led after the backup, so whatever the record says of its holder is void: it
counts as another's that has just renewed, for everybody, and the next term has a new number.

`is_leading` cannot bind what is already on its way to the API server, nor see that the process was
stopped after it was asked: `manifests.install.leadership_policy` does that, by `Term`.
"""

import asyncio
import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVar, final

import msgspec
import structlog

from api.meta import Model, ObjectMeta, compared
from kube.backoff import Backoff
from kube.errors import KubeError, NotFound, TimedOut, one_line
from kube.event_recorder import micro_time
from kube.event_source import EventSource
from kube.lease_pace import LeasePace
from kube.resources import LEASES
from telemetry.metrics import LEADING

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from api.clock import Clock
    from kube.client import WriteResponse
    from kube.resources import Resource

_TICK_S: Final = 0.001
"""Least sleep, in seconds: below it a sleep may end where it began."""

T = TypeVar("T")

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

    async def create(self, resource: "Resource", body: object) -> "WriteResponse":
        """Create it, or raise."""

    async def replace(self, resource: "Resource", body: object) -> "WriteResponse":
        """Write it if its resourceVersion is still the current one, or raise."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Name and times of the Lease: a dead leader is followed after 1.6 to 2.3 s.

    client-go's are 15, 10 and 2 s, and a hand-over takes as long. Ours cost two and a half writes of
    one small object a second, and four reads a second by each follower; 1,000 kubelets write 100.
    """

    namespace: str
    name: str
    lease_duration_s: float = 2.0
    renew_deadline_s: float = 1.5
    retry_s: float = 0.4
    poll_s: float = 0.25
    """How often a follower reads the record."""

    def __post_init__(self) -> None:
        """Refuse times with which the arithmetic does not hold, or renewals have no second chance."""
        if not 0 < 2 * self.retry_s < self.renew_deadline_s < self.lease_duration_s:
            raise ValueError(
                "a lease needs 2 * retry < renew deadline < lease duration, not "
                f"2 * {self.retry_s:g}, {self.renew_deadline_s:g}, {self.lease_duration_s:g}"
            )
        if self.poll_s <= 0:
            raise ValueError(
                f"a Lease is looked at every {self.poll_s:g} s, which must be positive"
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term of leadership, from taking the Lease to its next holder.

    A holder that fails to renew and then finds the record still its own is in the same term: nobody
    else led in between.
    """

    holder: str
    transitions: int
    follows_release: bool
    """The Lease was given up when its holder's last write was through. Otherwise it ran out, was
    deleted or never was, and writes of an earlier holder may be on their way."""


@final
class LeaderElection:
    """One candidate for one Lease."""

    def __init__(
        self,
        client: LeaseClient,
        clock: "Clock",
        times: LeaseTimes,
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
        self._times = times
        self._rng = Backoff(rng=rng).rng
        self.identity = f"{identity}_{secrets.token_hex(8)}"
        self.leading = asyncio.Event()
        """Follows `is_leading` as closely as the loop allows; for waiting, not for deciding."""
        self._leads_until = -math.inf
        self.term: Term | None = None
        """The latest that we began; over where `is_leading` says so."""
        self._announced: Term | None = None
        self._record: Lease | None = None
        self._seen_at = -math.inf
        """When the record came to be as it is, or was first missed; by our clock."""
        self._is_standing = True
        self._trying = asyncio.Lock()
        self._pace = LeasePace(times.retry_s)
        self._highest_version = ""
        self._is_record_void = False
        """Whether the record is of a store that went back, or of another one, and names nobody who leads."""
        self.store_restored: EventSource[str] = EventSource()
        """The Lease, each time that it is older than one that was read before."""
        self._can_reuse_record = False
        self._log = _log.bind(lease=f"{times.namespace}/{times.name}", identity=self.identity)

    def is_leading(self) -> bool:
        """Return whether we lead at this moment; ask right before every write."""
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

    def stand_down(self) -> None:
        """Stop leading for good, and leave the Lease, if we have it, to run out."""
        self._is_standing = False
        self._leads_until = -math.inf

    def void_record(self) -> None:
        """End the term, and follow the record as another's: it is not of the store in which we led."""
        self._is_record_void = True
        self._leads_until = -math.inf
        self._seen_at = self._clock.monotonic()
        self._can_reuse_record = False

    def report_restore(self, evidence: str) -> None:
        """End the term because the API server's store went back in time, and publish that."""
        self._log.error(f"{evidence}: was the API server's store restored?")
        self.void_record()
        self.store_restored.publish(self._times.name)

    async def succeeded(self) -> bool:
        """Return whether another process holds the Lease that we released; False on an error."""
        try:
            record = await self._read()
        except KubeError:
            return False
        return record is not None and record.spec.holder_identity not in {"", self.identity}

    async def release(self) -> None:
        """Give the Lease up for good, so that others take over at once and not after its duration.

        To be called when the leader's last write is through, since from then on another process leads
        and does not wait for any. A failure is logged; the Lease then runs out by itself.
        """
        self.stand_down()
        async with self._trying:
            self._leads_until = -math.inf
            await self._give_up()

    async def _give_up(self) -> None:
        try:
            record = self._record if self._can_reuse_record else await self._read()
            if record is None or not self._is_ours(record):
                return
            self._can_reuse_record = False
            spec = msgspec.structs.replace(
                record.spec, holder_identity="", renew_time=micro_time(self._clock.utc_now())
            )
            await self._bounded(
                self._client.replace(LEASES, msgspec.structs.replace(record, spec=spec))
            )
        except KubeError as error:
            self._log.warning("lease not released", cause=type(error).__name__, error=str(error))
        else:
            self._log.info("lease released")

    async def _try(self) -> None:
        async with self._trying:
            if self._is_standing:
                await self._try_and_report()

    async def _try_and_report(self) -> None:
        started = self._clock.monotonic()
        try:
            await self._try_once()
        except KubeError as error:
            self._postpone_expiry()
            if isinstance(error, TimedOut):
                self._pace.timed_out()
            self._log.warning(
                "lease not renewed" if self.is_leading() else "lease not acquired",
                cause=type(error).__name__,
                error=one_line(str(error)),
                leads_for_s=round(max(0.0, self._leads_until - self._clock.monotonic()), 2),
            )
        else:
            self._pace.took(self._clock.monotonic() - started)

    def _postpone_expiry(self) -> None:
        """Count the record as younger after a look that failed: its holder could not write either."""
        age_s = self._duration_s(self._record) - 2 * self._times.retry_s
        least = self._clock.monotonic() - age_s
        if self._seen_at > -math.inf:
            self._seen_at = max(self._seen_at, least)

    async def _try_once(self) -> None:
        record = self._record if self._can_reuse_record else await self._read()
        # Whatever ends the write early leaves it open which version the server has: read again then.
        self._can_reuse_record = False
        if record is not None and self._is_ours(record):
            await self._claim(record)
            return
        self._leads_until = -math.inf
        if self._is_free(record):
            await self._claim(record)

    async def _read(self) -> Lease | None:
        times = self._times
        try:
            record: Lease | None = await self._bounded(
                self._client.get(LEASES, Lease, times.name, namespace=times.namespace)
            )
        except NotFound:
            record = None
        if _version(record) != _version(self._record):
            # The moment after the answer: the record is at least as old.
            self._seen_at = self._clock.monotonic()
            self._record = record
        if record is not None:
            self._note_version(record)
        return record

    def _note_version(self, record: Lease) -> None:
        """Compare with the newest record; each read is as new as all that were answered before it."""
        version = record.metadata.resource_version
        order = compared(version, self._highest_version) if self._highest_version else 0
        self._highest_version = version
        if order is not None and order < 0:
            self.report_restore("lease went back in time")

    def _is_ours(self, record: Lease) -> bool:
        return record.spec.holder_identity == self.identity and not self._is_record_void

    def _is_free(self, record: Lease | None) -> bool:
        if record is not None and not record.spec.holder_identity and not self._is_record_void:
            return True
        return self._clock.monotonic() >= self._free_from(record)

    def _free_from(self, record: Lease | None) -> float:
        return self._seen_at + self._duration_s(record)

    def _duration_s(self, record: Lease | None) -> float:
        """Return how long the record keeps others from leading, which its holder may have stretched."""
        duration_s = self._times.lease_duration_s
        return duration_s if record is None else max(duration_s, record.spec.lease_duration_seconds)

    async def _claim(self, record: Lease | None) -> None:
        now = micro_time(self._clock.utc_now())
        spec = LeaseSpec() if record is None else record.spec
        is_released = record is not None and not record.spec.holder_identity
        follows_release = is_released and not self._is_record_void
        if record is None or not self._is_ours(record):
            # Also where the Lease was deleted, no two terms of ours may have one name.
            transitions = max(
                0 if record is None else spec.lease_transitions + 1,
                0 if self.term is None else self.term.transitions + 1,
            )
            spec = msgspec.structs.replace(spec, acquire_time=now, lease_transitions=transitions)
        stretch = self._pace.stretch
        spec = msgspec.structs.replace(
            spec,
            holder_identity=self.identity,
            lease_duration_seconds=math.ceil(self._times.lease_duration_s * stretch),
            renew_time=now,
        )
        started = self._clock.monotonic()
        leads_until = started + self._times.renew_deadline_s * stretch
        self._leads_until = min(self._leads_until, leads_until)
        if record is None:
            answer = await self._bounded(self._client.create(LEASES, self._new(spec)))
        else:
            lease = msgspec.structs.replace(record, spec=spec)
            answer = await self._bounded(self._client.replace(LEASES, lease))
        self._record = written = answer.decode(Lease)
        self._note_version(written)
        self._is_record_void = False
        self._seen_at = self._clock.monotonic()
        self._can_reuse_record = True
        # Also where the answer to the PUT that began the term was lost, and the record is found ours.
        if self.term is None or self.term.transitions != written.spec.lease_transitions:
            self.term = Term(
                holder=self.identity,
                transitions=written.spec.lease_transitions,
                follows_release=follows_release,
            )
        self._leads_until = leads_until

    def _new(self, spec: LeaseSpec) -> Lease:
        metadata = ObjectMeta(name=self._times.name, namespace=self._times.namespace)
        return Lease(api_version=LEASES.api_version, kind=LEASES.kind, metadata=metadata, spec=spec)

    async def _bounded(self, call: "Awaitable[T]") -> T:
        """Await the call, but not beyond the end of our leading, nor so long that none can follow."""
        limit_s = self._times.renew_deadline_s * self._pace.stretch / 2
        if self.is_leading():
            limit_s = min(limit_s, self._leads_until - self._clock.monotonic())
        try:
            async with asyncio.timeout(limit_s):
                return await call
        except TimeoutError as error:
            raise TimedOut(f"no answer within {limit_s:.2f} s", request_sent=True) from error

    def _pause_s(self) -> float:
        jitter = self._rng.uniform(0.8, 1.2)
        now = self._clock.monotonic()
        if self.is_leading():
            pause_s, ends_in_s = self._times.retry_s * jitter, self._leads_until - now
        else:
            pause_s, ends_in_s = self._times.poll_s * jitter, self._free_from(self._record) - now
        return max(ends_in_s, _TICK_S) if 0 < ends_in_s < pause_s else pause_s

    def _announce(self, on_started: "Callable[[], None]", on_stopped: "Callable[[], None]") -> None:
        leads = self.is_leading()
        # Another term is another term, though it was not observed in between.
        if self.leading.is_set() and not (leads and self.term is self._announced):
            self._log.info("stopped leading")
            self.leading.clear()
            LEADING.set(0)
            on_stopped()
        if leads and not self.leading.is_set():
            self._announced = self.term
            self._log.info("started leading")
            self.leading.set()
            LEADING.set(1)
            on_started()


def _version(record: Lease | None) -> str | None:
    return None if record is None else record.metadata.resource_version
