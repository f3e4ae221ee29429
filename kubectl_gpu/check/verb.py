"""`kubectl gpu check`: what is wrong with an installation, or before one, and the cure."""

import subprocess
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final

from cli.command_parser import CommandLineError
from kubectl_gpu.answer_forms import Tone, colored, structured, wrapped
from kubectl_gpu.check.checked_cluster import read_bare_cluster, read_cluster_state
from kubectl_gpu.check.findings import Level, report_of
from kubectl_gpu.check.installation import check_installation, check_kubernetes
from kubectl_gpu.check.pools import check_devices, check_nodes, check_pods, check_pools
from kubectl_gpu.check.preflight import check_cluster, check_rights
from kubectl_gpu.errors import UnreadableError
from kubectl_gpu.exit_codes import ANSWERED, NO
from kubectl_gpu.proxy_process import KUBECTL
from kubectl_gpu.verb_flags import (
    flags_of_kubectl,
    open_cluster,
    open_source,
    parse_verb,
    verb_parser,
)
from manifests.constants import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from kube.resources import Resource
    from kubectl_gpu.check.findings import CheckFinding, CheckReport
    from kubectl_gpu.terminal import Terminal

_SIGNS: Final = {Level.GOOD: "√", Level.WARNING: "‼", Level.FAULT: "×"}  # noqa: RUF001  # linkerd's
_ASCII: Final = {Level.GOOD: "ok", Level.WARNING: "!!", Level.FAULT: "XX"}
_TONES: Final = {Level.GOOD: Tone.GOOD, Level.WARNING: Tone.WARNING, Level.FAULT: Tone.BAD}
_MOST: Final = 10
"""Rows of one state in a section; further ones are counted."""


def text_of_report(report: "CheckReport", terminal: "Terminal", *, shows_all: bool) -> str:
    """Return the lines."""
    return "".join(f"{line}\n" for line in _lines(report, terminal, shows_all=shows_all))


def _lines(report: "CheckReport", terminal: "Terminal", *, shows_all: bool) -> "Iterator[str]":
    section = ""
    printed: Counter[tuple[str, Level]] = Counter()
    left_out: Counter[str] = Counter()
    for item in report.items:
        if item.section != section:
            yield from _left_out(left_out.pop(section, 0))
            yield from ("",) if section else ()
            section = item.section
            yield colored(section, Tone.STRONG, terminal)
        printed[section, item.level] += 1
        if printed[section, item.level] > _MOST and not shows_all:
            left_out[section] += 1
            continue
        yield from _row(item, terminal)
    yield from _left_out(left_out.pop(section, 0))
    yield ""
    yield _summary(report, terminal)


def _row(finding: "CheckFinding", terminal: "Terminal") -> "Iterator[str]":
    sign = (_SIGNS if terminal.has_unicode else _ASCII)[finding.level]
    indent = " " * (len(sign) + 1)
    first, *others = wrapped(
        f"{finding.subject}: {finding.text}", terminal, indent=indent, hang="  "
    )
    yield f"{colored(sign, _TONES[finding.level], terminal)} {first.removeprefix(indent)}"
    yield from others
    if finding.cure:
        yield from wrapped(f"do: {finding.cure}", terminal, indent=f"{indent}  ", hang="  ")


def _left_out(count: int) -> "Iterator[str]":
    if count:
        yield f"  {count} more (--all shows them)"


def _summary(report: "CheckReport", terminal: "Terminal") -> str:
    counts = Counter(item.level for item in report.items)
    faults, warnings = counts[Level.FAULT], counts[Level.WARNING]
    if not faults and not warnings:
        return colored("All is well.", Tone.GOOD, terminal)
    parts = [
        f"{count} {word if count == 1 else word + 's'}"
        for count, word in ((faults, "fault"), (warnings, "warning"))
        if count
    ]
    return colored(", ".join(parts), Tone.BAD if faults else Tone.WARNING, terminal)


_EPILOG: Final = """\
Faults keep pods from units that are there; exit code 1 says that there is one. Warnings are worth a
look: they change no exit code. What this user may not read is named, and not checked."""
_WITHIN_S: Final = 60.0


def run_check(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Check a cluster; return NO where something is at fault.

    Raises:
        CommandLineError: the flags contradict each other.
        UnreadableError: the API server cannot be reached.
    """
    parser = verb_parser("check", "Say what is wrong, and what to do about it.", epilog=_EPILOG)
    parser.add_argument("--pre", action="store_true", help="before the control plane is installed")
    parser.add_argument("--all", action="store_true", help="every row, where ten are alike")
    parser.add_argument(
        "--install-namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the control plane ({DEFAULT_NAMESPACE})",
    )
    given = parse_verb(parser, arguments)
    if given.pre and given.from_dump is not None:
        raise CommandLineError("--pre asks a cluster about rights, which no dump has")
    report = _before(given) if given.pre else _installed(given)
    subjects = (f"{item.section}/{item.subject}" for item in report.items)
    text = structured(report, subjects, form=given.output)
    if text is None:
        text = text_of_report(report, terminal, shows_all=given.all or given.output == "wide")
    terminal.write(text)
    return ANSWERED if report.is_good else NO


def _installed(given: "argparse.Namespace") -> "CheckReport":
    with open_source(given) as source:
        cluster = read_cluster_state(source, namespace=given.install_namespace)
    checks = (
        check_kubernetes,
        check_installation,
        check_pools,
        check_nodes,
        check_devices,
        check_pods,
    )
    return report_of(chain.from_iterable(check(cluster) for check in checks))


def _before(given: "argparse.Namespace") -> "CheckReport":
    with open_cluster(given) as source:
        cluster = read_bare_cluster(source, namespace=given.install_namespace)
    flags = flags_of_kubectl(given)

    def may_create(resource: "Resource") -> bool:
        return _is_allowed(resource, given.install_namespace, flags)

    return report_of(
        [
            *check_kubernetes(cluster),
            *check_rights(given.install_namespace, may_create),
            *check_cluster(cluster),
        ]
    )


def _is_allowed(resource: "Resource", namespace: str, flags: "list[str]") -> bool:
    """Ask the API server whether the user may create objects of a resource.

    Raises:
        UnreadableError: it does not answer.
    """
    name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    where = [f"--namespace={namespace}"] if resource.namespaced else []
    command = [KUBECTL, "auth", "can-i", "create", name, *where, *flags]
    try:
        done = subprocess.run(  # noqa: S603  # no shell
            command, capture_output=True, check=False, timeout=_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreadableError(f"kubectl auth can-i cannot be run: {error}") from error
    answer = done.stdout.decode(errors="replace").strip()
    if answer.startswith("no") or answer == "yes":
        return answer == "yes"
    stderr = done.stderr.decode(errors="replace").strip() or "no answer"
    raise UnreadableError(f"kubectl auth can-i create {name}: {stderr.splitlines()[-1]}")
