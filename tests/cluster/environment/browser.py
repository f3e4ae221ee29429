"""Debian's Chromium without a window, driven by Playwright: pages as a person sees them."""

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import async_playwright

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser, ConsoleMessage, Page, Request

FLAGS: Final = (
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-precise-memory-info",
    "--js-flags=--expose-gc",
)
PATIENCE_MS: Final = 120_000.0
WIDE: Final = (1280, 900)
_AXE_RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
_INTERRUPTED: Final = "net::ERR_NETWORK_CHANGED"
_RUN_AXE: Final = """
async (tags) => {
  const found = await axe.run(document, { runOnly: { type: 'tag', values: tags } });
  return found.violations.map(one => ({ id: one.id, help: one.help, nodes: one.nodes.map(node => node.html) }));
}
"""


@final
@dataclass(slots=True)
class OpenPage:
    """A page, and what went wrong in it."""

    page: "Page"
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings of the browser's console, and exceptions that nobody caught."""
    interrupted: list[str] = field(default_factory=list)
    """Requests that ended because a network interface has changed."""

    async def load(self, url: str) -> None:
        """Load an address: once more where Chromium gave a request up because an interface of this machine has changed.

        Containers that come and go beside the test are such changes. A page without its first script stays empty.
        """
        is_complete = False
        while not is_complete:
            before = len(self.interrupted)
            await self.page.goto(url)
            is_complete = len(self.interrupted) == before

    async def axe_violations(self) -> list[dict[str, Any]]:
        """Return what axe-core finds against WCAG 2.1 A and AA, and its best practices."""
        # Not as a script element: the page's own policy forbids that, as it should.
        await self.page.evaluate(AXE_SCRIPT)
        found: list[dict[str, Any]] = await self.page.evaluate(_RUN_AXE, _AXE_RULES)
        return found


@asynccontextmanager
async def open_browser(program: "Path") -> "AsyncIterator[Browser]":
    """Start Chromium; everything of it is gone afterwards. pytest prints its pages where the test has failed."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=str(program), args=list(FLAGS))
        try:
            yield browser
        finally:
            for page in (page for context in browser.contexts for page in context.pages):
                print(page.url, await page.content())
            await browser.close()


async def open_page(
    browser: "Browser", *, size: tuple[int, int] = WIDE, is_dark: bool = False
) -> OpenPage:
    """Open an empty page of its own session: it shares no cookie with others."""
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if is_dark else "light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(PATIENCE_MS)
    opened = OpenPage(await context.new_page())

    def note(message: "ConsoleMessage") -> None:
        if message.type in {"error", "warning"}:
            opened.complaints.append(f"{message.type}: {message.text}")

    opened.page.on("console", note)
    opened.page.on("pageerror", lambda error: opened.complaints.append(f"exception: {error}"))
    started = time.monotonic()

    def note_request(event: str, request: "Request") -> None:
        """Print it, which pytest repeats where the test has failed: a page that waits says for what."""
        print(f"{time.monotonic() - started:7.2f} s {event} {request.url} {request.failure or ''}")
        if request.failure == _INTERRUPTED:
            opened.interrupted.append(request.url)

    for event in ("request", "requestfinished", "requestfailed"):
        opened.page.on(event, partial(note_request, event))
    return opened
