"""Build the archive of `kubectl gpu`, which needs no Python, and its manifest for krew.

  python -m krew.build DIRECTORY [--url URL] [--revision TEXT] [--project DIRECTORY]

DIRECTORY gets `kubectl-gpu_VERSION_linux_ARCHITECTURE.tar.gz` for this machine's architecture, and `gpu.yaml`. URL is
where the archive will be. PyInstaller collects the interpreter, the modules that the verbs import, and the console's page;
those of the server's stack are excluded, so that one that is needed by mistake ends the test of the archive. Two builds
of a commit on one machine are equal, byte by byte.
"""

import argparse
import gzip
import hashlib
import os
import platform
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from image.build import NOT_COPIED, PROJECT, Project, write_revision
from image.errors import ImageBuildError
from image.origin import origin_of
from image.running import call, say

from krew.plugin_manifest import PLUGIN, PROGRAM, PluginArchive, plugin_manifest
from krew.shipped_licenses import copy_licenses

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_EXCLUDED: Final = (
    "cryptography",
    "greenlet",
    "grpc",
    "h2",
    "httptools",
    "hypothesis",
    "kubernetes_asyncio",
    "pydantic",
    "pydantic_core",
    "pytest",
    "rich",
    "setuptools",
    "sigstore",
    "twisted",
    "uvloop",
)
_PAGE: Final = "console/edge/static"
_COMPLETION: Final = "kubectl_complete-gpu"
_LICENSE: Final = "LICENSE"
_LICENSES: Final = "licenses"
"""Licences of what is in the archive besides; those of the page stand in its script."""
_URL: Final = "https://releases.example.com"


def main(arguments: "Sequence[str]") -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="krew.build", description="Build kubectl gpu.")
    parser.add_argument("out", type=Path, metavar="DIRECTORY")
    parser.add_argument("--url", default=_URL, help=f"directory of the archive ({_URL})")
    parser.add_argument("--revision", metavar="TEXT", help="instead of the checkout's commit")
    parser.add_argument("--project", type=Path, default=PROJECT, metavar="DIRECTORY")
    flags = parser.parse_args(arguments)
    try:
        archive = build(flags.out.absolute(), flags.project.absolute(), flags.revision)
    except (ImageBuildError, OSError) as error:
        print(f"krew: {error}", file=sys.stderr)  # noqa: T201  # the command line
        return 1
    manifest = flags.out / f"{PLUGIN}.yaml"
    version = Project.at(flags.project).about["version"]
    url = flags.url.rstrip("/")
    manifest.write_text(plugin_manifest(version, [archive], url=url), encoding="utf-8")
    path = flags.out / archive.name
    say(f"{path}  {path.stat().st_size / 1e6:.1f} MB  sha256:{archive.sha256}\n{manifest}")
    return 0


def build(out: Path, directory: Path, revision: str | None) -> PluginArchive:
    """Write the archive.

    Raises:
        ImageBuildError: PyInstaller fails, or does not know the machine.
    """
    project = Project.at(directory)
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise ImageBuildError(f"{platform.machine()} is none of {', '.join(_ARCHITECTURES)}")
    if revision is None:
        revision = origin_of(directory, ("pyproject.toml", *project.packages)).revision
    out.mkdir(parents=True, exist_ok=True)
    name = f"{PROGRAM}_{project.about['version']}_linux_{architecture}.tar.gz"
    with tempfile.TemporaryDirectory(prefix="work-", dir=out) as work:
        bundle = _bundle(Path(work), directory, project, revision=revision)
        shutil.copy(directory / _LICENSE, bundle / _LICENSE)
        copy_licenses(Path(work, "build", PROGRAM), bundle / _LICENSES, own=Path(work))
        shutil.copy(Path(__file__).with_name(_COMPLETION), bundle / _COMPLETION)
        part = Path(work) / name
        write_archive(part, bundle)
        part.replace(out / name)
    digest = hashlib.sha256((out / name).read_bytes()).hexdigest()
    return PluginArchive(architecture, name, digest)


def _bundle(work: Path, directory: Path, project: Project, *, revision: str | None) -> Path:
    """Run PyInstaller on a copy of the packages that knows its commit; return the directory of the program."""
    site = work / "site"
    for package in project.packages:
        ignored = shutil.ignore_patterns(*NOT_COPIED)
        shutil.copytree(directory / package, site / package, ignore=ignored)
    if revision is not None:
        write_revision(site / "api" / "version.py", revision)
    excluded = [f"--exclude-module={name}" for name in _EXCLUDED]
    command = [
        *(sys.executable, "-m", "PyInstaller", "--onedir", "--noconfirm", "--log-level=ERROR"),
        *(f"--name={PROGRAM}", f"--paths={site}", *excluded),
        f"--add-data={site / _PAGE}:{_PAGE}",
        *(f"--distpath={work}/dist", f"--workpath={work}/build", f"--specpath={work}"),
        str(site / "kubectl_gpu" / "__main__.py"),
    ]
    # Sets are written in the order of their hashes, and headers with the time.
    environ = os.environ | {"PYTHONHASHSEED": "1", "SOURCE_DATE_EPOCH": "0"}
    environ.pop("PYTHONPATH", None)
    call(command, cwd=work, environ=environ, cure="`make install` installs PyInstaller")
    return work / "dist" / PROGRAM


def write_archive(path: Path, directory: Path) -> None:
    """Write a directory's content: names are sorted, times 0, owners root, modes two."""
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for item in sorted(directory.rglob("*")):
            archive.add(
                item, item.relative_to(directory).as_posix(), recursive=False, filter=_reproducible
            )


def _reproducible(info: tarfile.TarInfo) -> tarfile.TarInfo:
    is_program = info.isdir() or info.mode & 0o100
    info.mode = 0o777 if info.issym() else 0o755 if is_program else 0o644
    info.mtime = info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
