"""The Dockerfile makes the image that `image.build` makes, as far as its text says."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from image import debian
from image.build import _PROGRAM_TEXT, _RUN, DOCUMENTS, NOT_COPIED, PROGRAM, SITE, write_revision
from image.layout import EPOCH
from image.origin import Origin, labels
from image.wheels import GENERATED, runtime_requirements

ROOT = Path(__file__).parents[3]
PROJECT = (ROOT / "pyproject.toml").read_text()
LOCK = (ROOT / "requirements.lock").read_text()
PACKAGES = tomllib.loads(PROJECT)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def instructions() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, with their arguments."""
    text = (ROOT / "packaging" / "Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    stages: list[list[tuple[str, str]]] = []
    for line in filter(None, text.splitlines()):
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, " ".join(arguments.split())))
    return stages


def of(stage: list[tuple[str, str]], wanted: str) -> list[str]:
    return [arguments for name, arguments in stage if name == wanted]


BUILD, FINAL = instructions()


def test_both_stages_are_of_the_release_of_our_image():
    base = f"debian:{debian.RELEASE}-slim"
    assert (of(BUILD, "FROM"), of(FINAL, "FROM")) == ([f"{base} AS libraries"], [base])


def test_exactly_the_packages_of_the_wheel_are_copied():
    about = tomllib.loads(PROJECT)["project"]
    expected = ["--from=libraries /libraries ${SITE}/", *(f"{p} ${{SITE}}/{p}" for p in PACKAGES)]
    expected += [f"{one} /{DOCUMENTS}/{about['name']}/{one}" for one in about["license-files"]]
    assert of(FINAL, "COPY") == expected
    assert of(BUILD, "ARG")[0] == of(FINAL, "ARG")[0] == f"SITE=/{SITE}"


def test_the_same_files_of_them_are_left_out():
    ignored = (ROOT / "packaging" / "Dockerfile.dockerignore").read_text().split()
    anywhere = {one.removeprefix("**/") for one in ignored if one.startswith("**/")}
    assert anywhere == set(NOT_COPIED)
    assert {"build", "tests"} <= set(ignored)


def test_the_labels_are_those_of_our_image():
    arguments = dict(one.split("=", 1) for one in of(FINAL, "ARG"))
    assert (arguments["REVISION"], arguments["CREATED"]) == ("unknown", EPOCH)
    (text,) = of(FINAL, "LABEL")
    expected = labels(
        tomllib.loads(PROJECT)["project"], Origin(revision="${REVISION}", created="${CREATED}")
    )
    assert dict(one.split("=", 1) for one in shlex.split(text)) == expected


def test_the_revision_is_written_as_in_our_image(tmp_path: Path):
    command, *_ = of(FINAL, "RUN")[1].split(" && ")
    ours, engines = (tmp_path / name / "api/version.py" for name in ("ours", "engine"))
    for file in (ours, engines):
        file.parent.mkdir(parents=True)
        shutil.copy(ROOT / "api/version.py", file)
    write_revision(ours, "0a1b-dirty")
    subprocess.run(
        ["/bin/sh", "-c", command],
        env={"SITE": str(tmp_path / "engine"), "REVISION": "0a1b-dirty", "PATH": "/usr/bin:/bin"},
        check=True,
    )
    assert 'REVISION: Final = "0a1b-dirty"\n' in ours.read_text()
    assert engines.read_text() == ours.read_text()


def test_neither_simulator_nor_demo_is_shipped():
    assert {"simulator", "demo", "tests", "packaging"}.isdisjoint(PACKAGES)
    shipped = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert shipped - set(PACKAGES) == {"simulator", "demo", "tests"}


def test_no_library_of_development_is_shipped():
    locked = runtime_requirements(LOCK, PROJECT)
    names = re.findall(r"^([\w.-]+)==", locked, flags=re.MULTILINE)
    assert {"cel-expr-python", "grpcio-tools", "pytest"}.isdisjoint(names)
    assert {"aiohttp", "msgspec"} <= set(names)


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A folder that has what the first stage copies."""
    for source, target in (shlex.split(one) for one in of(BUILD, "COPY") if "packaging" in one):
        shutil.copytree(ROOT / source, tmp_path / target)
    for name in ("pyproject.toml", "requirements.lock"):
        assert f"{name} " in f"{of(BUILD, 'COPY')[0]} "
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def steps() -> list[str]:
    _, command = of(BUILD, "RUN")
    return command.split(" && ")


def run(stage: Path, step: str) -> str:
    """Run a step as the first stage does, with its site and its libraries in our folder."""
    words = [
        one.replace("/libraries", str(stage / "libraries")).replace("${SITE}", f"/{SITE}")
        for one in step.removeprefix("python3 ").split()
    ]
    done = subprocess.run(
        [sys.executable, *words], cwd=stage, env={}, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_libraries_come_from_the_lock_file_by_digest(stage: Path):
    select, install, *_ = steps()
    selected, _, written = select.partition(" > ")
    assert run(stage, selected) == runtime_requirements(LOCK, PROJECT)
    assert {"--require-hashes", "--no-deps", "--no-compile", written} <= set(install.split())


def test_of_libraries_the_same_files_are_kept(stage: Path):
    generated = stage / "libraries" / GENERATED[0]
    generated.mkdir(parents=True)
    for name in ("api.py", "api.pyi", "test_api.py"):
        (generated / name).write_text("WHAT = __file__\n")
    _, _, *rest = steps()
    for step in rest:
        run(stage, step)
    files = [one.name for one in (stage / "libraries").rglob("*") if one.is_file()]
    assert files == ["api.pyc"]


def test_it_runs_as_our_image_does():
    environment = dict(one.split("=", 1) for one in of(FINAL, "ENV")[0].split())
    assert environment == dict(one.split("=", 1) for one in _RUN["Env"])
    assert of(FINAL, "USER") == [_RUN["User"]]
    assert of(FINAL, "WORKDIR") == [_RUN["WorkingDir"]]
    assert of(FINAL, "ENTRYPOINT") == ['["gpu-control-plane"]']


def test_the_program_is_that_of_our_image():
    _, written = of(FINAL, "RUN")
    program = re.search(r"printf '([^']*)' > (\S+)", written)
    assert program is not None
    text = program[1].encode().decode("unicode_escape")
    assert text.partition("\n")[2] == _PROGRAM_TEXT.partition("\n")[2]
    assert program[2] == f"/{PROGRAM}"


def test_the_lines_that_an_engine_reads_are_well_formed():
    for name, arguments in [*BUILD, *FINAL]:
        assert name in {
            "FROM",
            "ARG",
            "RUN",
            "COPY",
            "ENV",
            "WORKDIR",
            "USER",
            "ENTRYPOINT",
            "LABEL",
        }
        assert arguments
        if name == "RUN":
            subprocess.run(["/bin/sh", "-n", "-c", arguments], check=True)
        if name == "COPY" and not arguments.startswith("--from"):
            assert all((ROOT / one).exists() for one in arguments.split()[:-1])
