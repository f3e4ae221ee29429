"""Build the container image, without a registry and without a container engine.

  python -m image.build OUT.tar [--architecture amd64] [--architecture arm64] [--revision TEXT]
                        [--cache DIRECTORY] [--uv FILE] [--project DIRECTORY]

Three layers: Debian's Python, the locked wheels, our packages; by default for this machine's
architecture. Another one's packages and wheels are only unpacked, and its bytecode is compiled by this
machine's Python: bytecode is the same on all. Several architectures are one index in one file, and share
the layer of our packages. Beside OUT.tar, a CycloneDX bill of materials of each: OUT.amd64.cdx.json.

Two builds of a commit are equal, byte by byte: names are sorted, times are 0, owners are root, modes are
two, bytecode is compiled in a fixed order, and the image's time is the commit's, or SOURCE_DATE_EPOCH.
Requires a Debian machine, its package mirror, and access to the package index for files not in the cache.
"""

import argparse
import re
import shutil
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from image import bill_of_materials, debian, layout, origin, wheels
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
DOCUMENTS: Final = "usr/share/doc"
_PROGRAM_TEXT: Final = f"""\
#!/usr/bin/{debian.PYTHON}
import sys

from cli.__main__ import main

sys.exit(main())
"""
NOT_COPIED: Final = ("__pycache__", ".*", "*.pyi", "*.proto", "web")
"""Patterns of files of our packages that no process reads. `console/edge/static` is made of `console/web`."""
_VERSION: Final = "api/version.py"
_REVISION: Final = re.compile(r'^REVISION: Final = "unknown"$', re.MULTILINE)
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
    architectures: tuple[str, ...]
    revision: str | None
    """Instead of the checkout's."""


@final
@dataclass(frozen=True, slots=True)
class Project:
    """What pyproject.toml says."""

    table: dict[str, Any]

    @classmethod
    def at(cls, directory: Path) -> "Project":
        return cls(tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8")))

    @property
    def about(self) -> dict[str, Any]:
        found: dict[str, Any] = self.table["project"]
        return found

    @property
    def packages(self) -> list[str]:
        """Packages of the project's wheel, which are those of the image."""
        found: list[str] = self.table["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        return found

    @property
    def image_name(self) -> str:
        """The name of the image before it is pushed."""
        return f"localhost/{self.about['name']}:{self.about['version']}"


def main(arguments: "Sequence[str]") -> int:
    """Run the command and return its exit status."""
    try:
        options = _options(arguments)
        images, digest = build(options)
    except (ImageBuildError, OSError) as error:
        print(f"image: {error}", file=sys.stderr)  # noqa: T201  # the command line
        return 1
    for image in images:
        bill = _bill_file(options.out, image.architecture)
        say(
            f"{image.architecture}  {image.size / 1e6:.1f} MB in layers  {image.manifest.digest}  {bill}"
        )
    name = Project.at(options.project).image_name
    say(f"{options.out}  {options.out.stat().st_size / 1e6:.0f} MB  {name}  {digest}")
    return 0


def _options(arguments: "Sequence[str]") -> Options:
    parser = argparse.ArgumentParser(prog="image.build", description="Build the container image.")
    parser.add_argument("out", type=Path, metavar="OUT.tar")
    parser.add_argument("--architecture", action="append", choices=debian.ARCHITECTURES)
    parser.add_argument("--revision", metavar="TEXT", help="instead of the checkout's commit")
    parser.add_argument("--cache", type=Path, default=PROJECT / "build/image", metavar="DIRECTORY")
    parser.add_argument("--uv", type=Path, default=PROJECT / "build/uv/bin/uv", metavar="FILE")
    parser.add_argument("--project", type=Path, default=PROJECT, metavar="DIRECTORY")
    flags = parser.parse_args(arguments)
    return Options(
        out=flags.out.absolute(),
        project=flags.project.absolute(),
        cache=flags.cache.absolute(),
        uv=flags.uv.absolute(),
        architectures=tuple(sorted(set(flags.architecture or (debian.native(),)))),
        revision=flags.revision,
    )


def build(options: Options) -> tuple[list[layout.Image], str]:
    """Write the images and their bills of materials; return them, and the digest of what is named.

    Raises:
        ImageBuildError: something that is needed cannot be had.
    """
    debian.check_release()
    project = Project.at(options.project)
    found = origin.origin_of(
        options.project, ("pyproject.toml", "requirements.lock", *project.packages)
    )
    if options.revision is not None:
        found = origin.Origin(options.revision, found.created)
    options.cache.mkdir(parents=True, exist_ok=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=options.cache))
    try:
        images = _Assembly(options, project, found, work).images()
    finally:
        shutil.rmtree(work)
    named = layout.write_layout(options.out, images, name=project.image_name)
    return images, named.digest


@final
@dataclass(frozen=True, slots=True)
class _Assembly:
    """One build, in a directory of its own."""

    options: Options
    project: Project
    origin: origin.Origin
    work: Path

    def images(self) -> list[layout.Image]:
        """Return the image of each architecture, lowest layer first."""
        archive = debian.Archive(self.options.cache / "debian")
        # The interpreter of this machine's architecture compiles for all.
        native = debian.native()
        needed = sorted({native, *self.options.architectures})
        archive.update(needed)
        for item in needed:
            debian.unpack(archive.fetch(item), self._root(item))
        requirements = self._requirements()
        trees = [(self._ours(), SITE)]
        for item in self.options.architectures:
            libraries = self._libraries(item)
            wheels.install(
                requirements,
                libraries,
                uv=self.options.uv,
                python=debian.PYTHON,
                architecture=item,
            )
            trees += [(self._root(item) / STDLIB, STDLIB), (libraries, SITE)]
        say("bytecode")
        self._compile(trees, by=self._root(native))
        say("layers")
        ours = layout.build_layer([layout.Tree(self.work / "ours")])
        return [self._image(item, ours) for item in self.options.architectures]

    def _image(self, architecture: str, ours: layout.Blob) -> layout.Image:
        """Return one image, and write its bill of materials."""
        root, libraries = self._root(architecture), self._libraries(architecture)
        wheels.drop_generated(libraries)
        layers = {
            f"Debian {debian.RELEASE}: {', '.join(debian.PACKAGES)}": layout.build_layer(
                [layout.Tree(root, is_selected=debian.is_selected)], directories=_EMPTY
            ),
            "requirements.lock": layout.build_layer([layout.Tree(libraries, SITE)]),
            "gpu-control-plane": ours,
        }
        image = layout.build_image(
            layers,
            architecture=architecture,
            run=_RUN,
            labels=origin.labels(self.project.about, self.origin),
            created=self.origin.created or layout.EPOCH,
        )
        subject = bill_of_materials.Subject(
            name=self.project.about["name"],
            version=self.project.about["version"],
            architecture=architecture,
            digest=image.manifest.digest,
            created=self.origin.created,
            license=self.project.about.get("license"),
        )
        found = bill_of_materials.components(root, libraries, subject)
        bill = _bill_file(self.options.out, architecture)
        bill_of_materials.write_bill(bill, subject, found)
        return image

    def _compile(self, trees: "Sequence[tuple[Path, str]]", *, by: Path) -> None:
        """Compile directories, which are elsewhere in the image."""
        with ThreadPoolExecutor() as pool:
            # Of a directory each, by another process: threads only wait.
            compiling = [
                pool.submit(compile_tree, by, directory, python=debian.PYTHON, at=f"/{at}")
                for directory, at in trees
            ]
        for item in compiling:
            item.result()

    def _root(self, architecture: str) -> Path:
        return self.work / f"root-{architecture}"

    def _libraries(self, architecture: str) -> Path:
        return self.work / f"wheels-{architecture}"

    def _requirements(self) -> Path:
        """Write the entries of the lock file that the image needs."""
        lock, project = (
            (self.options.project / name).read_text(encoding="utf-8")
            for name in ("requirements.lock", "pyproject.toml")
        )
        out = self.work / "requirements.txt"
        out.write_text(wheels.runtime_requirements(lock, project), encoding="utf-8")
        return out

    def _ours(self) -> Path:
        """Copy the packages and the program, and return the directory of the packages."""
        into = self.work / "ours"
        for package in self.project.packages:
            ignored = shutil.ignore_patterns(*NOT_COPIED)
            shutil.copytree(self.options.project / package, into / SITE / package, ignore=ignored)
        if self.origin.revision is not None:
            write_revision(into / SITE / _VERSION, self.origin.revision)
        self._copy_licenses(into / DOCUMENTS / self.project.about["name"])
        program = into / PROGRAM
        program.parent.mkdir(parents=True)
        program.write_text(_PROGRAM_TEXT, encoding="utf-8")
        program.chmod(0o755)
        return into / SITE

    def _copy_licenses(self, into: Path) -> None:
        into.mkdir(parents=True)
        for name in self.project.about.get("license-files", ()):
            shutil.copy(self.options.project / name, into)


def write_revision(module: Path, revision: str) -> None:
    """Write the revision into the module that has a place for it.

    Raises:
        ImageBuildError: the module has no such line.
    """
    before = module.read_text(encoding="utf-8")
    after, count = _REVISION.subn(lambda _: f'REVISION: Final = "{revision}"', before)
    if count != 1:
        raise ImageBuildError(f'{module} has no line REVISION: Final = "unknown"')
    module.write_text(after, encoding="utf-8")


def _bill_file(out: Path, architecture: str) -> Path:
    return out.with_name(f"{out.name.removesuffix('.tar')}.{architecture}.cdx.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
