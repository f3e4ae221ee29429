"""The command line of `kubectl gpu`: one module for each verb, imported when the verb is given.

kubectl gpu why [POD] [-n NAMESPACE | -A] [-l SELECTOR] [-w] [-o FORM]
kubectl gpu pools [POOL ...] [-l SELECTOR] [-w] [-o FORM]
kubectl gpu nodes [NODE ...] [--pool POOL] [-l SELECTOR] [-w] [-o FORM]
kubectl gpu who [-n NAMESPACE | -A] [--pool POOL] [-l SELECTOR] [-w] [-o FORM]
kubectl gpu whatif -f FILE | --pool POOL --units N [--times K] [--cordon NODE] [-o FORM]
kubectl gpu approve [DEVICE|NODE [POOL]] [--dry-run]
kubectl gpu move DEVICE|NODE POOL [--dry-run]
kubectl gpu release DEVICE|NODE [--dry-run]
kubectl gpu drain DEVICE|NODE [--dry-run]
kubectl gpu console [--port N] [--open] [-n NAMESPACE]
kubectl gpu check [--pre] [--all] [-o FORM]
kubectl gpu dump [-o FILE]
kubectl gpu version [-o FORM]

Flags of kubectl that choose a cluster and a user, such as --context and --as, may stand before the verb or behind it.
"""

# ruff: noqa: PLC0415  # modules of one verb are imported when it runs

import signal
from typing import TYPE_CHECKING, Final, NamedTuple

from api.version import VERSION
from cli.command_parser import CommandLineError, no_such
from kubectl_gpu.errors import UnreadableError
from kubectl_gpu.exit_codes import ANSWERED, MISUSED, NO, UNREADABLE
from kubectl_gpu.terminal import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from kubectl_gpu.terminal import Terminal

    RunVerb = Callable[[Sequence[str], Terminal], int]
    """Takes the arguments behind the verb; returns the exit code."""


class VerbEntry(NamedTuple):
    """What a verb does, and how its module is imported."""

    text: str
    load: "Callable[[], RunVerb]"


def _why() -> "RunVerb":
    from kubectl_gpu.verbs.why import run_why

    return run_why


def _pools() -> "RunVerb":
    from kubectl_gpu.verbs.pools import run_pools

    return run_pools


def _nodes() -> "RunVerb":
    from kubectl_gpu.verbs.nodes import run_nodes

    return run_nodes


def _who() -> "RunVerb":
    from kubectl_gpu.verbs.who import run_who

    return run_who


def _what_if() -> "RunVerb":
    from kubectl_gpu.what_if.verb import run_what_if

    return run_what_if


def _approve() -> "RunVerb":
    from kubectl_gpu.verbs.assign import run_approve

    return run_approve


def _move() -> "RunVerb":
    from kubectl_gpu.verbs.assign import run_move

    return run_move


def _release() -> "RunVerb":
    from kubectl_gpu.verbs.assign import run_release

    return run_release


def _drain() -> "RunVerb":
    from kubectl_gpu.verbs.assign import run_drain

    return run_drain


def _console() -> "RunVerb":
    from kubectl_gpu.verbs.console import run_console

    return run_console


def _check() -> "RunVerb":
    from kubectl_gpu.check.verb import run_check

    return run_check


def _dump() -> "RunVerb":
    from kubectl_gpu.dump.verb import run_dump

    return run_dump


def _version() -> "RunVerb":
    from kubectl_gpu.verbs.version import run_version

    return run_version


VERBS: Final = {
    "why": VerbEntry("say why a pod waits, who has what it wants, and what would help", _why),
    "pools": VerbEntry(
        "list pools: used, reserved and free units, and how many pods still fit", _pools
    ),
    "nodes": VerbEntry("list nodes with the state of each device", _nodes),
    "who": VerbEntry("list who has how many units of each pool, by namespace", _who),
    "whatif": VerbEntry("say whether pods would be placed now, and where", _what_if),
    "approve": VerbEntry(
        "list devices that wait for a decision, or let them join a pool", _approve
    ),
    "move": VerbEntry("let devices come from one pool into another", _move),
    "release": VerbEntry("take the approval of devices away", _release),
    "drain": VerbEntry("let devices leave their pool, and join none", _drain),
    "console": VerbEntry("show pools, devices and waiting pods on a page, live", _console),
    "check": VerbEntry("say what is wrong with the installation, and the cure", _check),
    "dump": VerbEntry("write what the verbs read into a file, for --from", _dump),
    "version": VerbEntry("show the version of the plugin, and of what the cluster runs", _version),
}
_HELP: Final = ("-h", "--help", "help")
_VERSION: Final = "--version"
_COMPLETE: Final = "__complete"
"""What `kubectl_complete-gpu` calls; no verb for people."""
_FLAGS_WITH_VALUE: Final = (
    "--as",
    "--as-group",
    "--as-uid",
    "--certificate-authority",
    "--cluster",
    "--context",
    "--from",
    "--kubeconfig",
    "--namespace",
    "--output",
    "--selector",
    "--server",
    "--tls-server-name",
    "--token",
    "--user",
    "-l",
    "-n",
    "-o",
    "-s",
)


def run(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Run a verb; return the process's exit code."""
    verb, remaining = _verb_of(arguments)
    if verb in _HELP:
        terminal.write(_overview())
        return ANSWERED
    if verb == _VERSION:
        terminal.write(f"{PROGRAM} {VERSION}\n")
        return ANSWERED
    if not verb:
        terminal.write(_overview())
        return MISUSED
    if verb == _COMPLETE:
        return _complete(remaining, terminal)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        return _run_verb(verb, remaining, terminal)
    except CommandLineError as error:
        terminal.print_error(error)
        return MISUSED
    except UnreadableError as error:
        terminal.print_error(error)
        return UNREADABLE
    except KeyboardInterrupt:
        return NO


def _complete(words: "Sequence[str]", terminal: "Terminal") -> int:
    from kubectl_gpu.completion.verb import run_completion

    texts = {name: verb.text for name, verb in VERBS.items()}
    return run_completion(words, terminal, texts=texts, load=lambda name: VERBS[name].load())


def _run_verb(verb: str, arguments: "Sequence[str]", terminal: "Terminal") -> int:
    found = VERBS.get(verb)
    if found is None:
        kind = "flag" if verb.startswith("-") else "verb"
        raise no_such(kind, verb, (*VERBS, *_HELP, _VERSION), listed_by=f"{PROGRAM} --help")
    return found.load()(arguments, terminal)


def _verb_of(arguments: "Sequence[str]") -> "tuple[str, list[str]]":
    """Return the verb, and everything else in its order: flags before the verb are its flags."""
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        word = arguments[position]
        if word in {*_HELP, _VERSION}:
            return word, []
        position += 2 if word in _FLAGS_WITH_VALUE else 1
    if position >= len(arguments):
        return (arguments[0] if arguments else ""), []
    return arguments[position], [*arguments[:position], *arguments[position + 1 :]]


def _overview() -> str:
    width = max(map(len, VERBS)) + 2
    lines = "".join(f"  {name:<{width}}{verb.text}\n" for name, verb in VERBS.items())
    return (
        f"usage: {PROGRAM} VERB [...]\n\nGPU pools: why pods wait, what is free, who has the rest.\n\n{lines}\n"
        f"  -h, --help  show this text, or that of a verb: {PROGRAM} VERB --help\n"
        f"  --version   show the version of the plugin\n\n"
        f"Exit codes: 0 yes or answered, 1 no, 2 misused, 3 the cluster cannot be read.\n"
    )


def _end(number: int, _: "FrameType | None") -> None:
    """Leave through the code that ends kubectl, too."""
    raise SystemExit(128 + number)
