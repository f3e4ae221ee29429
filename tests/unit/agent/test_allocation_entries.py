"""The entries of a node's allocations that fit into one object."""

import pytest

from agent.allocations.entries import MAX_BYTES, fitting
from api.kinds.gpunodeinventory import MAX_ALLOCATIONS, ContainerDevices


def an_entry(number: int, size: int = 10) -> ContainerDevices:
    return ContainerDevices(
        namespace="default",
        pod=f"p{number:05}".ljust(size, "x"),
        container="main",
        resource="gpu.deckhouse.io/whole",
        units=[f"GPU-{number}"],
        uid=f"uid-{number}",
    )


@pytest.mark.parametrize(
    ("count", "size", "fits"),
    [
        pytest.param(1024, 60, 1024, id="16 devices of 64 slices"),
        pytest.param(MAX_ALLOCATIONS + 1, 10, MAX_ALLOCATIONS, id="more than the schema takes"),
    ],
)
def test_an_object_holds_so_many(count: int, size: int, fits: int) -> None:
    entries = tuple(an_entry(number, size) for number in range(count))
    assert fitting(entries) == entries[:fits]


def test_what_etcd_would_refuse_is_left_out() -> None:
    entries = tuple(an_entry(number, 900) for number in range(2000))
    fits = fitting(entries)
    assert 0.99 * MAX_BYTES < sum(len(fit.pod) + 130 for fit in fits) < 1.01 * MAX_BYTES
