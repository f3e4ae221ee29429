"""Whatever text others leave for us, each decoder says that it makes no sense, and nothing else happens.

Nested JSON is special: msgspec raises RecursionError for it, also in a field that no type has.
"""

import asyncio
import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from admission.object_decoder import ObjectDecoder
from admission.pods.request import POD_KIND
from admission.review import decode_review
from agent.errors import BadPoolConfigError
from agent.inventory.node_files import NodeFiles, NodePaths
from agent.plugin.devices_file import DevicesFile
from agent.plugin.pool_config import read_config
from agent.problems.file_reader import read_problem
from agent.problems.registry import ProblemRegistry
from api.annotations import decode_devices, decode_reservation
from api.foreign.core import Pod
from api.names import DEVICES_ANNOTATION, RESERVATION_ANNOTATION
from api.nodefiles.node_devices_file import DEVICES_FILE
from api.nodefiles.poolconfig import CONFIG_KEY, PACKED_CONFIG_KEY
from api.quantity import parse_count, parse_duration_s
from inventory.discovery import parsing as values
from kube.decoding import decode, decode_items, decode_page, identity_of
from kube.errors import Undecodable, from_status
from kube.resources import PODS
from pool.facts import pod_facts
from pool.model import PodFacts
from scheduler import codec as wire
from tests.support.bound_pods import RESOURCE

_BRACKETS = "[" * 20_000 + "]" * 20_000
VALUES = {
    "nested": _BRACKETS,
    "nested in a field that nobody asked for": '{"version":"v1","x":' + _BRACKETS + "}",
    "nested in a list": '[{"x":' + _BRACKETS + "}]",
    "a huge text": json.dumps({"id": "x" * 3_000_000, "version": "x" * 3_000_000}),
    "a huge list": "[" + "0," * 1_000_000 + "0]",
    "a huge number": "9" * 1_000_000,
    "a huge exponent": "1e999999999",
    "null": "null",
    "a number": "7",
    "a text": '"GPU-1"',
    "fields of other types": '{"id":{},"version":[],"node":7,"devices":{},"metadata":[],"items":3}',
    "a list of other types": '[{"peer":1,"uuid":[]},[],null]',
    "half of a surrogate pair": '{"id":"\\ud800","version":"\\ud800"}',
    "cut off": '{"id":"r1',
    "nothing": "",
    "no text": "\x00\x1b",
}


def a_pod_with(text: str) -> PodFacts | None:
    """What a pod's projection makes of our annotations; bound, and with units that nobody knows."""
    body = {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u",
            "annotations": {DEVICES_ANNOTATION: text, RESERVATION_ANNOTATION: text},
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "resources": {"limits": {RESOURCE: "1"}}}],
        },
    }
    facts = pod_facts(msgspec.convert(body, Pod))
    assert facts is not None
    assert (facts.node, facts.demand.units, facts.devices) == ("n1", 1, None)
    return None if facts.reservation is None else facts


def items_of(text: str) -> list[object] | None:
    """What a list makes of one odd object beside a good one."""
    raw = [msgspec.Raw(text.encode()), msgspec.Raw(b'{"metadata":{"name":"good"}}')]
    found, undecodable = asyncio.run(
        decode_items(raw, Pod, resource=PODS, project=lambda pod: pod.metadata.name)
    )
    assert found[-1:] == ["good"]
    return None if undecodable else list(found)


def a_file(text: str, read: Callable[[Path], object], name: str, folder: Path) -> object:
    (folder / name).write_bytes(text.encode())
    return read(folder)


def pool_config(folder: Path) -> object:
    return read_config(folder / CONFIG_KEY)


def node_file(folder: Path) -> object:
    file = DevicesFile(folder)
    assert file.reload()
    return file.devices


def remembered_devices(folder: Path) -> object:
    return NodeFiles(NodePaths(run_directory=folder), ProblemRegistry()).published_devices()


def packed_config(folder: Path) -> object:
    plain = folder / "plain"
    (folder / PACKED_CONFIG_KEY).write_bytes(gzip.compress(plain.read_bytes()))
    return read_config(folder / CONFIG_KEY)


def garbled_config(folder: Path) -> object:
    plain = (folder / "plain").read_bytes()
    (folder / PACKED_CONFIG_KEY).write_bytes(gzip.compress(b"")[:10] + plain)
    return read_config(folder / CONFIG_KEY)


def a_value(name: str, text: str, _: Path) -> object:
    """What the inventory makes of a value that a node's tools wrote."""
    return getattr(values, name)(text)


READERS: dict[str, Callable[[str, Path], object]] = {
    "reservation": lambda text, _: decode_reservation(text),
    "devices": lambda text, _: decode_devices(text),
    "pod": lambda text, _: a_pod_with(text),
    "count": lambda text, _: parse_count(text),
    "duration": lambda text, _: parse_duration_s(text),
    **{
        name: partial(a_value, name)
        for name in (
            *("address", "compute_capability", "count", "flag", "hex_id", "links", "memory_mib"),
            *("numa_node", "partitions", "pci_class", "product", "profile", "profiles", "uuid"),
            *("version", "word"),
        )
    },
    "answer": lambda text, _: decode(text.encode(), Pod, PODS).metadata.name or None,
    "page": lambda text, _: decode_page(text.encode(), PODS),
    "items": lambda text, _: items_of(text),
    "identity": lambda text, _: (
        any(identity_of(PODS, text.encode(), namespace=None, name=None)) or None
    ),
    "status": lambda text, _: from_status(500, text.encode()).reason or None,
    "review": lambda text, _: decode_review(text.encode(), POD_KIND),
    "object": lambda text, _: ObjectDecoder(Pod, POD_KIND).decode(msgspec.Raw(text.encode())),
    "candidates": lambda text, _: wire.decode_candidates(text.encode()),
    "preemption": lambda text, _: wire.decode_preemption(text.encode()),
    "bind": lambda text, _: wire.decode_bind(text.encode()),
    "names": lambda text, _: wire.decode_names(text.encode()),
    "pod before names": lambda text, _: wire.decode_pod_before_names(text.encode()),
    "pool's configuration": lambda text, at: a_file(text, pool_config, CONFIG_KEY, at),
    "packed configuration": lambda text, at: a_file(text, packed_config, "plain", at),
    "garbled configuration": lambda text, at: a_file(text, garbled_config, "plain", at),
    "node's GPUs": lambda text, at: a_file(text, node_file, DEVICES_FILE, at),
    "GPUs before a restart": lambda text, at: a_file(text, remembered_devices, DEVICES_FILE, at),
    "plugin's problem": lambda text, at: a_file(
        text, lambda item: read_problem(item / "p"), "p", at
    ),
}
REFUSALS = (Undecodable, BadPoolConfigError, ValueError)
"""What a decoder may raise by its contract; each caller of these has a case for it."""


@pytest.mark.parametrize("reader", READERS)
def test_odd_value_makes_no_sense_and_no_trouble(reader: str, tmp_path: Path) -> None:
    troubles = {}
    for number, (name, value) in enumerate(VALUES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            READERS[reader](value, folder)
        except REFUSALS:
            pass
        except Exception as error:  # noqa: BLE001  # what is raised is what is looked for
            troubles[name] = repr(error)
    assert troubles == {}
