"""`operands adopt`: its command line; its flags are on the page.

What it does to a cluster: tests/component/reconciler/test_adoption.py.
"""

from pathlib import Path

import pytest

from cli.exit_status import MISUSED, OK
from cli.main import run
from cli.operands.adopt_command import parser

PAGE = (Path(__file__).parents[3] / "docs" / "node-software.md").read_text(encoding="utf-8")


def test_every_flag_of_the_command_is_on_the_page():
    flags = {flag for action in parser()._actions for flag in action.option_strings}
    missing = {flag for flag in flags if f"`{flag}`" not in PAGE and f" {flag} " not in PAGE}
    assert missing == {"-h", "--help"}


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], OK),
        (["--dry"], MISUSED),
        (["--kubeconfig", "/nonexistent/config"], MISUSED),
    ],
)
def test_the_command_line(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]):
    try:
        found = run(["operands", "adopt", *arguments])
    except SystemExit as ended:
        found = int(ended.code or 0)
    assert found == status
    capsys.readouterr()
