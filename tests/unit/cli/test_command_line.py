"""What a person gets from the command line: help, version, and one line for each mistake."""

import subprocess
import sys
from pathlib import Path

import pytest

from api.version import REVISION, VERSION
from cli.exit_status import MISUSED, OK
from cli.main import COMMANDS, run
from cli.render import DESCRIPTIONS, RenderTarget
from server.setting_fields import setting_fields
from server.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
HEAVY = {
    *("aiohttp", "cryptography", "grpc", "kubernetes_asyncio", "msgspec", "prometheus_client"),
    *("pydantic", "pynvml", "structlog", "uvloop", "yaml"),
}
OF_THE_SERVER = {"aiohttp", "cryptography", "pydantic", "kubernetes_asyncio"}
"""Each costs an agent megabytes on every node."""


def imported_by(*arguments: str) -> set[str]:
    """Return the modules that a process has after the command, packages only."""
    program = (
        "import sys\nfrom cli.main import run\n"
        "try:\n    run(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("flag", ["--help", "--version", "--hlep"])
def test_help_version_and_a_mistake_import_no_library(flag: str):
    modules = imported_by(flag)
    assert "cli" in modules
    assert modules & HEAVY == set()


def test_the_agents_flags_import_nothing_of_the_server():
    modules = imported_by("agent", "--help")
    assert "agent" in modules
    assert modules & OF_THE_SERVER == set()


def test_flags_of_uninstall_import_nothing_of_the_server():
    assert imported_by("uninstall", "--help") & OF_THE_SERVER == set()


def test_flags_of_simulate_import_no_library():
    assert imported_by("simulate", "--help") & HEAVY == set()


def test_examples_need_no_settings():
    assert imported_by("render", "examples") & OF_THE_SERVER == set()


def test_render_imports_neither_clients_nor_an_event_loop():
    modules = imported_by("render", "all")
    assert "manifests" in modules
    assert (
        modules & {"aiohttp", "grpc", "kubernetes_asyncio", "uvloop", "demo", "simulator"} == set()
    )


def test_version_names_program_version_and_revision(capsys: pytest.CaptureFixture[str]):
    assert run(["--version"]) == OK
    assert capsys.readouterr().out == f"gpu-control-plane {VERSION} ({REVISION})\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_the_overview_has_a_line_for_each_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    assert run(arguments) == (OK if arguments else MISUSED)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert set(COMMANDS) <= {words[0] for words in lines if len(words) > 2}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    if command in {"render", "cache", "operands"}:
        assert run([command, "--help"]) == OK
    else:
        with pytest.raises(SystemExit) as ended:
            run([command, "--help"])
        assert ended.value.code == OK
    assert capsys.readouterr().out.startswith(f"usage: gpu-control-plane {command} ")


def test_help_of_serve_has_flag_type_default_and_description_of_every_setting(
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(SystemExit):
        run(["serve", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    fields = [item for item in setting_fields(Settings.model_json_schema()) if not item.is_section]
    assert len(fields) > 50
    for field in fields:
        default = f" (default {field.default_text})" if field.default_text else ""
        assert f" {field.flag} {field.expects}{default} {field.description} " in f"{words} "


def test_values_of_enumerations_are_shown_as_they_are_written(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        run(["serve", "--help"])
    printed = capsys.readouterr().out
    assert (
        "--bootstrap.gfd.requirement  Required, IfPresent or Ignored (default IfPresent)" in printed
    )
    assert "IF_PRESENT" not in printed


def test_render_alone_lists_its_targets_with_a_line_each(capsys: pytest.CaptureFixture[str]):
    assert run(["render"]) == MISUSED
    printed = capsys.readouterr().out
    assert set(DESCRIPTIONS) == set(RenderTarget)
    for target, text in DESCRIPTIONS.items():
        assert f"  {target.value:<18}{text}\n" in printed


ROLES = ("--roles", "device-plugin")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["serv"], "no such command serv; did you mean serve?", id="command"),
        pytest.param(
            ["qqq"], "no such command qqq; `gpu-control-plane --help` lists them", id="no command"
        ),
        pytest.param(["--versoin"], "no such flag --versoin; did you mean --version?", id="flag"),
        pytest.param(
            ["agent", "--nod", "n1", *ROLES], "no such flag --nod; did you mean --node?", id="agent"
        ),
        pytest.param(
            ["agent", "--xyzzy", "n1"],
            "no such flag --xyzzy; `gpu-control-plane agent --help` lists them",
            id="flag like no other",
        ),
        pytest.param(
            ["agent", "--node", "n1", *ROLES, "--port", "x"],
            "argument --port: invalid int value: 'x'; `gpu-control-plane agent --help` describes the command",
            id="type",
        ),
        pytest.param(
            ["agent", "--node", "n1", *ROLES, "--hand-out", "Magic"],
            "argument --hand-out: 'Magic': choose among CDI, Environment, Devices;"
            " `gpu-control-plane agent --help` describes the command",
            id="enumeration",
        ),
        pytest.param(
            ["demo", "--keep-log", "x"],
            "no such flag --keep-log; did you mean --keep-logs?",
            id="demo",
        ),
        pytest.param(
            ["uninstall", "--delete-crd"],
            "no such flag --delete-crd; did you mean --delete-crds?",
            id="uninstall",
        ),
        pytest.param(
            ["uninstall", "--delete-crds", "--keep-crds"],
            "--keep-crds and --delete-crds contradict each other",
            id="contradiction",
        ),
        pytest.param(
            ["uninstall", "--namespace", "Bad NS"],
            "argument --namespace: 'Bad NS' is no name of an object;"
            " `gpu-control-plane uninstall --help` describes the command",
            id="name",
        ),
        pytest.param(
            ["uninstall", "--timeout", "-1"],
            "argument --timeout: '-1': seconds, such as 120;"
            " `gpu-control-plane uninstall --help` describes the command",
            id="seconds",
        ),
        pytest.param(
            ["uninstall", "--kubeconfig", "/nonexistent"],
            "no usable configuration: no kubeconfig at /nonexistent",
            id="kubeconfig",
        ),
        pytest.param(["render", "crd"], "no such target crd; did you mean crds?", id="target"),
        pytest.param(
            ["render", "policy", "--namespaze", "x"],
            "no such flag --namespaze; did you mean --namespace?",
            id="render",
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_nearest_name(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
):
    assert run(arguments) == MISUSED
    assert capsys.readouterr().err == f"gpu-control-plane: {complaint}\n"
