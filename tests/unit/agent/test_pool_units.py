"""Which pools must show units on a node, and which do not."""

from typing import Any

import msgspec
import pytest

from agent.validator.pool_units import missing_units
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool

READY = [{"type": "Ready", "status": "True"}]


def a_device(pool: str | None = "train", conditions: Any = None, **labels: str) -> GPUDevice:
    status = {"nodeName": "n1", "conditions": conditions or []}
    body = {"metadata": {"name": "d", "labels": labels}, "status": status}
    if pool is not None:
        status["poolRef"] = {"name": pool}
    return msgspec.convert(body, GPUDevice)


def pools(conditions: Any = READY) -> dict[str, GPUPool]:
    body = {"metadata": {"name": "train"}, "status": {"conditions": conditions}}
    return {"train": msgspec.convert(body, GPUPool)}


@pytest.mark.parametrize("allocatable", [{}, {"gpu.deckhouse.io/train": "0"}])
def test_a_pool_without_units_is_missing(allocatable: dict[str, Any]):
    assert missing_units([a_device()], pools(), allocatable) == [
        ("train", "gpu.deckhouse.io/train")
    ]


@pytest.mark.parametrize(
    ("device", "conditions", "allocatable"),
    [
        pytest.param(a_device(), READY, {"gpu.deckhouse.io/train": "4"}, id="units"),
        pytest.param(a_device(None), READY, {}, id="no pool"),
        pytest.param(a_device("gone"), READY, {}, id="a pool that is gone"),
        pytest.param(a_device(), [], {}, id="a pool that nothing was said of"),
        pytest.param(a_device(), [{"type": "Ready", "status": "False"}], {}, id="not serving"),
        pytest.param(
            a_device(conditions=[{"type": "Healthy", "status": "False"}]), READY, {}, id="faulted"
        ),
        pytest.param(
            a_device(conditions=[{"type": "Draining", "status": "True"}]), READY, {}, id="draining"
        ),
        pytest.param(a_device(**{"gpu.deckhouse.io/ignore": "true"}), READY, {}, id="ignored"),
    ],
)
def test_nothing_is_missing_where_no_unit_is_due(
    device: GPUDevice, conditions: Any, allocatable: dict[str, Any]
):
    assert missing_units([device], pools(conditions), allocatable) == []
