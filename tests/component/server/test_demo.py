"""`gpu-control-plane demo` says what is true, and says so with its exit status when something is not."""

import asyncio
import sys
from pathlib import Path

import pytest

from server.demo import show
from server.demo_story import Story, Untrue

WITHIN_S = 60


async def _lose_a_card(story: Story) -> None:
    """Take a card away between two chapters, so that the next ones tell what is not so."""
    await story._cluster.client.delete(GPU_DEVICES, "n1-0000-17-00.0")


async def test_the_demo_tells_its_story_and_ends_well():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "server", "demo", stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(WITHIN_S):
        told, _ = await process.communicate()
    text = told.decode()
    assert process.returncode == 0, text
    assert "✓ 6 pods were bound, each with exactly one write to the API server" in text
    assert "  train-2         n2          GPU-n2-0 … GPU-n2-7 (8)\n" in text
    assert text.endswith("\nEvery claim above was checked.\n")
