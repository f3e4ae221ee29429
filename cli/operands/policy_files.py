"""ClusterPolicies, NVIDIADrivers, ConfigMaps and nodes from files, read as the API server would take them.

Fields that are null are dropped, since the API server drops them; fields that do not exist are refused. Rules of the
definitions (CEL) are not evaluated: what the states are built from says the same of the fields that matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import msgspec

from api import names
from api.crd.openapi import crd_schema
from api.field_errors import UNDECODABLE
from api.foreign.core import Node
from api.kinds.gpunodeinventory import GPUNodeInventory, NodeSystem
from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from api.text import listed, nearest
from cli.simulation.errors import BadInputError
from cli.simulation.object_files import read_objects
from operands.nvidia.label_change import LabelledNode
from operands.nvidia.node_software import UNKNOWN_SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.meta import Model

Json = dict[str, Any]
_Fields = Mapping[str, Sequence[str]]
"""Name of a field -> its paths in the kind."""
_Object = TypeVar("_Object", Node, GPUNodeInventory)
_Kind = TypeVar("_Kind", ClusterPolicy, NVIDIADriver)

STANDARD_INPUT: Final = Path("/dev/stdin")
_VERSIONS: Final = {"ClusterPolicy": "nvidia.com/v1", "NVIDIADriver": "nvidia.com/v1alpha1"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFiles:
    """What the files describe."""

    policies: "list[ClusterPolicy]" = field(default_factory=list)
    drivers: "list[NVIDIADriver]" = field(default_factory=list)
    config_keys: "dict[str, tuple[str, ...]]" = field(default_factory=dict)
    """ConfigMap -> its keys."""


def read_policies(files: "Sequence[Path]") -> PolicyFiles:
    """Read the objects that describe node software; others are ignored.

    Raises:
        BadInputError: a file cannot be read, or has no ClusterPolicy that the API server would take.
    """
    found = PolicyFiles()
    for file in files:
        for item in read_objects(file):
            match item["kind"]:
                case "ClusterPolicy":
                    found.policies.append(_decoded(file, item, ClusterPolicy))
                case "NVIDIADriver":
                    found.drivers.append(_decoded(file, item, NVIDIADriver))
                case "ConfigMap":
                    data = {**(item.get("data") or {}), **(item.get("binaryData") or {})}
                    found.config_keys[_name(item)] = tuple(sorted(data))
                case _:
                    pass
    if not found.policies:
        raise BadInputError(
            f"{listed(map(str, files))}: there is no ClusterPolicy; `kubectl get clusterpolicies,nvidiadrivers -o yaml`"
            " writes such a file"
        )
    return found


def read_nodes(file: Path) -> dict[str, LabelledNode]:
    """Read the nodes of a cluster, by name, and what their GPUNodeInventories say of their systems.

    Raises:
        BadInputError: the file cannot be read, or has no Node.
    """
    found: dict[str, LabelledNode] = {}
    systems: dict[str, NodeSystem] = {}
    for item in read_objects(file):
        if item["kind"] == "Node":
            found[_name(item)] = _labelled(file, item)
        elif item["kind"] == GPUNodeInventory.__name__:
            systems[_name(item)] = _converted(file, item, GPUNodeInventory).status.system
    if not found:
        raise BadInputError(
            f"{file}: there is no Node; `kubectl get nodes -o yaml` writes such a file"
        )
    return {
        name: replace(node, system=systems.get(name, UNKNOWN_SYSTEM))
        for name, node in found.items()
    }


def _converted(file: Path, item: Json, kind: "type[_Object]") -> "_Object":
    try:
        return msgspec.convert(without_nulls(item), kind)
    except UNDECODABLE as error:
        text = f"{file}: {item['kind']} {_name(item)} cannot be decoded: {error}"
        raise BadInputError(text) from error


def _labelled(file: Path, item: Json) -> LabelledNode:
    node = _converted(file, item, Node)
    labels = node.metadata.labels or {}
    annotations = node.metadata.annotations or {}
    return LabelledNode(
        labels=labels,
        recorded=annotations.get(names.DEPLOY_LABELS_ANNOTATION, ""),
        upgrade_enabled=annotations.get(names.UPGRADE_ENABLED_ANNOTATION, ""),
        runtime_version=node.status.node_info.container_runtime_version,
        kernel_version=node.status.node_info.kernel_version,
        is_in_pool=any(key.startswith(names.POOL_NODE_LABEL_PREFIX) for key in labels),
    )


def _decoded(file: Path, item: Json, kind: "type[_Kind]") -> "_Kind":
    """Return the object without its status, which decides nothing.

    Raises:
        BadInputError: the API server would refuse it.
    """
    named = f"{file}: {item['kind']} {_name(item) or 'without a name'}"
    version = _VERSIONS[item["kind"]]
    if item.get("apiVersion") != version:
        raise BadInputError(f"{named}: apiVersion is {item.get('apiVersion')}: set it to {version}")
    if not _name(item):
        raise BadInputError(f"{named}: set metadata.name")
    sent = without_nulls({key: value for key, value in item.items() if key != "status"})
    if faults := list(field_faults(kind, sent)):
        raise BadInputError(f"{named}: {'; '.join(faults)}")
    try:
        return msgspec.convert(sent, kind)
    except UNDECODABLE as error:
        raise BadInputError(f"{named} cannot be decoded: {error}") from error


def field_faults(kind: "type[Model]", item: Json) -> "Iterator[str]":
    """Yield what the API server says of fields that the kind does not have, and of those that it lacks."""
    schema = crd_schema(kind)
    fields: dict[str, list[str]] = {}
    for path in _paths(schema):
        fields.setdefault(path.rpartition(".")[2], []).append(path)
    yield from _faults(schema, item, path="", fields=fields)


def _paths(schema: Json, prefix: str = "") -> "Iterator[str]":
    """Yield the paths of the fields, but for those in lists."""
    for name, field_schema in schema.get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from _paths(field_schema, f"{prefix}{name}.")


def _faults(schema: Json, value: object, *, path: str, fields: _Fields) -> "Iterator[str]":
    if schema.get("x-kubernetes-preserve-unknown-fields") or path == "metadata":
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(
                schema.get("items", {}), item, path=f"{path}[{index}]", fields=fields
            )
    if isinstance(value, dict) and schema.get("type") == "object":
        prefix = f"{path}." if path else ""
        yield from _faults_of_object(schema, value, prefix=prefix, fields=fields)


def _faults_of_object(
    schema: Json, value: Json, *, prefix: str, fields: _Fields
) -> "Iterator[str]":
    fields_by_name, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value and "default" not in fields_by_name.get(name, {}):
            is_object = fields_by_name[name].get("type") == "object" and not fields_by_name[
                name
            ].get("required")
            cure = f": write `{name}: {{}}`" if is_object else ""
            yield f"{prefix}{name}: Required value{cure}"
    for name, item in value.items():
        if name in fields_by_name:
            yield from _faults(fields_by_name[name], item, path=f"{prefix}{name}", fields=fields)
        elif others is None:
            yield f'unknown field "{prefix}{name}"{_hint(str(name), fields_by_name, fields)}'
        elif isinstance(others, dict):
            yield from _faults(others, item, path=f"{prefix}{name}", fields=fields)


def _hint(name: str, fields_by_name: Json, fields: _Fields) -> str:
    """Return where the field is, if only one other object has it, what is called nearly so, or that it has to go."""
    elsewhere = fields.get(name, [])
    if len(elsewhere) == 1:
        return f", it is in {elsewhere[0].rpartition('.')[0]}"
    meant = nearest(name, fields_by_name)
    return (
        f", did you mean {meant}?" if meant else ": remove it, the GPU Operator has no such field"
    )


def without_nulls(value: Any) -> Any:  # noqa: ANN401  # JSON
    """Return JSON without the fields that are null; an item of a list stays."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _name(item: Json) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
