"""Which entries of the lock file go into the image."""

import pytest
from image.errors import ImageBuildError
from image.wheels import is_wanted, runtime_requirements

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
    ("path", "wanted"),
    [
        ("aiohttp/web.py", True),
        ("aiohttp-3.dist-info/METADATA", True),
        ("aiohttp-3.dist-info/RECORD", False),
        ("aiohttp-3.dist-info/licenses/RECORD", True),
        ("bin", False),
        ("bin/uvicorn", False),
        (".lock", False),
        ("binary/x.py", True),
    ],
)
def test_what_names_the_machine_that_built_is_left_out(path: str, wanted: bool):
    assert is_wanted(path) is wanted
