"""Protocol buffers without generated code: messages are declared as data, and built at import.

Generated code is bound to the versions of protobuf and grpcio that it was generated with. Unknown fields of
newer peers are skipped, as proto3 wants it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TEXT: Final = "string"
FLAG: Final = "bool"
INT32: Final = "int32"
INT64: Final = "int64"
TEXT_MAP: Final = "map<string, string>"

_SCALARS: Final = {
    TEXT: FieldDescriptorProto.TYPE_STRING,
    FLAG: FieldDescriptorProto.TYPE_BOOL,
    INT32: FieldDescriptorProto.TYPE_INT32,
    INT64: FieldDescriptorProto.TYPE_INT64,
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message."""

    number: int
    name: str
    type: str
    """A scalar's, a map's, or the name of another message of the package."""
    is_list: bool = False


@final
class Messages:
    """The messages of one package."""

    def __init__(self, package: str, declared: "Mapping[str, tuple[Field, ...]]") -> None:
        """Build the descriptors, in a pool of their own."""
        file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for name, fields in declared.items():
            message = file.message_type.add(name=name)
            for one in fields:
                _add_field(message, one, package)
        pool = DescriptorPool()
        pool.Add(file)
        self._classes: dict[str, Callable[[], Any]] = {
            name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
            for name in declared
        }

    def new(self, name: str) -> Any:  # noqa: ANN401  # its fields are known at run time only
        """Return an empty message."""
        return self._classes[name]()

    def read(self, name: str, content: bytes) -> Any:  # noqa: ANN401  # as above
        """Read a message.

        Raises:
            google.protobuf.message.DecodeError: these bytes are none.
        """
        message = self._classes[name]()
        message.ParseFromString(content)
        return message


def _add_field(message: DescriptorProto, one: Field, package: str) -> None:
    repeated, single = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_OPTIONAL
    is_repeated = one.is_list or one.type == TEXT_MAP
    entry = message.field.add(
        name=one.name, number=one.number, label=repeated if is_repeated else single
    )
    scalar = _SCALARS.get(one.type)
    if scalar is not None:
        entry.type = scalar
        return
    entry.type = FieldDescriptorProto.TYPE_MESSAGE
    entry.type_name = f".{package}.{one.type}"
    if one.type == TEXT_MAP:
        # On the wire a map is a list of pairs; the option is what makes it a map.
        pair = message.nested_type.add(name=f"{one.name.capitalize()}Entry")
        pair.options.map_entry = True
        for number, name in enumerate(("key", "value"), start=1):
            pair.field.add(name=name, number=number, type=_SCALARS[TEXT], label=single)
        entry.type_name = f".{package}.{message.name}.{pair.name}"
