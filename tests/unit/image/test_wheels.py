"""Which entries of the lock file go into the image."""

import compileall
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest
from image.errors import ImageBuildError
from image.wheels import GENERATED, drop_generated, is_selected, runtime_requirements, trim

ROOT = Path(__file__).parents[3]
PROJECT = """
[project]
name = "gpu-control-plane"
dependencies = ["Web_Server>=3,<4", "codec[fast]>=1"]
[project.optional-dependencies]
dev = ["checker"]
"""
LOCK = """\
checker==1.0 \\
    --hash=sha256:aa
    # via gpu-control-plane (pyproject.toml)
codec==2.0 ; sys_platform == 'linux' \\
    --hash=sha256:bb \\
    --hash=sha256:bc
    # via
    #   gpu-control-plane (pyproject.toml)
    #   checker
deep.part==3.0 \\
    --hash=sha256:cc
    # via part
for-checks==4.0 \\
    --hash=sha256:dd
    # via
    #   checker
    #   for-checks-too
for-checks-too==5.0 \\
    --hash=sha256:ee
    # via for-checks
part==6.0 \\
    --hash=sha256:ff
    # via
    #   checker
    #   web-server
web-server==7.0 \\
    --hash=sha256:ab
    # via gpu-control-plane (pyproject.toml)
"""


def test_what_runs_and_what_that_needs_is_taken_with_its_digests():
    found = runtime_requirements(LOCK, PROJECT)
    pins = [line for line in found.splitlines() if "==" in line]
    assert pins == [
        "codec==2.0 ; sys_platform == 'linux' \\",
        "deep.part==3.0 \\",
        "part==6.0 \\",
        "web-server==7.0 \\",
    ]
    assert "--hash=sha256:bb \\\n    --hash=sha256:bc\n" in found
    assert found.count("--hash") == 5


def test_a_dependency_that_is_not_locked_is_named():
    with pytest.raises(ImageBuildError, match=r"codec, web-server is not in requirements.lock"):
        runtime_requirements(LOCK[: LOCK.index("codec")], PROJECT)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("aiohttp/web.py", True),
        ("aiohttp-3.dist-info/METADATA", True),
        ("aiohttp-3.dist-info/RECORD", False),
        ("aiohttp-3.dist-info/licenses/RECORD", True),
        ("bin", False),
        ("bin/uvicorn", False),
        (".lock", False),
        ("binary/x.py", True),
        ("certifi/tests/test_certs.py", False),
        ("kubernetes_asyncio/config/exec_provider_test.py", False),
        ("aiohttp/test_utils.py", False),
        ("uvloop/loop.pyx", False),
        ("uvloop/loop.cpython-311-aarch64-linux-gnu.so", True),
        ("multidict/_testcapi.cpython-311-aarch64-linux-gnu.so", False),
        ("structlog/testing.py", True),
        ("pydantic/main.pyi", False),
        ("idna-3.20.dist-info/licenses/LICENSE.md", True),
        ("CHANGELOG.md", False),
        ("example.py", False),
        ("LICENSE", True),
        ("jsonpatch-stubs/__init__.pyi", False),
        ("tzdata/zoneinfo/Europe/Berlin", True),
    ],
)
def test_what_names_the_machine_and_what_no_process_reads_is_left_out(path: str, expected: bool):
    assert is_selected(path) is expected


def test_a_trimmed_directory_has_no_empty_directories(tmp_path: Path):
    for name in ("part/tests/data/test_x.py", "part/x.py", "x-stubs/deep/x.pyi"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    trim(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {
        "part",
        "part/x.py",
    }


def test_generated_modules_are_imported_from_their_bytecode(tmp_path: Path):
    package = tmp_path / GENERATED[0]
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from generated_api.one import WHAT\n")
    (package / "one.py").write_text("WHAT = 'thing'\n")
    compileall.compile_dir(tmp_path, quiet=1)
    drop_generated(tmp_path)
    assert sorted(path.name for path in package.iterdir()) == ["__init__.pyc", "one.pyc"]
    spec = importlib.util.spec_from_file_location("generated_api", package / "__init__.pyc")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generated_api"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["generated_api"]
        sys.modules.pop("generated_api.one", None)
    assert module.WHAT == "thing"


def test_neither_simulator_nor_demo_is_shipped() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    present = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert present - packages == {"simulator", "demo", "tests"}


def test_no_library_of_development_is_shipped() -> None:
    locked = runtime_requirements(
        (ROOT / "requirements.lock").read_text(), (ROOT / "pyproject.toml").read_text()
    )
    names = set(re.findall(r"^([\w.-]+)==", locked, flags=re.MULTILINE))
    assert {"cel-expr-python", "grpcio-tools", "pytest"}.isdisjoint(names)
    assert {"aiohttp", "msgspec"} <= names
