"""Requests that went wrong on the way: valid ones, damaged by a seeded hand.

Damage is done to the structure (types swapped, keys dropped, doubled or renamed, values of any size)
and to the bytes (cut off, overwritten, in another encoding).
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from manifests import constants
from tests.support.reviews import (
    GPUDEVICE,
    GPUPOOL,
    NODE,
    a_device_object,
    a_node_object,
    a_pod_object,
    a_pool_object,
    a_review,
    stored,
)
from tests.support.scheduling import a_wire_pod, binding_args, extender_args, preemption_args
from tests.support.workloads import a_template, a_workload

_ANNOTATIONS: Final = {
    "gpu.deckhouse.io/reservation": '{"id":"r0","pool":"whole","node":"n1","devices":{"c":["GPU-1"]}}',
    "gpu.deckhouse.io/devices": '{"main":["GPU-1"]}',
}
_RULES: Final = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                ]
            }
        }
    },
    "initContainers": [
        {
            "name": "i",
            "image": "busybox",
            "restartPolicy": "Always",
            "resources": {"limits": {"gpu.deckhouse.io/whole": "1"}},
        }
    ],
    "schedulingGates": [{"name": "example.com/quota"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
}
_POD: Final = a_pod_object(metadata={"annotations": _ANNOTATIONS, "labels": {"a": "b"}})
_POOL: Final = a_pool_object(
    deviceSelector={"include": {"products": ["A100"], "minMemoryMiB": 1}, "exclude": {}},
    allocation={"mode": "TimeSlice", "slicesPerDevice": 4},
    access={"namespaceSelector": {"matchLabels": {"a": "b"}}, "serviceAccounts": ["a/b"]},
    reservation={"ttl": "2m", "whenExhausted": "Pend"},
    scheduling={"strategy": "Spread", "topologyKey": "zone", "taints": [{"key": "k"}]},
)
_CRON_JOB: Final = a_workload("CronJob", template=a_template("members"))
_CRON_JOBS: Final = {"group": "batch", "version": "v1", "kind": "CronJob"}

VALID: "Final[dict[str, tuple[bytes, ...]]]" = {
    constants.MUTATE_PODS_PATH: (
        a_review(a_pod_object()),
        a_review(_POD),
        a_review(a_pod_object(spec=_RULES)),
    ),
    constants.VALIDATE_PODS_PATH: (a_review(stored(_POD)),),
    constants.MUTATE_WORKLOADS_PATH: (
        a_review(_CRON_JOB, kind=_CRON_JOBS, groups=("researchers",)),
        a_review(_CRON_JOB, kind=_CRON_JOBS, operation="UPDATE", old=a_workload("CronJob")),
    ),
    constants.VALIDATE_POOLS_PATH: (
        a_review(_POOL, kind=GPUPOOL),
        a_review(_POOL, kind=GPUPOOL, operation="UPDATE", old=a_pool_object()),
    ),
    constants.MUTATE_DEVICES_PATH: (a_review(a_device_object(), kind=GPUDEVICE),),
    constants.VALIDATE_DEVICES_PATH: (a_review(a_device_object(), kind=GPUDEVICE),),
    constants.VALIDATE_NODES_PATH: (
        a_review(a_node_object("k"), kind=NODE, operation="UPDATE", old=a_node_object()),
    ),
    constants.FILTER_PATH: (extender_args(a_wire_pod(whole=1), "n1", "n2", "ghost"),),
    constants.PRIORITIZE_PATH: (extender_args(a_wire_pod(whole=1), "n1", "n2"),),
    constants.PREEMPT_PATH: (preemption_args(a_wire_pod(whole=1), n1=["uid-b"], n2=["uid-c"]),),
    constants.BIND_PATH: (binding_args(),),
}

_RAW: Final = "\ue000"
"""Begins a string that stands for JSON text which Python would not write."""
_AGAIN: Final = "\ue001"
"""Begins a key that is there already without it."""
_MARKED: Final = re.compile(r'"\\ue00[01](?:[^"\\]|\\.)*"')
_ODD_TEXT: Final = ("", "\x00", "\ud800", "a" * 300, "é/\u202e", "../..", "{{x}}", "%s%n", "null")
_ODD_KEYS: Final = ("", "gpu.deckhouse.io/whole", "gpu.deckhouse.io/", "__class__", "metadata")
_ODD_JSON: Final = (
    "NaN",
    "-Infinity",
    "1e999",
    "1" + "0" * 400,
    "-0",
    "18446744073709551616",
    "1.5",
    '"\\ud800"',
    "[" * 2000 + "]" * 2000,
    '{"a":' * 2000 + "1" + "}" * 2000,
    "[" * 5000,
    "tru",
    "'x'",
)


@dataclass(frozen=True)
class Sent:
    """One damaged request."""

    path: str
    body: bytes
    is_broken: bool
    """It is JSON no longer, whatever the reader."""


def damaged(seed: int, count: int) -> Iterator[Sent]:
    """Yield so many requests, to every path in turn; the same for the same seed."""
    rng = random.Random(seed)
    paths = list(VALID)
    for number in range(count):
        path = paths[number % len(paths)]
        body = rng.choice(VALID[path])
        if rng.random() < 0.3:
            damage = rng.choice(_TO_BYTES)
            yield Sent(path, damage(rng, body), damage is _cut_off)
        else:
            yield Sent(path, _restructured(rng, body), is_broken=False)


def _restructured(rng: random.Random, body: bytes) -> bytes:
    content: Any = json.loads(body)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if content:
            within, key = _somewhere(rng, content)
            rng.choice(_TO_STRUCTURE)(rng, within, key)
    return _written(content)


def _somewhere(rng: random.Random, within: Any) -> tuple[Any, Any]:
    """Choose a member of an object or list that has some, at any depth."""
    while True:
        key = rng.choice(list(within) if isinstance(within, dict) else range(len(within)))
        inner = within[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.25:
            return within, key
        within = inner


def _swap(rng: random.Random, within: Any, key: Any) -> None:
    within[key] = _odd_value(rng)


def _delete(_rng: random.Random, within: Any, key: Any) -> None:
    del within[key]


def _rename(rng: random.Random, within: Any, key: Any) -> None:
    if isinstance(within, dict):
        names = (key.lower(), key.upper(), key.title(), key + " ", rng.choice(_ODD_KEYS))
        within[rng.choice(names)] = within.pop(key)


def _wrap(rng: random.Random, within: Any, key: Any) -> None:
    within[key] = rng.choice(([within[key]], {"a": within[key]}, [[within[key]] * 2]))


def _double(rng: random.Random, within: Any, key: Any) -> None:
    if isinstance(within, list):
        within.extend([within[key]] * rng.choice((1, 50)))
    else:
        within[f"{_AGAIN}{key}"] = rng.choice((within[key], _odd_value(rng)))


def _add(rng: random.Random, within: Any, _key: Any) -> None:
    if isinstance(within, dict):
        within[rng.choice(_ODD_KEYS)] = _odd_value(rng)


_TO_STRUCTURE: "Final[tuple[Callable[[random.Random, Any, Any], None], ...]]" = (
    _swap,
    _swap,
    _delete,
    _rename,
    _wrap,
    _double,
    _add,
)


def _odd_value(rng: random.Random) -> Any:
    match rng.randrange(6):
        case 0:
            return rng.choice((None, True, False, [], {}, 0, -1, 2**31, 2**63, 2**64, -(2**63) - 1))
        case 1:
            return rng.choice(_ODD_TEXT)
        case 2:
            return _RAW + rng.choice(_ODD_JSON)
        case 3:
            return rng.choice(("1", "2", "64", "1e3", "1Ki", "0", "-1", "999999999999999999999"))
        case 4:
            return [_odd_value(rng) for _ in range(rng.randrange(4))]
        case _:
            return {rng.choice(_ODD_KEYS): _odd_value(rng)}


def _written(content: Any) -> bytes:
    """Return JSON text, with what is marked put in as it is, or as a key that occurs again."""
    return _MARKED.sub(_unmarked, json.dumps(content)).encode()


def _unmarked(found: re.Match[str]) -> str:
    text: str = json.loads(found[0])
    return text[1:] if text[0] == _RAW else json.dumps(text[1:])


def _cut_off(rng: random.Random, body: bytes) -> bytes:
    return body[: rng.randrange(len(body))]


def _overwrite(rng: random.Random, body: bytes) -> bytes:
    damaged = bytearray(body)
    for _ in range(rng.choice((1, 3, 20))):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def _insert(rng: random.Random, body: bytes) -> bytes:
    place = rng.randrange(len(body))
    return (
        body[:place]
        + rng.choice((b"\xff", b"\x00", b"\\", b'"', b"}{", b"//", body))
        + body[place:]
    )


def _encode_otherwise(rng: random.Random, body: bytes) -> bytes:
    return body.decode().encode(rng.choice(("utf-16", "utf-32", "utf-7", "cp037", "utf-8-sig")))


_TO_BYTES: "Final[tuple[Callable[[random.Random, bytes], bytes], ...]]" = (
    _cut_off,
    _overwrite,
    _insert,
    _encode_otherwise,
)
