"""Build the container image, without a registry and without a container engine.

  python -m image.build OUT.tar [--cache DIRECTORY] [--uv FILE] [--project DIRECTORY]

Three layers: Debian's Python, the locked wheels, our packages. Two builds are equal, byte by byte:
names are sorted, times are 0, owners are root, modes are two, and bytecode is compiled in a fixed
order. Requires a Debian machine with package lists, and access to the package index for files not
in the cache.
"""

import argparse
import shutil
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from image import debian, layout, wheels
from image.bytecode import compile_tree
from image.errors import ImageBuildError
from image.running import say

if TYPE_CHECKING:
    from collections.abc import Sequence

PROJECT: Final = Path(__file__).resolve().parents[2]
SITE: Final = f"usr/local/lib/{debian.PYTHON}/dist-packages"
"""Default search path of Debian's Python for packages."""
STDLIB: Final = f"usr/lib/{debian.PYTHON}"
PROGRAM: Final = "usr/local/bin/gpu-control-plane"
_PROGRAM_TEXT: Final = f"""\
#!/usr/bin/{debian.PYTHON}
import sys

from cli.__main__ import main

sys.exit(main())
"""
_EMPTY: Final = ("dev", "etc", "host", "proc", "root", "run", "sys", "tmp", "var/lib", "var/tmp")
"""Mount points of runtimes and of our manifests, and directories that programs expect."""
_RUN: Final[dict[str, Any]] = {
    "User": f"{debian.USER}:{debian.USER}",
    "Env": [
        "PATH=/usr/local/bin:/usr/bin",
        "LANG=C.UTF-8",
        # The root may be read-only, and what could be written is there already.
        "PYTHONDONTWRITEBYTECODE=1",
        "PYTHONUNBUFFERED=1",
    ],
    "Entrypoint": ["gpu-control-plane"],
    "WorkingDir": "/",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line; all paths are absolute."""

    out: Path
    project: Path
    """Directory of pyproject.toml, requirements.lock and the packages."""
    cache: Path
    """Directory of fetched files, in which the image is assembled, too."""
    uv: Path


def main(arguments: "Sequence[str]") -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="image.build", description="Build the container image.")
    parser.add_argument("out", type=Path, metavar="OUT.tar")
    parser.add_argument("--cache", type=Path, default=PROJECT / "build/image", metavar="DIRECTORY")
    parser.add_argument("--uv", type=Path, default=PROJECT / "build/uv/bin/uv", metavar="FILE")
    parser.add_argument("--project", type=Path, default=PROJECT, metavar="DIRECTORY")
    known = parser.parse_args(arguments)
    options = Options(
        out=known.out.absolute(),
        project=known.project.absolute(),
        cache=known.cache.absolute(),
        uv=known.uv.absolute(),
    )
    try:
        digest = build(options)
    except (ImageBuildError, OSError) as error:
        print(f"image: {error}", file=sys.stderr)  # noqa: T201  # the command line
        return 1
    say(
        f"{known.out}  {options.out.stat().st_size / 1e6:.0f} MB  {image_name(options.project)}  {digest}"
    )
    return 0


def build(options: Options) -> str:
    """Write the image and return the digest of its manifest.

    Raises:
        ImageBuildError: something that is needed cannot be had.
    """
    debian.check_release()
    architecture = debian.architecture()
    options.cache.mkdir(parents=True, exist_ok=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=options.cache))
    try:
        layers = _build_layers(options, work)
    finally:
        shutil.rmtree(work)
    manifest, config = layout.build_image(
        list(layers.values()), architecture=architecture, run=_RUN, created_by=list(layers)
    )
    layout.write_layout(
        options.out, manifest, [config, *layers.values()], name=image_name(options.project)
    )
    return manifest.digest


def image_name(project_directory: Path) -> str:
    """Return the name of the image before it is pushed."""
    text = (project_directory / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    return f"localhost/{project['name']}:{project['version']}"


def _build_layers(options: Options, work: Path) -> dict[str, layout.Blob]:
    """Return the layers by their description, lowest first."""
    root, libraries, ours = work / "root", work / "wheels", work / "ours"
    debian.unpack(debian.fetch(options.cache / "debian"), root)
    lock = (options.project / "requirements.lock").read_text(encoding="utf-8")
    project = (options.project / "pyproject.toml").read_text(encoding="utf-8")
    requirements = work / "requirements.txt"
    requirements.write_text(wheels.runtime_requirements(lock, project), encoding="utf-8")
    wheels.install(requirements, libraries, uv=options.uv, python=debian.PYTHON)
    _copy_ours(options.project, project, ours)
    say("bytecode")
    with ThreadPoolExecutor() as pool:
        # Of a directory each, by another process: threads only wait.
        compiling = [
            pool.submit(compile_tree, root, directory, python=debian.PYTHON, at=f"/{at}")
            for directory, at in ((root / STDLIB, STDLIB), (libraries, SITE), (ours / SITE, SITE))
        ]
    for one in compiling:
        one.result()
    say("layers")
    return {
        f"Debian {debian.RELEASE}: {', '.join(debian.PACKAGES)}": layout.build_layer(
            [layout.Tree(root, is_wanted=debian.is_wanted)], directories=_EMPTY
        ),
        "requirements.lock": layout.build_layer(
            [layout.Tree(libraries, SITE, is_wanted=wheels.is_wanted)]
        ),
        "gpu-control-plane": layout.build_layer([layout.Tree(ours)]),
    }


def _copy_ours(source: Path, project: str, into: Path) -> None:
    """Copy the packages of the project's wheel, and the program."""
    packages = tomllib.loads(project)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    for package in packages:
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(source / package, into / SITE / package, ignore=ignored)
    program = into / PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text(_PROGRAM_TEXT, encoding="utf-8")
    program.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
