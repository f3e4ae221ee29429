"""Problems of a pool's plugin: written into a file, read by the agent of its node."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from agent.files import replace_file
from agent.problems.file_reader import (
    MAX_FILES,
    PLUGIN_REASONS,
    ProblemsFileReader,
    read_problem,
)
from agent.problems.file_writer import ProblemsFileWriter
from agent.problems.registry import NO_PROBLEM, Problem, ProblemRegistry
from api.nodefiles.pluginproblems import MAX_BYTES, STALE_S, WRITE_EVERY_S, PluginProblem
from telemetry.conditions import AgentDegraded
from tests.support.loop_clock import ServerClock

pytestmark = pytest.mark.looptime

BAD, SILENT = AgentDegraded.BAD_CONFIG, AgentDegraded.KUBELET_SILENT


class Node:
    """The directory, and the agent that reads it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.problems = ProblemRegistry()
        self.read: list[Path] = []
        self.reader = ProblemsFileReader(directory, self.problems, ServerClock(), read=self._read)

    def _read(self, path: Path) -> tuple[str, Problem]:
        self.read.append(path)
        return read_problem(path)

    def put(self, name: str = "whole-1.json", **fields: Any) -> Path:
        path = self.directory / name
        problem = {
            "version": "v1",
            "pool": "whole",
            "reason": "BadConfig",
            "text": "no list",
            **fields,
        }
        replace_file(path, msgspec.json.encode(problem))
        return path

    def summary(self) -> Problem:
        self.reader.read()
        return self.problems.summary()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "plugins").mkdir()
    return Node(tmp_path / "plugins")


class Plugin:
    def __init__(self, node: Node, pool: str = "whole", **ports: Any) -> None:
        self.problems = ProblemRegistry()
        self.file = ProblemsFileWriter(node.directory, self.problems, pool=pool, **ports)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Plugin"]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.file.run())
            await asyncio.sleep(0.1)
            try:
                yield self
            finally:
                task.cancel()


async def test_a_plugins_problem_is_the_agents_problem_until_it_is_over(node: Node):
    async with Plugin(node).running() as plugin:
        assert node.summary() == NO_PROBLEM
        plugin.problems.set("pool.config", BAD, "config.json is not a list")
        await asyncio.sleep(2)
        assert node.summary() == Problem(BAD, "plugin of pool whole: config.json is not a list")
        plugin.problems.set("podresources", SILENT, "no answer")
        await asyncio.sleep(2)
        want = "plugin of pool whole: no answer; config.json is not a list"
        assert node.summary() == Problem(SILENT, want)
        plugin.problems.clear("pool.config")
        plugin.problems.clear("podresources")
        await asyncio.sleep(2)
        assert node.summary() == NO_PROBLEM
        assert list(node.directory.iterdir()) == []


async def test_the_agent_follows_by_itself(node: Node):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(node.reader.run())
        await asyncio.sleep(0.1)
        node.put()
        await asyncio.sleep(1)
        assert node.problems.summary().reason is BAD
        task.cancel()


async def test_a_missing_directory_has_no_problems(tmp_path: Path):
    with capture_logs() as logs:
        assert Node(tmp_path / "none").summary() == NO_PROBLEM
    assert logs == []


async def test_the_first_problem_makes_the_directory(tmp_path: Path):
    node = Node(tmp_path / "run" / "plugins")
    plugin = Plugin(node)
    plugin.problems.set("x", BAD, "text")
    plugin.file.write()
    assert node.summary().reason is BAD


async def test_an_orderly_end_leaves_no_file(node: Node):
    async with Plugin(node).running() as plugin:
        plugin.problems.set("x", BAD, "text")
        await asyncio.sleep(2)
        assert node.summary().reason is BAD
    assert list(node.directory.iterdir()) == []
    assert node.summary() == NO_PROBLEM


async def test_the_end_of_the_old_process_of_a_pool_leaves_the_new_ones_problem(node: Node):
    async with Plugin(node).running() as new:
        async with Plugin(node).running() as old:
            for plugin in (old, new):
                plugin.problems.set("x", BAD, "text")
            await asyncio.sleep(2)
        assert node.summary() == Problem(BAD, "plugin of pool whole: text")


async def test_of_two_processes_of_a_pool_the_worse_counts_in_any_order(node: Node):
    node.put("whole-1.json", reason="KubeletSilent", text="k")
    node.put("whole-2.json", text="b")
    node.put("slices-1.json", pool="slices", text="s")
    want = Problem(SILENT, "plugin of pool whole: k; plugin of pool slices: s")
    assert node.summary() == want
    fresh = Node(node.directory)
    fresh.put("whole-3.json", text="a")
    assert fresh.summary() == want


async def test_a_problem_that_lasts_is_touched_and_not_written(node: Node):
    async with Plugin(node).running() as plugin:
        plugin.problems.set("x", BAD, "text")
        await asyncio.sleep(2)
        before = plugin.file.path.stat()
        os.utime(plugin.file.path, (1, 1))
        await asyncio.sleep(WRITE_EVERY_S + 1)
        after = plugin.file.path.stat()
        assert after.st_ino == before.st_ino
        assert after.st_mtime_ns >= before.st_mtime_ns


async def test_a_removed_file_comes_back(node: Node):
    async with Plugin(node).running() as plugin:
        plugin.problems.set("x", BAD, "text")
        await asyncio.sleep(2)
        plugin.file.path.unlink()
        await asyncio.sleep(WRITE_EVERY_S + 1)
        assert node.summary().reason is BAD


async def test_a_plugin_that_was_killed_is_forgotten(node: Node):
    node.put()
    await asyncio.sleep(STALE_S - 10)
    assert node.summary().reason is BAD
    await asyncio.sleep(20)
    assert node.summary() == NO_PROBLEM
    assert list(node.directory.iterdir()) == []


async def test_a_file_of_a_time_to_come_is_no_fresh_one(node: Node):
    path = node.put()
    later = path.stat().st_mtime + 10 * STALE_S
    os.utime(path, (later, later))
    assert node.summary() == NO_PROBLEM


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b'{"version":"v2","pool":"whole","reason":"BadConfig"}', id="version"),
        pytest.param(b'{"version":"v1","pool":"whole","reason":"OfMyOwn"}', id="reason"),
        pytest.param(b'{"version":"v1","pool":"whole","reason":"AsExpected"}', id="no problem"),
        pytest.param(b'{"version":"v1","pool":"whole","reason":"DriverMissing"}', id="not its own"),
        pytest.param(b'{"version":"v1","pool":"a\\nb","reason":"BadConfig"}', id="pool"),
        pytest.param(
            b'{"version":"v1","pool":"whole","reason":"BadConfig"}' + b" " * MAX_BYTES, id="huge"
        ),
        pytest.param(b'{"x":' + b"[" * (MAX_BYTES - 10), id="deep"),
    ],
)
async def test_an_invalid_file_is_logged_once_and_hides_no_other(node: Node, content: bytes):
    path = node.directory / "a.json"
    path.write_bytes(content)
    node.put("whole-1.json")
    with capture_logs() as logs:
        for _ in range(3):
            assert node.summary() == Problem(BAD, "plugin of pool whole: no list")
            os.utime(path)
    ignored = [line for line in logs if line["event"] == "file of a plugin's problem ignored"]
    assert [line["path"] for line in ignored] == [repr(str(path))]


async def test_links_pipes_and_foreign_files_are_left_alone(node: Node, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_bytes(node.put().read_bytes())
    (node.directory / "whole-1.json").unlink()
    (node.directory / "link.json").symlink_to(secret)
    os.mkfifo(node.directory / "pipe.json")
    (node.directory / "folder.json").mkdir()
    (node.directory / "Notes.txt").write_bytes(secret.read_bytes())
    (node.directory / os.fsdecode(b"\xff\n.json")).write_bytes(secret.read_bytes())
    (node.directory / ".whole-1-x.new").write_bytes(secret.read_bytes())
    with capture_logs() as logs:
        assert node.summary() == NO_PROBLEM
        assert node.summary() == NO_PROBLEM
    assert len(logs) == 5
    assert all(line["path"].isascii() for line in logs)
    assert len(list(node.directory.iterdir())) == 6


async def test_a_full_directory_costs_no_more_than_some_files(node: Node):
    for number in range(MAX_FILES + 50):
        node.put(f"p-{number}.json", pool=f"p-{number}")
    node.summary()
    assert len(node.read) == MAX_FILES


async def test_a_file_is_read_where_it_changed_only(node: Node):
    path = node.put()
    for _ in range(3):
        node.summary()
    assert node.read == [path]
    node.put(text="another")
    assert node.summary().text == "plugin of pool whole: another"
    assert node.read == [path, path]


async def test_a_disk_that_cannot_be_written_is_logged_once_and_tried_again(node: Node):
    is_full = True

    def replace_or_fail(path: Path, content: bytes) -> bool:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace_file(path, content)

    async with Plugin(node, replace=replace_or_fail).running() as plugin:
        with capture_logs() as logs:
            plugin.problems.set("x", BAD, "text")
            await asyncio.sleep(5 * WRITE_EVERY_S)
        failed = [line for line in logs if line["event"] == "problems not written"]
        assert [line["error"] for line in failed] == ["No space left on device"]
        is_full = False
        await asyncio.sleep(WRITE_EVERY_S + 1)
        assert plugin.file.path.exists()


async def test_a_long_name_of_a_pool_makes_a_file_name(node: Node):
    pool = "p" * 253
    plugin = Plugin(node, pool)
    plugin.problems.set("x", BAD, "text")
    plugin.file.write()
    (path,) = node.directory.iterdir()
    assert msgspec.json.decode(path.read_bytes(), type=PluginProblem).pool == pool
    assert node.summary().reason is BAD


def test_reasons_of_plugins_are_in_the_order_of_all():
    assert list(PLUGIN_REASONS) == [item for item in AgentDegraded if item in PLUGIN_REASONS]
