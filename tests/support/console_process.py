"""`gpu-control-plane console` as a process of its own."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.support.plugin_cluster import ROOT
from tests.support.polling import LIMIT_S


@dataclass
class ConsoleProcess:
    """A console that was started, and may have ended."""

    process: asyncio.subprocess.Process

    async def log(self, event: str) -> dict[str, Any]:
        """Read the log until a line has this event, and return it."""
        assert self.process.stderr is not None
        async with asyncio.timeout(LIMIT_S):
            while line := await self.process.stderr.readline():
                record: dict[str, Any] = msgspec.json.decode(line)
                if record["event"] == event:
                    return record
        raise AssertionError(f"the log ended without {event!r}")

    async def ended(self) -> tuple[int, list[str]]:
        """Return the exit status, and what was still to be read of the log."""
        async with asyncio.timeout(LIMIT_S):
            _, remaining = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, remaining.decode().splitlines()


@asynccontextmanager
async def console_process(
    kubeconfig: Path, *flags: str, listen: str = "127.0.0.1:0"
) -> AsyncIterator[ConsoleProcess]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "console", "--listen", listen, "--log-format=JSON"),
        *("--kubeconfig", str(kubeconfig), *flags),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield ConsoleProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
