"""The image: two builds are equal, and every module can be imported in its own root, as non-root.

Needs package lists, a way to the package index, and root for chroot.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
IMPORT_ALL = """
import importlib, pathlib, sys
site = pathlib.Path("/usr/local/lib/python3.11/dist-packages")
for package in sys.argv[1:]:
    for file in sorted((site / package).rglob("*.py")):
        if file.stem != "__main__":
            name = file.relative_to(site).with_suffix("").as_posix().replace("/", ".")
            importlib.import_module(name.removesuffix(".__init__"))
print(len(sys.modules) > 1000)
"""


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as it is now: both images are of the same, whatever is edited meanwhile."""
    into = tmp_path_factory.mktemp("source") / "project"
    into.mkdir()
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, into)
    for package in packages():
        shutil.copytree(ROOT / package, into / package)
    return into


def packages() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return found


def built(source: Path, directory: Path, cache: Path) -> Path:
    out = directory / "image.tar"
    arguments = [str(out), f"--cache={cache}", f"--project={source}"]
    subprocess.run(
        [sys.executable, "-m", "image.build", *arguments], cwd=ROOT / "packaging", check=True
    )
    return out


@pytest.fixture(scope="session")
def image(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, tmp_path_factory.mktemp("first"), ROOT / "build" / "image")


@pytest.fixture(scope="session")
def configuration(image: Path) -> dict[str, Any]:
    with tarfile.open(image) as archive:
        return Layout(archive).configuration


@pytest.fixture(scope="session")
def root(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's files, as a runtime would lay them out."""
    into = tmp_path_factory.mktemp("root")
    with tarfile.open(image) as archive:
        layout = Layout(archive)
        for layer in layout.manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(layout.blob(layer))) as files:
                files.extractall(into, filter="fully_trusted")
    into.chmod(0o755)
    return into


class Layout:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        (described,) = json.loads(self._file("index.json"))["manifests"]
        self.manifest = json.loads(self.blob(described))
        self.configuration: dict[str, Any] = json.loads(self.blob(self.manifest["config"]))

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        return self._file(f"blobs/{descriptor['digest'].replace(':', '/')}")

    def _file(self, name: str) -> bytes:
        found = self._archive.extractfile(name)
        assert found is not None
        return found.read()


@pytest.fixture
def run(root: Path, configuration: dict[str, Any]):
    """Run a program in the root as the image says, without a network or a process table."""
    if os.geteuid() != 0:
        pytest.fail("needs root for chroot: run as root, or deselect tests/cluster/image")
    environ = dict(one.split("=", 1) for one in configuration["config"]["Env"])

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        user = configuration["config"]["User"]
        return subprocess.run(
            ["/usr/sbin/chroot", f"--userspec={user}", root, *command],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_it_is_the_same_when_it_is_built_again_elsewhere(image: Path, source: Path, tmp_path: Path):
    again = built(source, tmp_path, tmp_path / "cache")
    assert again.read_bytes() == image.read_bytes()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        pytest.param(["--help"], "GPU pools for Kubernetes", id="help"),
        pytest.param(["agent", "--help"], "--roles", id="agent"),
        pytest.param(["serve", "--help"], "--show-settings", id="serve"),
        pytest.param(["serve", "--show-settings"], "namespace: gpu-control-plane", id="settings"),
        pytest.param(["render", "policy"], "ValidatingAdmissionPolicy", id="policy"),
        pytest.param(["render", "examples"], "kind: GPUPool", id="examples"),
    ],
)
def test_the_command_runs_as_non_root(run, configuration, command: list[str], says: str):
    done = run(*configuration["config"]["Entrypoint"], *command)
    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout


def test_every_module_of_ours_finds_the_libraries_that_it_needs(run):
    done = run("python3", "-W", "error", "-c", IMPORT_ALL, *packages())
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_everything_is_compiled_and_nothing_is_compiled_again(run):
    probe = (
        "import importlib.util, pathlib, sys\n"
        "sources = [one for place in sys.argv[1:] for one in pathlib.Path(place).rglob('*.py')]\n"
        "missing = [one for one in sources"
        " if not pathlib.Path(importlib.util.cache_from_source(one)).exists()]\n"
        "flags = {pathlib.Path(importlib.util.cache_from_source(one)).read_bytes()[4:8]"
        " for one in sources if one not in missing}\n"
        "print(len(sources) > 1000, missing, flags)"
    )
    done = run("python3", "-c", probe, "/usr/lib/python3.11", "/usr/local/lib/python3.11")
    # 1: the source's hash is in it, and not compared (PEP 552).
    assert done.stdout == f"True [] {{{bytes([1, 0, 0, 0])!r}}}\n", done.stderr


def test_there_is_no_shell_and_nothing_of_the_machine_that_built(root: Path, source: Path):
    programs = {one.name for place in ("bin", "sbin") for one in (root / "usr" / place).iterdir()}
    assert programs == {"python3", "python3.11"}
    found = subprocess.run(
        ["grep", "-rlF", "-e", str(ROOT), "-e", str(source.parent), root],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""


def test_programs_and_libraries_are_where_debian_has_them(root: Path):
    assert {name: str((root / name).readlink()) for name in ("bin", "lib", "lib64", "sbin")} == {
        name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")
    }


def test_scanners_find_what_it_is_made_of(root: Path):
    assert 'VERSION_ID="12"' in (root / "etc/os-release").read_text()
    control = (root / "var/lib/dpkg/status.d/libssl3").read_text()
    assert "Package: libssl3\n" in control
    assert "\nVersion: " in control
