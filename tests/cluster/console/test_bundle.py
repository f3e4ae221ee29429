"""The page that is committed is made of its sources, which are checked; needs Node.js and npm, and no cluster."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CONSOLE = Path(__file__).resolve().parents[3] / "console"
STATIC = CONSOLE / "edge" / "static"
WEB = CONSOLE / "web"
FEWEST_TESTS = 40


def call(web: Path, *command: str) -> str:
    environ = os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=web, env=environ, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources elsewhere, with what the lock names, none of whose scripts has run."""
    copy = tmp_path_factory.mktemp("console") / "web"
    shutil.copytree(WEB, copy, ignore=shutil.ignore_patterns("node_modules"))
    call(copy, "npm", "ci", "--ignore-scripts")
    return copy


def test_the_committed_bundle_is_what_its_sources_make(web: Path, tmp_path: Path):
    call(web, "node", "build.mjs", str(tmp_path))
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in STATIC.iterdir()}
    assert made.keys() == committed.keys()
    assert [name for name in made if made[name] != committed[name]] == [], "run `make console`"


def test_the_types_of_the_page_hold(web: Path):
    call(web, "npm", "run", "check")


def test_the_parts_of_the_page_that_need_no_browser_do_what_they_say(web: Path, tmp_path: Path):
    call(web, "node", "build.mjs", "--tests", str(tmp_path))
    report = call(web, "node", "--test", "--test-reporter=tap", str(tmp_path))
    counts = {
        name: int(count) for name, count in re.findall(r"^# (\w+) (\d+)$", report, re.MULTILINE)
    }
    assert counts["tests"] == counts["pass"] >= FEWEST_TESTS, report
