"""Settings as they were given: by a file, by variables, by flags. Each value knows where it is from.

Nothing here is validated but names: what the model says of the values is explained by `GivenSettings.explain`, in the
words of the place where the value was written.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import yaml

from api.text import nearest, truncate
from kube.errors import one_line
from server.setting_fields import VARIABLE_PREFIX, SettingField, ValueForm

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_OF_KUBERNETES: Final = re.compile(
    r"(.+_)?SERVICE_(HOST|PORT(_.+)?)|(.+_)?PORT_\d+_(TCP|UDP|SCTP)(_.+)?"
)
"""Variables that kubelet sets in every pod of the namespace for Services whose names begin as our settings do."""
_PORT_OF_KUBERNETES: Final = re.compile(r"(tcp|udp|sctp)://")
_MAX_QUOTED: Final = 60
"""Characters of a value that a complaint repeats."""

Location = tuple[str | int, ...]


@final
class GivenSettings:
    """Values and their origins; a later source overrides an earlier one."""

    def __init__(
        self, fields: Sequence[SettingField], retired: Mapping[str, str] | None = None
    ) -> None:
        """Take the model's fields, and what to do in place of settings and sections that are none any more."""
        self._retired = retired or {}
        self._fields = {field.path: field for field in fields}
        self._origins: dict[Location, str] = {}
        # path of a value -> what it is called where it was written
        self.values: dict[str, Any] = {}
        self.faults: list[str] = []

    def read_file(self, file: Path) -> None:
        """Take the settings of a YAML file."""
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except OSError as error:
            self._add_fault(f"settings file {file} cannot be read: {error.strerror}")
        except UnicodeDecodeError as error:
            self._add_fault(f"settings file {file} is not UTF-8: {error}")
        except yaml.YAMLError as error:
            self._add_fault(f"settings file {file} is not YAML: {one_line(str(error))}")
        else:
            if isinstance(content, dict):
                self.take(content, origin=f"{file}: ")
            elif content is not None:
                self._add_fault(f"settings file {file} holds no mapping of settings")

    def take(self, content: Mapping[Any, Any], *, origin: str) -> None:
        """Take settings as they are nested in a file; `origin` comes before their names."""
        self._put_all(content, (), origin)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        """Take the variables with our prefix."""
        fields_by_variable = {field.variable: field for field in self._fields.values()}
        for name, text in sorted(environ.items()):
            if not name.upper().startswith(VARIABLE_PREFIX):
                continue
            field = fields_by_variable.get(name.upper())
            if field is not None and not _is_of_kubernetes(name, text):
                self._put_text(field, text, origin=name)
            elif not _is_of_kubernetes(name, text):
                path = name.removeprefix(VARIABLE_PREFIX).lower().split("__")
                self._add_fault(
                    f"{name}: {self._unknown(path, nearest(name.upper(), fields_by_variable))}"
                )

    def read_flags(self, arguments: Sequence[str]) -> None:
        """Take flags: `--listen.port 9443`, `--listen.port=9443`; words are joined by `-` or `_`."""
        fields_by_flag = {field.flag: field for field in self._fields.values()}
        for given, text in self._pairs(arguments):
            flag = given.replace("_", "-")
            if flag not in fields_by_flag:
                path = flag.removeprefix("--").replace("-", "_").split(".")
                if advice := self._retirement(path):
                    self._add_fault(f"{given}: {advice}")
                else:
                    meant = self._nearest(*path)
                    self._add_fault(f"no such flag {given}{_hint(meant and meant.flag)}")
            elif text is None:
                self._add_fault(f"{given} needs a value: {fields_by_flag[flag].expects}")
            else:
                self._put_text(fields_by_flag[flag], text, origin=given)

    def explain(self, errors: "Sequence[ErrorDetails]") -> list[str]:
        """Return the model's errors in the words of the sources."""
        return [self._explanation(error) for error in errors]

    def _pairs(self, arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
        """Join flags and values; a value that begins with `--` needs the form with `=`."""
        left = list(reversed(arguments))
        while left:
            flag, equals, text = left.pop().partition("=")
            if not flag.startswith("--"):
                self._add_fault(f"unexpected argument {flag}{equals}{text}")
            elif equals:
                yield flag, text
            else:
                yield flag, left.pop() if left and not left[-1].startswith("--") else None

    def _put_all(self, content: Mapping[Any, Any], path: tuple[str, ...], origin: str) -> None:
        for key, value in content.items():
            inner = (*path, str(key))
            field = self._fields.get(inner)
            if field is not None and field.is_section and isinstance(value, Mapping):
                self._put_all(value, inner, origin)
            elif field is None or not field.is_section or value is not None:
                # A section without content is no value.
                self._put(inner, value, f"{origin}{'.'.join(inner)}")

    def _put_text(self, field: SettingField, text: str, *, origin: str) -> None:
        try:
            value = _value_of(field, text)
        except ValueError as error:
            self._add_fault(f"{origin}: {error}; expected: {field.expects} as JSON")
            return
        if field.form is ValueForm.LIST and self._origins.get(field.path) == origin:
            # The flag again: each adds to the list.
            value = [*self._value(field.path), *value]
        if field.is_section and isinstance(value, dict):
            self._put_all(value, field.path, f"{origin}: ")
        else:
            self._put(field.path, value, origin)

    def _put(self, path: tuple[str, ...], value: object, origin: str) -> None:
        *sections, name = path
        place = self.values
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                return  # an earlier source has something else there, which the model will refuse
        place[name] = value
        self._origins[path] = origin

    def _value(self, path: tuple[str, ...]) -> Any:  # noqa: ANN401  # whatever was given
        value: Any = self.values
        for part in path:
            value = value[part]
        return value

    def _explanation(self, error: "ErrorDetails") -> str:
        location, message = error["loc"], error["msg"].removeprefix("Value error, ")
        field = self._field(location)
        origin = self._origin(location)
        is_unknown = error["type"] == "extra_forbidden"
        if field is not None and field.form is ValueForm.JSON and not field.is_section:
            within = "".join(f"{part}: " for part in location[len(field.path) :])
            return f"{origin}: {within}{'no such key' if is_unknown else message}"
        if is_unknown:
            path = [str(part) for part in location]
            meant = self._nearest(*path)
            return f"{origin}: {self._unknown(path, meant and meant.name)}"
        if error["type"] == "value_error" and (field is None or field.is_section):
            return f"{message}{self._named_in(message)}"
        if field is None or error["type"] == "value_error":
            return f"{origin}: {message}"
        given = error["input"] if isinstance(error["input"], Mapping) else ()
        advice = {str(key): self._retirement([*field.path, str(key)]) for key in given}
        if advice and all(advice.values()):
            # The value was a section before.
            return "; ".join(f"{origin}.{key}: {text}" for key, text in advice.items())
        value = truncate(repr(error["input"]), _MAX_QUOTED)
        return f"{origin} is {value}; expected: {field.expects}"

    def _field(self, location: Location) -> SettingField | None:
        """Return the setting at the place, or around it: a fault may be within a list."""
        for end in range(len(location), 0, -1):
            field = self._fields.get(tuple(map(str, location[:end])))
            if field is not None:
                return field
        return None

    def _origin(self, location: Location) -> str:
        for end in range(len(location), 0, -1):
            if location[:end] in self._origins:
                return self._origins[location[:end]]
        return ".".join(map(str, location))

    def _unknown(self, path: Sequence[str], meant: str | None) -> str:
        return self._retirement(path) or f"no such setting{_hint(meant)}"

    def _retirement(self, path: Sequence[str]) -> str | None:
        names = (".".join(path[:end]) for end in range(1, len(path) + 1))
        advice = next((self._retired[name] for name in names if name in self._retired), None)
        return None if advice is None else f"no setting any more: {advice}"

    def _nearest(self, *path: str) -> SettingField | None:
        """Return the setting that an unknown name may stand for: of this word elsewhere, or nearly of this name."""
        fields = self._fields.values()
        elsewhere = [field for field in fields if field.path[-1] == path[-1]]
        beside = {field.name: field for field in fields if field.path[:-1] == path[:-1]}
        everywhere = {field.name: field for field in fields}
        name = ".".join(path)
        return (
            next(iter(elsewhere), None)
            or beside.get(nearest(name, beside) or "")
            or everywhere.get(nearest(name, everywhere) or "")
        )

    def _named_in(self, message: str) -> str:
        """Return where the settings are from that a message names."""
        named = [
            origin
            for path, origin in self._origins.items()
            if re.search(rf"\b{re.escape('.'.join(map(str, path)))}\b", message)
        ]
        return f" ({', '.join(named)})" if named else ""

    def _add_fault(self, text: str) -> None:
        self.faults.append(text)


def _value_of(field: SettingField, text: str) -> Any:  # noqa: ANN401  # the model validates it
    """Return the value that a text stands for, as far as its form says.

    Raises:
        ValueError: it must be JSON, or pairs, and is not; the text says what is wrong.
    """
    if field.is_optional and not text:
        return None
    if field.form is ValueForm.TEXT:
        return text
    is_json = field.form is ValueForm.JSON or text.lstrip().startswith(("[", "{"))
    if is_json:
        return json.loads(text)
    words = [word.strip() for word in text.split(",") if word.strip()]
    if field.form is ValueForm.LIST:
        return words
    pairs = [word.partition("=") for word in words]
    if bad := [key for key, equals, _ in pairs if not equals]:
        raise ValueError(f"{bad[0]!r} is no key=value")
    return {key: value for key, _, value in pairs}


def _hint(meant: str | None) -> str:
    return f"; did you mean {meant}?" if meant else ""


def _is_of_kubernetes(name: str, text: str) -> bool:
    remaining = name.upper().removeprefix(VARIABLE_PREFIX)
    return bool(_OF_KUBERNETES.fullmatch(remaining)) or (
        remaining.endswith("PORT") and bool(_PORT_OF_KUBERNETES.match(text))
    )
