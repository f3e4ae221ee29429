"""The archive runs without Python, through a link as krew makes one; building it takes half a minute of CPU.

It reads a dump, so no API server is asked but by the console. What the plugin imports lazily is in the archive, too: each verb runs.
"""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml

from api.version import VERSION
from kubectl_gpu.command_line import VERBS
from kubectl_gpu.dump.dumped_lists import collect
from kubectl_gpu.dumped.dump_archive import write_dump
from tests.cluster.environment import binaries
from tests.support.canned_api import CannedApi
from tests.support.object_source import ObjectSource
from tests.support.plugin_cluster import ListedCluster, a_fragmented_cluster

Done = subprocess.CompletedProcess[str]
PROGRAM = "kubectl-gpu"
PAGE = binaries.ROOT / "console" / "edge" / "static" / "index.html"


@dataclass(frozen=True)
class InstalledPlugin:
    """The unpacked archive, and a directory on PATH with the links that krew and its caveat make."""

    built: Path
    links: Path
    kubectl: Path

    def run(self, *command: str) -> Done:
        return subprocess.run(
            command,
            env={
                "PATH": f"{self.links}:{self.kubectl}:/bin",
                "HOME": str(self.links),
                "TMPDIR": str(self.links),
                "KUBECONFIG": str(self.links / "none"),
                "LANG": "C.UTF-8",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(
    progress: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> InstalledPlugin:
    built, links = (tmp_path_factory.mktemp(name) for name in ("built", "links"))
    progress("building the archive of kubectl gpu")
    environ = os.environ | {"PYTHONPATH": f"{binaries.ROOT}:{binaries.ROOT / 'packaging'}"}
    command = [sys.executable, "-m", "krew.build", str(built), "--revision", "of-a-test"]
    done = subprocess.run(
        command, cwd=binaries.ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(built / "store", filter="data")
    for name in (PROGRAM, "kubectl_complete-gpu"):
        (links / name).symlink_to(built / "store" / name)
    return InstalledPlugin(built, links, binaries.find_kubectl(progress).parent)


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("dump") / "f.tgz"
    write_dump(path, collect(ObjectSource(a_fragmented_cluster()), namespace="gpu-control-plane"))
    return str(path)


def test_the_manifest_has_the_digest_of_the_archive(installed: InstalledPlugin):
    (archive,) = installed.built.glob("*.tar.gz")
    found = yaml.safe_load((installed.built / "gpu.yaml").read_text())
    (platform,) = found["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"].endswith(f"/{archive.name}")
    assert platform["bin"] == PROGRAM
    assert f"_{VERSION}_linux_{platform['selector']['matchLabels']['arch']}" in archive.name


def test_the_archive_has_the_license_and_nothing_of_the_servers_stack(installed: InstalledPlugin):
    store = installed.built / "store"
    assert (store / "LICENSE").read_bytes() == (binaries.ROOT / "LICENSE").read_bytes()
    licensed = {path.name.rpartition("-")[0] or path.name for path in store.glob("licenses/*")}
    assert licensed >= {"python", "pyinstaller", "aiohttp", "msgspec", "PyYAML", "libssl3"}
    names = {path.name for path in (store / "_internal").iterdir()}
    assert {"msgspec", "yaml", "aiohttp"} <= names
    of_the_server = {
        "cryptography",
        "grpc",
        "kubernetes_asyncio",
        "pydantic",
        "pydantic_core",
        "uvloop",
    }
    assert names & of_the_server == set()


def test_help_and_version_of_the_archive(installed: InstalledPlugin, dump: str):
    assert "why" in installed.run(PROGRAM, "--help").stdout
    done = installed.run("kubectl", "gpu", "version", "--from", dump)
    assert f"{VERSION} (of-a-test)" in done.stdout


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(("pools",), id="pools"),
        pytest.param(("nodes", "-o", "yaml"), id="nodes"),
        pytest.param(("who", "-A"), id="who"),
        pytest.param(("why", "big", "-n", "ml-team"), id="why"),
        pytest.param(("whatif", "--pool", "training", "--units", "1", "--times", "9"), id="whatif"),
        pytest.param(("check",), id="check"),
    ],
)
def test_each_verb_of_the_archive_answers_from_a_dump(
    verb: tuple[str, ...], installed: InstalledPlugin, dump: str
):
    of_archive = installed.run("kubectl", "gpu", *verb, "--from", dump)
    here = subprocess.run(
        [sys.executable, "-m", "kubectl_gpu", *verb, "--from", dump],
        cwd=binaries.ROOT,
        env=os.environ | {"PYTHONPATH": str(binaries.ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (of_archive.returncode, of_archive.stderr) == (here.returncode, here.stderr)
    assert of_archive.stdout == here.stdout


async def test_the_console_of_the_archive_serves_its_page(
    installed: InstalledPlugin, tmp_path: Path
):
    async with CannedApi() as api, aiohttp.ClientSession() as session:
        cluster = ListedCluster(api, installed.kubectl, tmp_path)
        process = await asyncio.create_subprocess_exec(
            *(installed.links / PROGRAM, "console", "--server", api.url),
            env=cluster.environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        address = b""
        while not address.startswith(b"http://"):
            address = await process.stdout.readline()
            assert address, "it ended"
        async with session.get(address.decode().strip()) as reply:
            assert await reply.text() == PAGE.read_text()
        process.terminate()
        assert await process.wait() == 128 + signal.SIGTERM


def test_kubectl_completes_verbs_and_names(installed: InstalledPlugin, dump: str):
    done = installed.run("kubectl", "__complete", "gpu", "")
    *lines, directive = done.stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == sorted(VERBS)
    assert directive == ":4"
    done = installed.run("kubectl", "__complete", "gpu", "why", f"--from={dump}", "-A", "train-")
    assert done.stdout == "train-a\ntrain-b\n:4\n"
