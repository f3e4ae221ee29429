"""The pods that cost most of those that were tried: each field that our code reads, filled as far as it goes.

Found by filling one field after the other, and several at a time, up to what the API server can send and to
just within each bound. Bodies are reviews as it sends them: 3 MB is its limit for a request.
"""

import random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from admission.object_decoder import MAX_VALUES
from admission.pods.size_limits import MAX_EXPRESSIONS
from pool.demand import MAX_CONTAINERS, MAX_LISTED_UNITS
from tests.support.reviews import AdmissionSetup, a_pod_object

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_BYTES: Final = 3_000_000
NODES: Final = 1_000
"""Of the pool `whole`; the nodes of `slices` have 16 devices of 64 slices, as large as there are."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

Pod = dict[str, Any]


def a_large_setup() -> AdmissionSetup:
    """A control plane with many nodes, and a few of the largest."""
    setup = AdmissionSetup()
    setup.add_pool("whole")
    setup.add_pool("slices", allocation={"mode": "TimeSlice", "slicesPerDevice": 64})
    setup.allocate("slices", mode="TimeSlice", slicesPerDevice=64)
    for number in range(NODES):
        setup.add_node(f"n{number}", devices=1, labels={"zone": str(number % 3), "a": str(number)})
    for number in range(4):
        setup.add_node(f"s{number}", devices=16, pool="slices", labels={"a": "5"})
    return setup


def _many(item: Any, count: int | None = None) -> list[Any]:
    """So many of them, or as many as a request has capacity for."""
    return [item] * (count or REQUEST_BYTES // (len(msgspec.json.encode(item)) + 1))


def _keys(count: int, value: Any = "") -> dict[str, Any]:
    return {f"key{number:x}": value for number in range(count)}


def _with_terms(*terms: Any) -> Pod:
    required = {REQUIRED: {"nodeSelectorTerms": list(terms)}}
    return a_pod_object(spec={"affinity": {"nodeAffinity": required}})


def _term(operator: str, values: list[str], count: int = 1, key: str = "a") -> Any:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": values}] * count}


def _numbers(count: int) -> list[str]:
    return [f"{number:x}" for number in range(count)]


def _init(count: int, units: int, **more: Any) -> list[Any]:
    limits = {"gpu.deckhouse.io/slices": str(units), **more}
    return [
        {"name": f"i{number}", "resources": {"limits": limits, "requests": limits}}
        for number in range(count)
    ]


def _handing_on(count: int, units: int) -> Pod:
    return a_pod_object(units, "slices", spec={"initContainers": _init(count, units)})


_FULL: Final = MAX_VALUES // 2 - 10
"""Pairs in a field that is just within its bound."""

WORST: "Final[dict[str, Callable[[], Pod]]]" = {
    "250,000 names in one In": lambda: _with_terms(_term("In", _numbers(250_000))),
    "9,000 names in two": lambda: _with_terms(_term("NotIn", _numbers(9_000), count=2)),
    "500 numbers of 4,200 digits": lambda: _with_terms(_term("Lt", ["9" * 4_200], count=500)),
    "as many numbers as there may be": lambda: _with_terms(
        _term("Gt", ["-1"], count=MAX_EXPRESSIONS - 1), _term("Exists", [], key="nowhere")
    ),
    "as many alternatives": lambda: _with_terms(*[_term("Lt", ["-1"])] * MAX_EXPRESSIONS),
    "as many alternatives of nodes": lambda: _with_terms(
        *[{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}]
        * MAX_EXPRESSIONS
    ),
    "a million alternatives": lambda: _with_terms(*_many({})),
    "a million tolerations": lambda: a_pod_object(spec={"tolerations": _many({})}),
    "5,000 tolerations": lambda: a_pod_object(spec={"tolerations": _many({"key": "a"}, _FULL)}),
    "a million constraints": lambda: a_pod_object(spec={"topologySpreadConstraints": _many({})}),
    "300,000 labels": lambda: a_pod_object(metadata={"labels": _keys(300_000)}),
    "5,000 labels": lambda: a_pod_object(metadata={"labels": _keys(_FULL)}),
    "300,000 annotations": lambda: a_pod_object(metadata={"annotations": _keys(300_000)}),
    "14,000 annotations": lambda: a_pod_object(metadata={"annotations": _keys(14_000)}),
    "annotations of 3 MB": lambda: a_pod_object(metadata={"annotations": {"a": "x" * 3_000_000}}),
    "a million owners": lambda: a_pod_object(metadata={"ownerReferences": _many({})}),
    "300,000 selected labels": lambda: a_pod_object(spec={"nodeSelector": _keys(300_000)}),
    "a million containers": lambda: a_pod_object(spec={"initContainers": _many({})}),
    "29,000 containers": lambda: a_pod_object(spec={"initContainers": _many({}, 29_000)}),
    "10,000 containers of 8 units": lambda: _handing_on(10_000, 8),
    "3,000 containers of 64 units": lambda: _handing_on(3_000, 64),
    "as many containers as there may be": lambda: _handing_on(MAX_CONTAINERS - 1, 2),
    "all units of a node, twice": lambda: _handing_on(1, MAX_LISTED_UNITS // 2),
    "units and thousands of resources": lambda: a_pod_object(
        1, "slices", spec={"initContainers": _init(10, 1, **_keys(700, "1"))}
    ),
    "thousands of pools": lambda: a_pod_object(
        spec={"initContainers": _init(1, 1, **{f"gpu.deckhouse.io/{n}": "1" for n in range(7_000)})}
    ),
    "a quantity of 3 MB": lambda: a_pod_object("0" * REQUEST_BYTES + "1"),
    "a name of 3 MB": lambda: a_pod_object(
        spec={"containers": [{"name": "x" * REQUEST_BYTES, **_only(_init(1, 1))}]}
    ),
    "an environment of 3 MB": lambda: a_pod_object(
        1, spec={"initContainers": [{"name": "i", "env": _many({"name": "A", "value": "b" * 90})}]}
    ),
    "managed fields of 3 MB": lambda: a_pod_object(metadata={"managedFields": _many({"f:a": {}})}),
    "a forged reservation": lambda: a_pod_object(
        metadata={"annotations": {"gpu.deckhouse.io/reservation": _forged()}}
    ),
    "everything at once": lambda: everything(random.Random(0)),
}


def _only(containers: list[Any]) -> dict[str, Any]:
    return {"resources": containers[0]["resources"]}


def _forged() -> str:
    note = {"id": "r0", "pool": "whole", "devices": {"a": _numbers(9_000)}}
    return msgspec.json.encode(note).decode()


def everything(rng: random.Random) -> Pod:
    """Every field at once, each filled to a share of its bound that is drawn."""

    def share(bound: int) -> int:
        return int(bound * rng.choice((0.5, 0.9, 0.99)))

    pod = a_pod_object(
        1,
        "slices",
        metadata={
            "labels": _keys(share(_FULL)),
            "annotations": _keys(share(14_000)),
            "finalizers": _many("a/b", share(MAX_VALUES)),
            "ownerReferences": _many({}, share(MAX_VALUES)),
        },
        spec={
            "initContainers": _init(share(MAX_CONTAINERS), 1, **_keys(3, "1")),
            "tolerations": _many({"key": "a"}, share(_FULL)),
            "topologySpreadConstraints": _many({"topologyKey": "x"}, share(_FULL)),
        },
    )
    terms = _with_terms(
        _term("Lt", ["-1"], count=share(MAX_EXPRESSIONS) - 2),
        _term("In", _numbers(share(14_000)), key="zone"),
    )
    pod["spec"]["affinity"] = terms["spec"]["affinity"]
    return pod


def worst(name: str) -> Pod:
    """Return one of them, no part of which is in two places."""
    pod: Pod = msgspec.json.decode(msgspec.json.encode(WORST[name]()))
    return pod
