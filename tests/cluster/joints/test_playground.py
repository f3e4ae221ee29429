"""`make playground` and `make playground-down`, used as their output says."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from tests.cluster.environment import binaries, polling

if TYPE_CHECKING:
    from collections.abc import Callable


def playground(verb: str, folder: Path) -> str:
    """Run the command, in an environment whose TMPDIR is too long for the sockets of nodes."""
    temporary = folder.with_name("temporary-files-of-a-session-" + "x" * 60)
    temporary.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.playground", verb, "--folder", str(folder)],
        cwd=binaries.ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shell(folder: Path, command: str) -> str:
    """Return what a command prints in a shell that has read the file of the playground."""
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    done = subprocess.run(
        ["sh", "-c", f". {folder}/env; {command} 2>&1"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


async def test_the_playground_is_what_it_says(tmp_path: Path, progress: "Callable[[str], None]"):
    folder = tmp_path / "playground"

    async def why_picky_waits() -> bool:
        answer = shell(folder, "kubectl gpu why picky")
        assert "autoscaling said: no node is asked for: NoShape" in answer, answer
        return True

    printed = playground("up", folder)
    progress(printed)
    try:
        assert "kernel cache triton-common is on the node" in printed
        (address,) = re.findall(r"http://\S+", printed)
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            assert answer.status == 200
        commands = re.findall(r"^  (\d)  .+\n +(.+)$", printed, re.MULTILINE)
        assert [number for number, _ in commands] == ["1", "2", "3", "4", "5"]
        said: dict[str, str] = {}
        for number, command in commands:
            said[number] = shell(folder, command.partition(" -w")[0])
            if number == "3":  # before the last command deletes the pod
                await polling.eventually(why_picky_waits, what="why says what autoscaling said")
        assert "gpupool.gpu.deckhouse.io/llm" in said["1"]
        assert "pod/pair created" in said["2"]
        assert "pod/picky created" in said["3"]
        assert "excludes the node" in said["3"]
        assert "has no signature" in said["4"]
        assert "deleted" in said["5"]
        assert playground("up", folder).strip() in printed
    finally:
        playground("down", folder)
    assert playground("down", folder) == ""
    assert [entry.name for entry in folder.iterdir()] == ["logs"]
