"""The page in Chromium, on the demo's cluster: each view, by mouse and keyboard, judged by axe; pictures for the docs.

UPDATE_GOLDEN=1 .venv/bin/pytest tests/cluster/console/test_page.py --with-cluster   # takes the pictures of the docs again
"""

import os
import re
from pathlib import Path

import pytest

from demo.life_script import FailDevice
from tests.cluster.environment import polling
from tests.cluster.environment.browser import open_page

PICTURES = Path(__file__).resolve().parents[3] / "docs" / "images"
WITHIN_MS = 120_000
VIEWS = ("Waiting", "Reservations", "Who", "Fits", "What if", "Health")
PNG_HEAD = b"\x89PNG\r\n\x1a\n"
FOCUSED = "document.activeElement.dataset.device"


@pytest.fixture
async def lively(living_page):
    """A cluster whose pools are about full, with a device that has failed."""
    async with living_page() as (living, address):
        while not isinstance(await living.step(), FailDevice):
            pass
        yield living, address


@pytest.fixture
async def quiet(living_page):
    """A cluster with a few pods."""
    async with living_page(warm_up=4) as (living, address):
        yield living, address


async def test_every_view_is_without_fault_for_axe_and_pictures_show_it(lively, browser, tmp_path):
    _, address = lively
    opened = await open_page(browser)
    page = opened.page
    await opened.load(address)
    await page.locator('[data-look="faulted"]').first.wait_for(timeout=WITHIN_MS)
    assert await page.locator("[data-device]").count() == 48
    assert await opened.axe_violations() == []
    await _take(page, "console-light.png", tmp_path)

    views = page.get_by_role("navigation", name="Views")
    for view in VIEWS:
        await views.get_by_text(view, exact=False).first.click()
        title = page.locator(f"#{view.lower().replace(' ', '-')}-title")
        await title.wait_for(timeout=WITHIN_MS)  # its module is fetched first
        assert await opened.axe_violations() == [], view
        if view == "Waiting":
            await page.locator("[data-waiting]").first.get_by_role("button").first.click()
            await page.get_by_role("group", name="Nodes for").first.wait_for(timeout=WITHIN_MS)
            assert await opened.axe_violations() == [], "figures by node"
            await _take(page, "console-waiting.png", tmp_path)
    await page.emulate_media(color_scheme="dark")
    for view in ("Devices", *VIEWS):
        await views.get_by_text(view, exact=False).first.click()
        assert await opened.axe_violations() == [], f"{view}, dark"
    await views.get_by_text("Devices").first.click()
    await _take(page, "console-dark.png", tmp_path)
    assert opened.complaints == []


@pytest.mark.parametrize("script", ["Page", "chunk"])
async def test_a_page_without_one_of_its_scripts_says_so_and_is_loaded_again(
    script: str, quiet, browser
):
    """As after an upgrade: the scripts of an older page are gone."""
    _, address = quiet
    opened = await open_page(browser)
    page = opened.page
    scripts = re.compile(rf"/{script}-\w+\.js")
    await page.route(scripts, lambda route: route.abort())
    await opened.load(address)
    again = page.get_by_role("button", name="Load the page again")
    await again.wait_for(timeout=WITHIN_MS)
    why = await page.locator("#page").inner_text()
    assert "The page did not start: TypeError: Failed to fetch" in why
    await page.unroute(scripts)
    await again.click()
    await page.locator("[data-device]").first.wait_for(timeout=WITHIN_MS)


async def test_the_keyboard_reaches_a_device_and_its_panel(quiet, browser):
    _, address = quiet
    opened = await open_page(browser)
    page = opened.page
    await opened.load(address)
    await page.locator("[data-device]").nth(47).wait_for(timeout=WITHIN_MS)
    cell = page.locator('[role="grid"] [tabindex="0"]')
    await cell.first.focus()
    first = await page.evaluate(FOCUSED)
    await page.keyboard.press("ArrowRight")
    right = await _focus_after(page, first)
    await page.keyboard.press("ArrowDown")
    reached = await _focus_after(page, right)
    await page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="Device")
    await panel.get_by_text(reached).first.wait_for(timeout=WITHIN_MS)
    assert await opened.axe_violations() == []
    await page.keyboard.press("Escape")
    await panel.wait_for(state="detached", timeout=WITHIN_MS)
    assert opened.complaints == []


async def test_pods_would_fit_or_not_as_the_form_asks(quiet, browser):
    _, address = quiet
    opened = await open_page(browser)
    page = opened.page
    await opened.load(address)
    await page.get_by_role("navigation", name="Views").get_by_text("What if").click()
    await page.locator("#what-if-pool").select_option("training")
    await page.get_by_label("Units of a pod").fill("8")
    await page.get_by_label("Pods", exact=True).fill("40")
    await page.keyboard.press("Enter")
    await page.get_by_text("of 40 pods").first.wait_for(timeout=WITHIN_MS)
    assert await opened.axe_violations() == []
    assert opened.complaints == []


async def test_a_narrow_page_is_usable(quiet, browser):
    _, address = quiet
    opened = await open_page(browser, size=(600, 900))
    page = opened.page
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    await opened.load(address)
    await page.locator("[data-device]").first.wait_for(timeout=WITHIN_MS)
    assert [url for url in fetched if re.search(r"/(others|PoolDetail)-", url)] == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= 600
    assert await opened.axe_violations() == []


async def _focus_after(page, before: str) -> str:
    """Return the device that has the focus, once it is another one: the page moves it with its next frame."""

    async def moved() -> str | None:
        found = await page.evaluate(FOCUSED)
        return None if found == before else found

    return await polling.eventually(moved, what=f"the focus leaves {before}")


async def _take(page, name: str, folder: Path) -> None:
    """Take a picture; with UPDATE_GOLDEN into the docs, which must have one of the same size."""
    target = PICTURES if os.environ.get("UPDATE_GOLDEN") else folder
    await page.mouse.move(0, 0)
    taken = await page.screenshot(path=target / name, animations="disabled")
    assert _size(taken) == _size((PICTURES / name).read_bytes())


def _size(png: bytes) -> tuple[int, int]:
    assert png.startswith(PNG_HEAD)
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
