"""The reconciler for certificates: make what is due, store it, tell the API server, serve it.

Every replica runs it. The Secret decides: the first writer wins, the others read again and
serve the winner's. One pass is

    read -> due? make and write -> caBundle -> serve

and every part of it is a no-op where there is nothing to do, so a pass that broke off anywhere is
made good by the next. What is due, and in which order CAs follow one another, is `certs.validity`'s.

The order matters where the set of CAs has changed: a server must not show a certificate before
caBundle holds its CA. So while injection fails, the old certificate stays, as long as there is one
that is good.
"""

import asyncio
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

import structlog

from certs import errors
from certs.bundle import Bundle
from certs.renewal import renew
from certs.validity import StillGood, needs_renewal
from kube.backoff import Backoff

if TYPE_CHECKING:
    from api.clock import Clock
    from certs.bundle import Requirements
    from certs.tls import ServingContext
    from certs.validity import RenewalNeeded

CHECK_INTERVAL_S: Final = 60.0
"""Twelve hours, as other rotators have, would do for expiry; but a Secret that was deleted, or a
caBundle that a `kubectl apply` removed, stops every pod creation until the next pass. A pass
without a finding is one read of the Secret and one of each webhook configuration."""
_MAX_RACES = 5
_HOLD_MARGIN = dt.timedelta(hours=1)

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A Secret as it was read."""

    data: Mapping[str, bytes] = field(repr=False)
    resource_version: str


class CertificateStore(Protocol):
    """What rotation needs of the API server; `certs.kubernetes` has it."""

    async def read_secret(self, namespace: str, name: str) -> StoredSecret | None:
        """Return the Secret as it is now (not from a cache), or None where there is none.

        Raises:
            StoreUnavailable: it could not be read.
        """

    async def write_secret(
        self, namespace: str, name: str, data: Mapping[str, bytes], *, resource_version: str | None
    ) -> None:
        """Create the Secret, or with a version replace these keys of the one that has it.

        Raises:
            SecretConflict: it is there already, or is another version, or is gone; nothing is written.
            StoreUnavailable: it may or may not have been written.
        """

    async def inject_ca_bundle(self, ca_pem: bytes) -> None:
        """Let the API server trust exactly these CAs when it calls our webhooks. Idempotent.

        Raises:
            InjectionFailed: some configuration did not get them; the others did.
        """


@final
class CertificateRotation:
    """Keeps our Secret, its client's, the webhook configurations and one `ServingContext` in step."""

    def __init__(  # noqa: PLR0913  # the parts that it keeps in step, all by keyword
        self,
        store: CertificateStore,
        serving: "ServingContext",
        clock: "Clock",
        *,
        namespace: str,
        secret_name: str,
        required: "Requirements",
        client_secret_name: str = "",
        interval_s: float = CHECK_INTERVAL_S,
        backoff: Backoff | None = None,
    ) -> None:
        """Take the parts; nothing is done yet.

        Args:
            store: the API server.
            serving: gets the certificates.
            clock: its wall clock decides what is due.
            namespace: of the Secret.
            secret_name: of the Secret.
            required: names and lifetimes.
            client_secret_name: of a second Secret, for kube-scheduler to mount: a copy of what it needs,
                and no key of ours. Empty: there is none.
            interval_s: between two passes, unless one failed.
            backoff: delays after failures; up to a minute by default.
        """
        self.ready: Final = asyncio.Event()
        """Set once a certificate is served whose CA is in caBundle."""
        self._store = store
        self._serving = serving
        self._clock = clock
        self._namespace = namespace
        self._name = secret_name
        self._required = required
        self._client_name = client_secret_name
        self._interval_s = interval_s
        self._backoff = backoff or Backoff(base_s=1.0, cap_s=60.0)
        self._log = _log.bind(secret=f"{namespace}/{secret_name}")

    async def run(self) -> NoReturn:
        """Pass after pass, for ever; failures are logged, counted and tried again."""
        while True:  # noqa: ASYNC110  # only the time ends the pause
            await asyncio.sleep(await self._attempt())

    async def check(self) -> None:
        """Make one pass. Safe to repeat, to run on several replicas at once, and to cancel anywhere.

        Raises:
            StoreUnavailable: the Secret could not be read or written; what is served stays.
            SecretConflict: other replicas were faster several times in a row; what is served stays. Or
                one was faster with the client's Secret, which the next pass looks at again.
            InjectionFailed: the Secret is good, but some caBundle is not.
            UnusableBundle: what the Secret holds cannot be served; what is served stays.
        """
        bundle = await self._reconcile()
        try:
            await self._store.inject_ca_bundle(bundle.trust_pem)
        except errors.InjectionError:
            if not self._must_hold_back(bundle):
                self._serving.load(bundle.to_serve)
            await self._copy_for_client(bundle)
            raise
        self._serving.load(bundle.to_serve)
        self.ready.set()
        await self._copy_for_client(bundle)

    async def _attempt(self) -> float:
        try:
            await self.check()
        except errors.CertificateError as error:
            _count(error)
            delay_s = self._backoff.fail()
            self._log.warning(
                "certificate check failed",
                failure=type(error).__name__,
                cause=error.cause if isinstance(error, errors.StoreUnavailableError) else "",
                error=str(error),
                retry_in_s=round(delay_s, 1),
            )
            return delay_s
        self._backoff.succeed()
        return self._interval_s

    async def _reconcile(self) -> Bundle:
        """Return the content of the Secret once nothing in it is due."""
        for _ in range(_MAX_RACES):
            stored = await self._store.read_secret(self._namespace, self._name)
            bundle = Bundle.from_secret(stored.data if stored else {})
            now = self._clock.utc_now()
            needed = needs_renewal(bundle, self._required, now)
            if isinstance(needed, StillGood):
                return bundle
            renewed = renew(bundle, needed, required=self._required, now=now)
            version = stored.resource_version if stored else None
            try:
                await self._store.write_secret(
                    self._namespace, self._name, renewed.as_secret(), resource_version=version
                )
            except errors.SecretConflictError:
                self._log.info("another replica wrote the certificates first")
                continue
            self._log.info("certificates renewed", **_reasons(needed))
            return renewed
        raise errors.SecretConflictError(
            f"Secret {self._namespace}/{self._name} changed under us {_MAX_RACES} times in a row"
        )

    async def _copy_for_client(self, bundle: Bundle) -> None:
        if not self._client_name:
            return
        required = bundle.as_client_secret()
        stored = await self._store.read_secret(self._namespace, self._client_name)
        if stored is not None and required.items() <= stored.data.items():
            return
        version = stored.resource_version if stored else None
        await self._store.write_secret(
            self._namespace, self._client_name, required, resource_version=version
        )

    def _must_hold_back(self, bundle: Bundle) -> bool:
        """Return whether serving this would break a working state: other CAs, and a leaf that is good."""
        loaded, not_after = self._serving.loaded, self._serving.not_after
        if loaded is None or not_after is None or loaded.trust_pem == bundle.trust_pem:
            return False
        return self._clock.utc_now() < not_after - _HOLD_MARGIN


def _reasons(needed: "RenewalNeeded") -> dict[str, str]:
    return {
        renewal.part.value: f"{renewal.fault.defect.value}: {renewal.fault.detail}"
        for renewal in needed.renewals
    }


def _count(error: errors.CertificateError) -> None:
    match error:
        case errors.InjectionError():
            errors.RotationStep.INJECT.count_failure()
        case errors.SecretConflictError() | errors.StoreUnavailableError():
            errors.RotationStep.STORE.count_failure()
        case _:
            pass  # the ServingContext counted it
