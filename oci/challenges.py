"""The header `WWW-Authenticate` of registries: which scheme, and for Bearer which token server. Pure.

RFC 9110, section 11.6.1, and distribution's docs/spec/auth/token.md.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_CHALLENGES_BYTES: Final = 8192
_SCHEME: Final = re.compile(r"[\s,]*([A-Za-z][A-Za-z0-9_-]*)(?:\s+|$)(?!=)")
_PARAMETER: Final = re.compile(
    r'[\s,]*([A-Za-z][A-Za-z0-9_-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))'
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BearerChallenge:
    """Get a token there, and come again with it."""

    realm: str
    service: str = ""
    scope: str = ""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BasicChallenge:
    """Come again with user and password."""


Challenge = BearerChallenge | BasicChallenge


def choose_challenge(headers: "Iterable[str]") -> Challenge | None:
    """Return what to answer: Bearer where it is offered, else Basic, else nothing that we know."""
    offered = {scheme: parameters for header in headers for scheme, parameters in _parse(header)}
    bearer = offered.get("bearer", {})
    if bearer.get("realm"):
        return BearerChallenge(
            realm=bearer["realm"], service=bearer.get("service", ""), scope=bearer.get("scope", "")
        )
    return BasicChallenge() if "basic" in offered else None


def _parse(header: str) -> "Iterator[tuple[str, dict[str, str]]]":
    text, at = header[:_MOST_CHALLENGES_BYTES], 0
    while scheme := _SCHEME.match(text, at):
        at = scheme.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(text, at):
            at = parameter.end()
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(name.lower(), value)
        yield scheme[1].lower(), parameters
