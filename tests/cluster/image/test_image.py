"""The image: two builds are equal, each is what it says, and every module runs in its own root, as non-root.

Both architectures are put together; only this machine's is run. Needs a way to the package mirror and to
the package index, and root for chroot.
"""

import filecmp
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from image import debian

from tests.cluster.image import elf

ROOT = Path(__file__).parents[3]
CACHE = ROOT / "build" / "image"
SITE = "usr/local/lib/python3.11/dist-packages"
REVISION = "0a1b2c3d"
CREATED = "2026-01-02T03:04:05Z"
LARGEST = 205_000_000
"""194 MB, of which sigstore, which verifies keyless signatures, and what it needs are 31."""
LABELS = "org.opencontainers.image."
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


@dataclass(frozen=True)
class Image:
    """The image of one architecture, with its files as a runtime would lay them out."""

    architecture: str
    manifest: dict[str, Any]
    configuration: dict[str, Any]
    layers: tuple[tarfile.TarFile, ...]
    size: int
    root: Path
    bill: dict[str, Any]

    def files(self, layer: int) -> set[str]:
        return {item.name for item in self.layers[layer] if not item.isdir()}


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as it is now: both images are of the same, whatever is edited meanwhile."""
    into = tmp_path_factory.mktemp("source") / "project"
    into.mkdir()
    for name in ("LICENSE", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, into)
    for package in packages():
        shutil.copytree(ROOT / package, into / package)
    return into


def packages() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return found


def built(source: Path, directory: Path) -> Path:
    out = directory / "image.tar"
    options = [f"--cache={CACHE}", f"--project={source}", f"--revision={REVISION}"]
    architectures = [f"--architecture={item}" for item in debian.ARCHITECTURES]
    subprocess.run(
        [sys.executable, "-m", "image.build", str(out), *options, *architectures],
        cwd=ROOT / "packaging",
        env={**os.environ, "SOURCE_DATE_EPOCH": "1767323045"},
        check=True,
    )
    return out


@pytest.fixture(scope="session")
def archive(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="session")
def index(archive: Path) -> dict[str, Any]:
    with tarfile.open(archive) as files:
        found: dict[str, Any] = json.loads(blob(files, named(files)))
    return found


@pytest.fixture(scope="session")
def images(
    archive: Path, index: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Image]:
    """The images by their architecture."""
    with tarfile.open(archive) as files:
        return {
            manifest["platform"]["architecture"]: laid_out(
                files, manifest, archive, tmp_path_factory.mktemp("root")
            )
            for manifest in index["manifests"]
        }


def laid_out(files: tarfile.TarFile, described: dict[str, Any], archive: Path, into: Path) -> Image:
    architecture = described["platform"]["architecture"]
    manifest = json.loads(blob(files, described))
    contents = [blob(files, layer) for layer in manifest["layers"]]
    layers = tuple(tarfile.open(fileobj=io.BytesIO(content)) for content in contents)  # noqa: SIM115  # memory
    for layer in layers:
        layer.extractall(into, filter="fully_trusted")
    into.chmod(0o755)
    return Image(
        architecture,
        manifest,
        json.loads(blob(files, manifest["config"])),
        layers,
        sum(len(content) for content in contents),
        into,
        json.loads(archive.with_name(f"image.{architecture}.cdx.json").read_text()),
    )


def named(files: tarfile.TarFile) -> dict[str, Any]:
    (found,) = json.loads(read(files, "index.json"))["manifests"]
    assert found["mediaType"] == "application/vnd.oci.image.index.v1+json"
    described: dict[str, Any] = found
    return described


def blob(files: tarfile.TarFile, descriptor: dict[str, Any]) -> bytes:
    return read(files, f"blobs/{descriptor['digest'].replace(':', '/')}")


def read(files: tarfile.TarFile, name: str) -> bytes:
    found = files.extractfile(name)
    assert found is not None
    return found.read()


@pytest.fixture(params=debian.ARCHITECTURES)
def image(request: pytest.FixtureRequest, images: dict[str, Image]) -> Image:
    return images[request.param]


@pytest.fixture(scope="session")
def native(images: dict[str, Image]) -> Image:
    return images[debian.native()]


@pytest.fixture(scope="session")
def configuration(native: Image) -> dict[str, Any]:
    return native.configuration


@pytest.fixture(scope="session")
def root(native: Image) -> Path:
    return native.root


@pytest.fixture
def run(root: Path, configuration: dict[str, Any]):
    """Run a program in the root as the image says, without a network or a process table."""
    if os.geteuid() != 0:
        pytest.fail("needs root for chroot: run as root, or deselect tests/cluster/image")
    environ = dict(item.split("=", 1) for item in configuration["config"]["Env"])

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


def test_it_is_the_same_when_it_is_built_again(archive: Path, source: Path, tmp_path: Path):
    again = built(source, tmp_path)
    names = [archive.name, *(f"image.{item}.cdx.json" for item in debian.ARCHITECTURES)]
    equal, *others = filecmp.cmpfiles(archive.parent, again.parent, names, shallow=False)
    assert (sorted(equal), others) == (sorted(names), [[], []])


def test_a_runtime_finds_the_image_of_its_architecture(
    index: dict[str, Any], images: dict[str, Image]
):
    assert [item["platform"]["architecture"] for item in index["manifests"]] == ["amd64", "arm64"]
    assert all(item.configuration["architecture"] == name for name, item in images.items())
    ours = {item.manifest["layers"][-1]["digest"] for item in images.values()}
    assert len(ours) == 1


def test_it_says_what_it_is(index: dict[str, Any], image: Image):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = image.configuration["config"]["Labels"]
    assert labels == image.manifest["annotations"] == index["annotations"]
    assert (labels[f"{LABELS}title"], labels[f"{LABELS}version"]) == (
        project["name"],
        project["version"],
    )
    assert (labels[f"{LABELS}revision"], labels[f"{LABELS}created"]) == (REVISION, CREATED)
    assert image.configuration["created"] == CREATED


def test_the_program_knows_its_revision(run):
    done = run("python3", "-c", "from api import version; print(version.REVISION)")
    assert (done.stdout, done.stderr) == (f"{REVISION}\n", "")


def test_it_is_small(image: Image):
    assert image.size <= LARGEST


def test_it_has_no_code_that_only_tests_or_shows(image: Image):
    site = {path.name for path in (image.root / SITE).iterdir()}
    assert {"demo", "packaging", "simulator", "tests"}.isdisjoint(site)
    suspects = ("test", "tests", "testdata", "conftest.py")
    found = [
        name
        for name in image.files(0) | image.files(1) | image.files(2)
        if any(part in suspects for part in name.split("/"))
        or name.rpartition("/")[2].startswith("test_")
        or name.endswith(("_test.py", ".pyi", ".pyx"))
    ]
    assert found == []


def test_every_library_is_of_the_architecture_and_finds_those_that_it_needs(image: Image):
    libraries = {
        item.name: found
        for layer in image.layers
        for item in layer
        if item.isfile() and (found := elf.read(read(layer, item.name))) is not None
    }
    assert len(libraries) > 60
    assert {library.machine for library in libraries.values()} == {image.architecture}
    there = {name.rpartition("/")[2] for name in image.files(0) | image.files(1)}
    missing = {name: set(item.needed) - there for name, item in libraries.items()}
    assert {name: which for name, which in missing.items() if which} == {}


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
    programs = {path.name for place in ("bin", "sbin") for path in (root / "usr" / place).iterdir()}
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


def test_scanners_find_what_it_is_made_of(image: Image):
    assert 'VERSION_ID="12"' in (image.root / "etc/os-release").read_text()
    control = (image.root / "var/lib/dpkg/status.d/libssl3").read_text()
    assert "Package: libssl3\n" in control
    assert "\nVersion: " in control
    assert (image.root / "usr/share/doc/libssl3/copyright").is_file()
    ours = image.root / "usr/share/doc/gpu-control-plane/LICENSE"
    assert ours.read_bytes() == (ROOT / "LICENSE").read_bytes()


def listed(image: Image, kind: str) -> dict[str, str]:
    """The versions of the components of a kind, by their names."""
    return {
        component["name"]: component["version"]
        for component in image.bill["components"]
        if component.get("purl", "").startswith(f"pkg:{kind}/")
    }


def test_every_file_is_of_a_debian_package_that_is_listed(image: Image):
    archives = [
        path
        for name, version in listed(image, "deb").items()
        for path in (CACHE / "debian/packages").glob(f"{name}_{version.replace(':', '%3a')}_*.deb")
        if path.stem.endswith((f"_{image.architecture}", "_all"))
    ]
    assert len(archives) == len(debian.PACKAGES)
    packed: set[str] = set()
    for item in archives:
        content = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", item], capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(content)) as files:
            # /lib is a link to /usr/lib in the image, and a directory in some packages.
            packed |= {f"usr/{name}" for name in files.getnames()}
            packed |= {name.removeprefix("./") for name in files.getnames()}
            packed |= {f"usr/{name.removeprefix('./')}" for name in files.getnames()}
    others = {
        name
        for name in image.files(0) - packed
        if "/__pycache__/" not in name and not name.startswith("var/lib/dpkg/status.d/")
    }
    made = {"bin", "lib", "lib64", "sbin", "etc/group", "etc/passwd", "usr/bin/python3"}
    assert others <= made


def test_every_library_is_of_a_wheel_that_is_listed(image: Image):
    wheels = listed(image, "pypi")
    expected = {
        file.parts[0].partition(".cpython-")[0]
        for name in wheels
        for file in importlib.metadata.distribution(name).files or ()
    }
    found = {name.removeprefix(f"{SITE}/").split("/")[0] for name in image.files(1)}
    assert {item.partition(".cpython-")[0] for item in found} - {"__pycache__"} <= expected
    locked = {
        component["name"]: importlib.metadata.version(component["name"])
        for component in image.bill["components"]
        if component["name"] in wheels
    }
    assert wheels == locked
    described = {item.partition("-")[0] for item in found if item.endswith(".dist-info")}
    assert len(described) == len(wheels)


def test_the_list_is_of_this_image_and_names_the_program(
    image: Image, index: dict[str, Any], configuration: dict[str, Any]
):
    (described,) = (
        manifest
        for manifest in index["manifests"]
        if manifest["platform"]["architecture"] == image.architecture
    )
    about = image.bill["metadata"]
    digest = described["digest"].replace(":", "%3A")
    assert f"@{digest}?arch={image.architecture}" in about["component"]["purl"]
    assert about["timestamp"] == CREATED
    (program,) = (
        component for component in image.bill["components"] if component["type"] == "application"
    )
    assert program["version"] == configuration["config"]["Labels"][f"{LABELS}version"]
