"""A workload as a YAML or JSON file: groups of pods with arrival and duration, or Kubernetes objects with pods.

docs/placement.md describes the format. A group is one entry of `pods`; `count` and `every` repeat it.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import yaml

from api.quantity import parse_decimal, parse_duration_s
from api.text import nearest, truncate
from cli.simulation.errors import BadInputError
from cli.simulation.object_files import read_objects
from cli.simulation.pod_file import pod_of_object, pods_of_object
from pool.demand import MAX_UNITS
from pool.placement.simulation.model import SimulatedPod

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal
    from pathlib import Path

    from cli.simulation.object_files import Object

_MOST_PODS: Final = 1_000_000
_MIB: Final = 2**20
_MOST: Final = 10**15
"""Greatest number of CPUs and bytes; no node has as many."""

_Count = Annotated[int, msgspec.Meta(ge=1, le=_MOST_PODS)]


class PodGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Equal pods."""

    name: str
    namespace: str = "default"
    pool: str = ""
    """Empty: the pods ask for no units."""
    units: Annotated[int, msgspec.Meta(ge=0, le=MAX_UNITS)] = 0
    cpu: str | int | float = 0
    memory: str | int = 0
    models: tuple[str, ...] = ()
    """Products of devices that they take; all if left out."""
    count: _Count = 1
    arrival: str | int | float = 0
    """Arrival of the first pod: seconds, or a duration such as 1h30m."""
    every: str | int | float = 0
    """Time between two pods of the group; 0: together."""
    duration: str | int | float | None = None
    """Time from placement to end; left out: a pod never ends."""
    template: dict[str, Any] | None = None
    """Pod template, as in a Job, in place of pool, units, cpu, memory and models."""


class WorkloadFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pods: tuple[PodGroup, ...]


@dataclass(frozen=True, slots=True)
class ParsedWorkload:
    """Pods in the order of their arrival."""

    pods: tuple[SimulatedPod, ...]
    objects: "tuple[Object | None, ...]"
    """Objects by pod: the object whose pod it is, where there is one. Then its sizes are in that alone."""


def read_workload(file: "Path") -> ParsedWorkload:
    """Read a workload; pods are in the order of their arrival, and of the file where they arrive together.

    Raises:
        BadInputError: it cannot be read; the group and the field are named.
    """
    try:
        documents: list[Any] = list(yaml.safe_load_all(file.read_bytes()))
        if any(isinstance(document, dict) and "kind" in document for document in documents):
            return _of_objects(file)
        content = documents[0] if len(documents) == 1 else None
        groups = msgspec.convert(content, WorkloadFile).pods
    except OSError as error:
        raise BadInputError(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        error_text = " ".join(str(error).split())
        raise BadInputError(f"{file} is no YAML: {truncate(error_text)}") from error
    except msgspec.ValidationError as error:
        raise BadInputError(f"{file} is no workload: {_with_suggestion(str(error))}") from error
    _check_number(sum(group.count for group in groups), file)
    pods = [
        (pod, None if group.template is None else _object_of(group))
        for position, group in enumerate(groups)
        for pod in _pods_of(group, f"{file}: pods[{position}] ({group.name})")
    ]
    pods.sort(key=lambda pair: pair[0].arrival_s)
    return ParsedWorkload(tuple(pod for pod, _ in pods), tuple(item for _, item in pods))


def _of_objects(file: "Path") -> ParsedWorkload:
    """Return the pods of Kubernetes objects: all arrive together, and never end."""
    pods: list[SimulatedPod] = []
    objects: list[Object] = []
    for position, item in enumerate(read_objects(file), start=1):
        asked = pod_of_object(item, where=f"{file}: object {position}")
        count = 0 if asked is None else pods_of_object(item)
        _check_number(len(pods) + count + 1, file)
        for number in range(count):
            suffix = f"-{number}" if count > 1 else ""
            pods.append(SimulatedPod(f"{asked.ref}{suffix}" if asked is not None else ""))
            objects.append(item)
    _check_number(len(pods), file)
    return ParsedWorkload(tuple(pods), tuple(objects))


def _object_of(group: PodGroup) -> "Object":
    return {
        "kind": "PodTemplate",
        "metadata": {"name": group.name, "namespace": group.namespace},
        "spec": {"template": group.template},
    }


def _check_number(pods: int, file: "Path") -> None:
    if not 0 < pods <= _MOST_PODS:
        raise BadInputError(f"{file} has {pods} pods; a workload has 1 to {_MOST_PODS}")


def _pods_of(group: PodGroup, where: str) -> "Iterator[SimulatedPod]":
    if (group.units > 0) != bool(group.pool):
        raise BadInputError(f"{where}: give pool and units, or neither")
    if group.template is not None and (group.pool or group.cpu or group.memory or group.models):
        raise BadInputError(f"{where}: give a template, or pool, units, cpu, memory and models")
    arrival, every = (
        _seconds(value, f"{where}.{name}")
        for name, value in (("arrival", group.arrival), ("every", group.every))
    )
    cpu = math.ceil(_amount(group.cpu, f"{where}.cpu") * 1000)
    memory = math.ceil(_amount(group.memory, f"{where}.memory") / _MIB)
    duration = None if group.duration is None else _seconds(group.duration, f"{where}.duration")
    for number in range(group.count):
        suffix = f"-{number}" if group.count > 1 else ""
        yield SimulatedPod(
            name=f"{group.namespace}/{group.name}{suffix}",
            pool=group.pool,
            units=group.units,
            cpu_milli=cpu,
            memory_mib=memory,
            models=group.models,
            arrival_s=arrival + number * every,
            duration_s=duration,
        )


def _seconds(value: str | float, where: str) -> float:
    try:
        seconds = float(parse_duration_s(value)) if isinstance(value, str) else float(value)
    except ValueError as error:
        raise BadInputError(f"{where}: {error}") from error
    if not 0 <= seconds < float("inf"):
        raise BadInputError(f"{where}: {value} is no time of 0 or more")
    return seconds


def _amount(value: str | float, where: str) -> "Decimal":
    try:
        amount = parse_decimal(str(value))
    except ValueError as error:
        raise BadInputError(f"{where}: {error}") from error
    if not 0 <= amount < _MOST:
        raise BadInputError(f"{where}: {value} is not between 0 and 1P")
    return amount


def _with_suggestion(message: str) -> str:
    """Add the nearest field to msgspec's message about an unknown one."""
    field = message.partition("unknown field `")[2].partition("`")[0]
    fields = [item.encode_name for item in msgspec.structs.fields(PodGroup)]
    meant = nearest(field, fields) if field else None
    return f"{message}; did you mean {meant}?" if meant else message
