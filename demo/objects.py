"""The demo's objects: GPUs of the nodes, pools and pods.

Three nodes with eight GPUs each, four on each of two NUMA nodes: n1 and n2 have eight H200, n3 has four H200 and four
L40S. The
pool of time slices has the L40S, the pool of whole devices all H200. A node that Karpenter adds has one L4.
"""

from typing import TYPE_CHECKING, Any, Final

from api.names import API_VERSION, RESOURCE_PREFIX
from demo.fleet import H200, L4, L40S, Fleet, a_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.node.node_agent import FakeDevice

DEVICES_PER_NODE: Final = 8
NODES: Final = ("n1", "n2", "n3")
BARE_NODE: Final = "n1"
"""It joins alone, before the others."""
SLICED_NODE: Final = "n3"
DEVICES_PER_NUMA_NODE: Final = 4
SLICED_FROM: Final = 4
"""GPUs 4..7 of n3 are L40S."""
BIG_PRODUCT, SMALL_PRODUCT = "NVIDIA-H200", "NVIDIA-L40S"
WHOLE, SLICES = "whole", "slices"
ELASTIC: Final = "elastic"
"""The pool that scales, and its NodePool."""
ELASTIC_TYPE: Final = "gpu-1x"
SMALLEST_PRODUCT: Final = "NVIDIA-L4"
SLICES_PER_DEVICE: Final = 4
FINER_SLICES_PER_DEVICE: Final = 8
FRACTIONS_PER_DEVICE: Final = 50
RESERVATION_TTL_S: Final = 5
"""Lifetime of a reservation in the pool of time slices."""


def device_table(node: str) -> "list[FakeDevice]":
    if node not in NODES:
        return [a_device(L4, node, 0)]
    small = range(SLICED_FROM, DEVICES_PER_NODE) if node == SLICED_NODE else range(0)
    return [
        a_device(
            L40S if number in small else H200,
            node,
            number,
            numa_node=number // DEVICES_PER_NUMA_NODE,
        )
        for number in range(DEVICES_PER_NODE)
    ]


FLEET: Final = Fleet(
    nodes=NODES,
    devices_of=device_table,
    namespaces=("ml-team", "students"),
    has_caches=True,
    elastic=ELASTIC,
)


def whole_pool() -> dict[str, Any]:
    """Return the pool that selects every H200, for two namespaces."""
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUPool",
        "metadata": {"name": WHOLE},
        "spec": {
            "allocation": {"mode": "Exclusive"},
            "deviceSelector": {"include": {"products": [BIG_PRODUCT]}},
            "assignment": {"requireAnnotation": False},
            "access": {"namespaces": ["default", "ml-team"]},
        },
    }


def slices_pool() -> dict[str, Any]:
    """Return the pool of the L40S that an operator assigns to it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUPool",
        "metadata": {"name": SLICES},
        "spec": {
            "allocation": {"mode": "TimeSlice", "slicesPerDevice": SLICES_PER_DEVICE},
            "deviceSelector": {"include": {"products": [SMALL_PRODUCT]}},
            "reservation": {"ttl": f"{RESERVATION_TTL_S}s"},
        },
    }


def a_pod(
    name: str,
    pool: str,
    units: int,
    *,
    namespace: str = "default",
    containers: "Sequence[str]" = ("main",),
) -> dict[str, Any]:
    """Return a pod whose containers each request some units of a pool."""
    limits = {f"{RESOURCE_PREFIX}{pool}": str(units)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [
                {"name": container, "image": "train", "resources": {"limits": dict(limits)}}
                for container in containers
            ]
        },
    }
