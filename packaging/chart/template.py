"""From objects with tokens to the text of a template."""

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import yaml

from chart.tokens import TOKEN, Expression, Kind
from manifests.yaml import UNLIMITED, ManifestDumper, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_INDENT: Final = 2
_MEMBER: Final = re.compile(
    rf"^(?P<indent> *)(?:- (?P<item>{TOKEN.pattern})|(?P<key>{TOKEN.pattern}): '')$"
)
_SCALAR: Final = re.compile(rf"^(?P<indent> *)(?P<before>.*: |.*- )(?P<token>{TOKEN.pattern})$")


class _TemplateDumper(ManifestDumper):
    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Quote a text around a token: what is put in may have single quotes."""
        node: yaml.ScalarNode
        if "\n" not in data and TOKEN.search(data) and not TOKEN.fullmatch(data):
            node = self.represent_scalar("tag:yaml.org,2002:str", data, style='"')
        else:
            node = super().represent_str(data)
        return node


_TemplateDumper.add_representer(str, _TemplateDumper.represent_str)


def template_of(
    documents: "Iterable[Mapping[str, Any]]", expressions: "Mapping[str, Expression]"
) -> str:
    """Return the documents with an expression in the place of each token.

    Raises:
        ValueError: the text has braces of its own, which Helm would take for expressions.
    """
    text = render(documents, dumper=_TemplateDumper, width=UNLIMITED)
    if "{{" in text:
        raise ValueError(f"text has braces of its own: {text[text.index('{{') :][:80]}")
    lines: list[str] = []
    source = [*text.splitlines(), ""]
    for line, following in pairwise(source):
        member = _MEMBER.match(line)
        expression = expressions[member["item"] or member["key"]] if member else None
        if member and expression and expression.kind is Kind.BLOCK:
            is_alone = lines[-1].endswith(":") and not _is_sibling(following, member)
            parent = [lines.pop()] if is_alone else []
            lines += _block(expression, member["indent"], parent)
        else:
            lines += _replaced(line, expressions)
    return "\n".join([*lines, ""])


def _block(expression: Expression, indent: str, parent: list[str]) -> list[str]:
    """Return the lines that add the members; a parent without others is left out where there are none."""
    outer = parent[0][: len(parent[0]) - len(parent[0].lstrip())] if parent else indent
    return [
        f"{outer}{{{{- with {expression.text} }}}}",
        *parent,
        f"{indent}{{{{- toYaml . | nindent {len(indent)} }}}}",
        f"{outer}{{{{- end }}}}",
    ]


def _is_sibling(line: str, member: "re.Match[str]") -> bool:
    indent = len(member["indent"])
    if not line.startswith(" " * indent) or line[indent : indent + 1] in {"", " "}:
        return False
    return line.startswith("- ", indent) if member["item"] else line != "---"


def _replaced(line: str, expressions: "Mapping[str, Expression]") -> list[str]:
    if found := _SCALAR.match(line):
        expression = expressions[found["token"]]
        start = f"{found['indent']}{found['before']}"
        match expression.kind:
            case Kind.TEXT:
                return [f"{start}{{{{ {expression.text} | quote }}}}"]
            case Kind.NUMBER:
                return [f"{start}{{{{ {expression.text} | int }}}}"]
            case Kind.LINES:
                inner = len(found["indent"]) + _INDENT
                put = f"{' ' * inner}{{{{- {expression.text} | nindent {inner} }}}}"
                return [f"{start}|", put]
            case Kind.BLOCK:
                raise ValueError(f"{expression.text} is put in the place of a text: {line}")
    return [TOKEN.sub(lambda token: f"{{{{ {expressions[token[0]].text} }}}}", line)]
