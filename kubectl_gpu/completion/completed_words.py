"""What may stand at the place of the cursor: verbs, flags, and words that only the cluster knows."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMS: Final = ("table", "wide", "json", "yaml", "name")


class Words(Enum):
    """What kind of word is missing."""

    PODS = "pods"
    POOLS = "gpupools"
    DEVICES = "gpudevices"
    NODES = "nodes"
    NAMESPACES = "namespaces"
    FILES = "files"
    """The shell knows them."""
    NONE = ""


@final
@dataclass(frozen=True, slots=True)
class FlagWords:
    """A flag of a verb, as its help shows it."""

    names: tuple[str, ...]
    has_value: bool
    text: str = ""


@final
@dataclass(frozen=True, slots=True)
class Completed:
    """Words with their descriptions, and what else is to be looked up."""

    words: "Mapping[str, str]"
    ask: Words = Words.NONE


_OF_FLAG: Final = {
    "--pool": Words.POOLS,
    "--cordon": Words.NODES,
    "--namespace": Words.NAMESPACES,
    "-n": Words.NAMESPACES,
    "--install-namespace": Words.NAMESPACES,
    "--from": Words.FILES,
    "--filename": Words.FILES,
    "-f": Words.FILES,
    "--kubeconfig": Words.FILES,
    "--certificate-authority": Words.FILES,
}
_OF_VERB: Final = {
    "why": Words.PODS,
    "pools": Words.POOLS,
    "nodes": Words.NODES,
    **dict.fromkeys(("approve", "drain", "move", "release"), Words.DEVICES),
}


def flags_in(help_text: str) -> tuple[FlagWords, ...]:
    """Return the flags that a verb's help lists."""
    found: list[FlagWords] = []
    for line in help_text.splitlines():
        if not re.match(r"  -", line):
            continue
        names, _, text = line.strip().partition("  ")
        parts = [part.split(" ", 1) for part in names.split(", ")]
        found.append(
            FlagWords(
                tuple(part[0] for part in parts), any(len(part) > 1 for part in parts), text.strip()
            )
        )
    return tuple(found)


def complete(
    words: "Sequence[str]", verbs: "Mapping[str, str]", flags: "Mapping[str, Sequence[FlagWords]]"
) -> Completed:
    """Return what may stand in place of the last word.

    Args:
        words: behind `kubectl gpu`; the last one is being written, and may be empty.
        verbs: verb -> description.
        flags: verb -> its flags.
    """
    *before, last = words or [""]
    verb = next((word for word in before if word in verbs), None)
    if verb is None:
        return Completed(_starting(last, verbs))
    verb_flags = flags.get(verb, ())
    by_name = {name: flag for flag in verb_flags for name in flag.names}
    asked = before[-1] if before else ""
    if asked in by_name and by_name[asked].has_value:
        return _values(asked, last, verb=verb)
    if last.startswith("-"):
        return Completed(
            _starting(last, {flag.names[-1]: flag.text for flag in verb_flags if flag.names})
        )
    kind = _OF_VERB.get(verb, Words.NONE)
    if kind is Words.DEVICES and asked != verb and not asked.startswith("-"):
        kind = Words.POOLS if verb in {"approve", "move"} else Words.NONE
    return Completed({}, kind)


def _values(flag: str, last: str, *, verb: str) -> Completed:
    """Return the values of a flag."""
    if flag in {"-o", "--output"}:
        if verb == "dump":
            return Completed({}, Words.FILES)
        return Completed(_starting(last, dict.fromkeys(FORMS, "")))
    return Completed({}, _OF_FLAG.get(flag, Words.NONE))


def _starting(prefix: str, words: "Mapping[str, str]") -> "dict[str, str]":
    return {word: text for word, text in words.items() if word.startswith(prefix)}
