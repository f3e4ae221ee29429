"""Every command of docs/operations.md, run as it stands there against the running system, and many of other pages.

Blocks marked `console` hold the commands; the comment beneath says what they print, as a pattern. On the other pages
blocks without one are not run: they need a chart, a GPU or a name that the reader chooses.
"""

import asyncio
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.environment import binaries, pods
from tests.cluster.system.objects import a_pod, all_bound

ROOT = Path(__file__).parents[3]
PAGES = ("operations.md", "quick-start.md", "troubleshooting.md", "using-gpus.md")
_BLOCK = re.compile(r"```console\n(.*?)```\n(?:<!-- prints: (.*?) -->)?", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Commands, and a pattern for all that they print together."""

    commands: tuple[str, ...]
    prints: str


def blocks(page: str) -> list[Block]:
    return [
        Block(tuple(line[2:] for line in text.splitlines() if line.startswith("$ ")), prints)
        for text, prints in _BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    ]


@pytest.fixture
async def shell(tmp_path, system, cluster, make_pool, api, namespace, progress):
    """Run a command as an operator does who has a pool, a bound pod, and one that waits."""
    pool = await make_pool(devices=2)
    await api.create(pods.collection(namespace), a_pod("runs", pool))
    await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 1))
    await api.create(pods.collection(namespace), a_pod("waits", pool, 2))
    await pods.wait_for_pod(api, namespace, "waits", pods.is_unschedulable)
    (tmp_path / "settings.yaml").write_text("drain_s: 1\n", encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(binaries.find_kubectl(progress))
    path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    variables = {
        "PATH": ":".join(path),
        "KUBECONFIG": str(cluster.kubeconfig()),
        "SERVER": system.url,
        "POOL": pool.name,
        "NAMESPACE": namespace,
        "POD": "waits",
    }

    async def run(command: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(
            subprocess.run,
            ["bash", "-o", "pipefail", "-c", command],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.mark.parametrize("page", PAGES)
async def test_every_command_of_the_page_does_what_the_page_says(shell, page: str):
    failures = []
    for block in (item for item in blocks(page) if item.prints):
        printed = ""
        for command in block.commands:
            done = await shell(command)
            printed += done.stdout
            if done.returncode:
                failures.append(f"{command}\nended with {done.returncode}: {done.stderr}{printed}")
        if not re.search(block.prints, printed):
            failures.append(f"{block.commands}\nprinted no /{block.prints}/ but\n{printed}")
    assert not failures, "\n\n".join(failures)


async def test_what_the_page_of_installation_applies_is_accepted(shell, tmp_path):
    """Without Helm; the API server judges what would be applied, and keeps nothing."""
    (tmp_path / "my-values.yaml").write_text("server: {replicas: 3}\n", encoding="utf-8")
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (command,) = re.findall(
        r"^\$ (gpu-control-plane render .*kubectl apply.*)$", text, re.MULTILINE
    )
    # A dry run on the server's side would have to move fields from what applied the system of the tests.
    done = await shell(command.replace("apply --server-side", "apply --dry-run=server"))
    assert done.returncode == 0, f"{command}: {done.stderr}"
    assert "deployment.apps/gpu-control-plane created (server dry run)" in done.stdout


def test_every_block_of_the_page_says_what_it_prints():
    found = blocks("operations.md")
    assert len(found) > 10
    assert [block.commands for block in found if not block.prints or not block.commands] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_commands_to_run(page: str):
    assert [block for block in blocks(page) if block.prints and block.commands]
