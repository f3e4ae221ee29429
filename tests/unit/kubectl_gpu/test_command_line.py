"""The command line: which verb is meant, what cannot be used, and what a verb imports."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from kubectl_gpu.command_line import VERBS, run
from kubectl_gpu.exit_codes import ANSWERED, MISUSED
from kubectl_gpu.terminal import Terminal

ROOT = Path(__file__).resolve().parents[3]
HEAVY = {
    "aiohttp",
    "asyncio",
    "kubernetes_asyncio",
    "prometheus_client",
    "pydantic",
    "structlog",
    "yaml",
    "http.client",
    "reconciler",
    "server",
}


def run_here(*arguments: str) -> tuple[int, str, str]:
    terminal = Terminal(io.StringIO(), io.StringIO())
    code = run(arguments, terminal)
    assert isinstance(terminal.out, io.StringIO)
    assert isinstance(terminal.err, io.StringIO)
    return code, terminal.out.getvalue(), terminal.err.getvalue()


def test_help_lists_every_verb_and_the_exit_codes():
    code, printed, said = run_here("--help")
    assert (code, said) == (ANSWERED, "")
    assert all(f"  {verb} " in printed for verb in VERBS)
    assert (
        "Exit codes: 0 yes or answered, 1 no, 2 misused, 3 the cluster cannot be read." in printed
    )
    assert run_here("help")[1] == run_here("-h")[1] == printed


def test_without_a_verb_the_overview_is_shown_as_a_mistake():
    assert run_here()[0] == MISUSED
    assert run_here("--context", "x")[0] == MISUSED


def test_the_version_of_the_plugin():
    assert run_here("--version")[:2] == (ANSWERED, "kubectl gpu 0.1.0\n")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_describes_itself(verb: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        run_here(verb, "--help")
    assert ended.value.code == ANSWERED
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: kubectl gpu {verb} ")
    assert "--context NAME" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pols",), "no such verb pols; did you mean pools?"),
        (("--colour", "pools"), "no such flag --colour; did you mean --cluster?"),
        (("pools", "--watsh"), "no such flag --watsh; did you mean --watch?"),
        (("pools", "-o", "xml"), "argument -o/--output: invalid choice: 'xml'"),
        (("pools", "-w", "-o", "json"), "--watch shows tables, and no json: leave out one of both"),
        (("who", "-A", "-n", "a"), "--namespace and --all-namespaces exclude each other"),
        (("why", "pod", "-A"), "a POD is one pod of a namespace: leave it out with -A or -l"),
        (("why", "a", "b"), "unrecognized arguments: b"),
    ],
)
def test_what_cannot_be_used_is_one_line(arguments: tuple[str, ...], said: str):
    code, printed, complaint = run_here(*arguments)
    assert (code, printed) == (MISUSED, "")
    assert complaint.startswith(f"kubectl gpu: {said}")
    assert len(complaint.splitlines()) == 1


@pytest.mark.parametrize("verb", sorted({"pools", "nodes", "who", "why", "version"}))
def test_a_verb_imports_nothing_of_the_server_s_stack(verb: str):
    program = (
        "import sys\n"
        "from kubectl_gpu.command_line import VERBS\n"
        f"VERBS[{verb!r}].load()\n"
        f"print(sorted({HEAVY!r} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_help_imports_no_verb_and_no_msgspec():
    program = (
        "import sys\n"
        "from kubectl_gpu.command_line import run\n"
        "from kubectl_gpu.terminal import Terminal\n"
        "run(['--help'], Terminal.of_process())\n"
        "print([one for one in sys.modules if one in {'msgspec', 'subprocess', 'socket'}\n"
        "       or one.startswith(('kubectl_gpu.verbs', 'pool'))], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"
