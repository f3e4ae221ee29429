"""Agents read objects of the next version: for each enum of GPUPools and GPUDevices a value that this version lacks."""

from typing import Any

import msgspec
import pytest

from agent.api_cache import ServedDevice, ServedPool
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from manifests.install.crds import build_crds
from pool.facts import device_facts, pool_facts
from pool.layout import layout_of
from tests.support.next_version import READ_AS_TEXT, body_of, enums_of, schema_of

NEEDED = {
    ("spec", "allocation", "mode"),
    ("spec", "allocation", "slicePlacement"),
    ("status", "allocation", "mode"),
}
"""What the units and their use follow from."""
MODELS: dict[str, tuple[type[Any], type[Any]]] = {
    "GPUPool": (GPUPool, ServedPool),
    "GPUDevice": (GPUDevice, ServedDevice),
}


def cases() -> list[Any]:
    return [
        pytest.param(kind, path, id=f"{kind}-{'.'.join(path)}")
        for crd in build_crds()
        if (kind := crd["spec"]["names"]["kind"]) in MODELS
        for path in enums_of(schema_of(crd))
    ]


def decoded(body: Any, type_: type[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body), type=type_)


@pytest.mark.parametrize(("kind", "path"), cases())
def test_a_value_that_an_agent_does_not_need_hides_nothing(kind: str, path: tuple[str, ...]):
    whole, served = MODELS[kind]
    body = {"metadata": {"name": "a"}, **body_of(path)}
    if (kind, path) not in READ_AS_TEXT:
        with pytest.raises(msgspec.ValidationError):
            decoded(body, whole)
    if path in NEEDED:
        with pytest.raises(msgspec.ValidationError):
            decoded(body, served)
    elif (kind, path) not in READ_AS_TEXT:
        assert decoded(body, served) == served(metadata=decoded(body, served).metadata)


@pytest.mark.parametrize("recorded", [True, False])
def test_more_slices_than_this_version_offers_are_units(recorded: bool):
    allocation = {"mode": "TimeSlice", "slicesPerDevice": 150}
    place = (
        {"status": {"allocation": allocation}} if recorded else {"spec": {"allocation": allocation}}
    )
    pool = decoded({"metadata": {"name": "p"}, **place}, ServedPool)
    status = {"uuid": "GPU-1", "nodeName": "n1", "poolRef": {"name": "p"}}
    device = decoded({"metadata": {"name": "d"}, "status": status}, ServedDevice)
    assert layout_of(device_facts(device), pool_facts(pool)).count == 150
