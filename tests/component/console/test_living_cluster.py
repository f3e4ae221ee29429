"""The demo's living cluster, driven step by step, and the console's page on it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from console.rows import RowHealth
from demo.console_page import console_page
from demo.fleet import name_of
from demo.life_script import CreatePod, FailDevice
from demo.living_cluster import NODES, POOLS, ScriptedCluster, device_table, living_cluster
from tests.support.console_feed import ConsoleView

WITHIN_S = 120.0
Sections = dict[str, dict[str, Any]]


async def test_the_page_shows_what_happens_on_the_cluster(tmp_path: Path):
    log = tmp_path / "server.log"
    async with (
        living_cluster(tmp_path, log, seed=1, warm_up=4) as living,
        console_page(living.cluster) as address,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        url, token = address.split("/#token=")
        login = {"Authorization": f"Bearer {token}"}
        async with session.get(f"{url}/api/v1/login", headers=login) as answer:
            assert answer.status == 204, await answer.text()
        async with session.get(f"{url}/api/v1/stream") as stream:
            page = ConsoleView()
            current = await until(
                stream, page, lambda current: len(current["devices"]) == 8 * len(NODES)
            )
            assert {name: item.total for name, item in current["pools"].items()} == {
                item.name: item.units for item in POOLS
            }
            assert {item.phase for item in current["pools"].values()} == {"Ready"}
            assert sum(not item.pool for item in current["devices"].values()) == 4
            assert {item.state for item in current["health"].values()} == {RowHealth.GOOD}
            pod = await next_pod(living)
            await until(stream, page, lambda current: is_visible(pod, current))
            device = await next_fault(living)
            await until(stream, page, lambda current: current["devices"][device].look == "faulted")


async def until(
    stream: aiohttp.ClientResponse, page: ConsoleView, holds: Callable[[Sections], bool]
) -> Sections:
    """Take events until the page shows something."""
    async with asyncio.timeout(WITHIN_S):
        while not page.sections or not holds(page.sections):
            page.apply(await stream.content.readuntil(b"\n\n"))
    return page.sections


def is_visible(pod: CreatePod, current: Sections) -> bool:
    ref = f"{pod.namespace}/{pod.name}"
    holds = any(ref in device.holders for device in current["devices"].values())
    return holds or ref in current["waiting"]


async def next_pod(living: ScriptedCluster) -> CreatePod:
    while True:
        action = await living.step()
        if isinstance(action, CreatePod) and action.is_scheduled:
            return action


async def next_fault(living: ScriptedCluster) -> str:
    """Let a device fail; return its name."""
    while True:
        action = await living.step()
        if isinstance(action, FailDevice):
            return name_of(device_table(action.node)[action.number], action.node)
