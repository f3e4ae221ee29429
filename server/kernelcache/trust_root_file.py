"""The trust root of keyless signatures, from a file that may be replaced while the process runs."""

import asyncio
from typing import TYPE_CHECKING, Final, final

import structlog

from kernelcache.signatures.trust_root import TrustRoot, TrustRootError, read_trust_root

if TYPE_CHECKING:
    from pathlib import Path

    from api.clock import Clock

LOOK_EVERY_S: Final = 10.0

_log = structlog.get_logger()


@final
class TrustRootFile:
    """Looks at the file when it is asked, at most every `LOOK_EVERY_S`; without a file there is no trust root.

    A file that cannot be used is reported once, and the trust root before it stays good.
    """

    def __init__(self, path: "Path | None", clock: "Clock") -> None:
        self._path = path
        self._clock = clock
        self._lock = asyncio.Lock()
        self._looked_at: float | None = None
        self._changed_ns: int | None = None
        # modification time of what was read last, good or not
        self._trust_root: TrustRoot | None = None
        self._fault = ""

    async def current(self) -> TrustRoot | None:
        """Return the trust root; the first call with a file imports `sigstore`, some 0.6 s."""
        if self._path is None:
            return None
        async with self._lock:
            now = self._clock.monotonic()
            if self._looked_at is None or now - self._looked_at >= LOOK_EVERY_S:
                self._looked_at = now
                await self._look(self._path)
        return self._trust_root

    async def _look(self, path: "Path") -> None:
        try:
            changed_ns = (await asyncio.to_thread(path.stat)).st_mtime_ns
            if changed_ns == self._changed_ns:
                return
            content = await asyncio.to_thread(path.read_bytes)
            self._changed_ns = changed_ns
            self._trust_root = await asyncio.to_thread(read_trust_root, content)
        except OSError as error:
            self._note(error.strerror or str(error))
        except TrustRootError as error:
            self._note(str(error))
        else:
            self._fault = ""
            _log.info("trust root loaded", file=str(path))

    def _note(self, fault: str) -> None:
        if fault != self._fault:
            _log.error("trust root cannot be used", file=str(self._path), error=fault)
        self._fault = fault
