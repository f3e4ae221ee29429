"""What the API server makes of our CRDs: which pools it takes, what it says about those it refuses."""

import json
from typing import Any

import pytest
import yaml

from manifests.example_files import example_names
from tests.cluster.manifests.objects import a_pool
from tests.support.examples import load_device, load_example

DEVICES = "/apis/gpu.deckhouse.io/v1alpha1/gpudevices"


def test_every_manifest_is_accepted_strictly(installed):
    lines = installed.output.splitlines()
    assert len(lines) == len(installed.documents)
    assert all(line.endswith((" created", " unchanged")) for line in lines)


@pytest.mark.parametrize("name", example_names())
async def test_example_is_accepted_strictly(name, kubectl, namespace, pools):
    objects = load_example(name)
    for document in objects:
        metadata = document["metadata"]
        if "namespace" in metadata:
            metadata["namespace"] = namespace
        else:  # another test may have installed the example
            metadata["name"] = f"{namespace}-{metadata['name']}"
    await kubectl(
        "create",
        "--validate=strict",
        "--dry-run=server",
        "-f",
        "-",
        stdin=yaml.safe_dump_all(objects),
    )


async def test_misspelt_field_is_refused_by_kubectl(kubectl, pools):
    pool = json.dumps(a_pool(reservation={"tll": "1m"}))
    done = await kubectl("create", "-f", "-", stdin=pool, check=False)
    assert 'unknown field "spec.reservation.tll"' in done.stderr


async def test_kubectl_shows_capacity_of_pools(api, kubectl, pools):
    await api.create(pools, a_pool("train"))
    capacity = {"total": 8, "used": 3, "available": 4, "reserved": 1, "largestFree": 3}
    status = {
        "phase": "Ready",
        "capacity": capacity,
        "nodes": 2,
        "waiting": 5,
        "resourceName": "gpu.deckhouse.io/train",
        "strategy": "BinPack",
    }
    await api.patch(f"{pools}/train/status", {"status": status})
    header, row = (await kubectl("get", "gpool", "-o", "wide")).stdout.splitlines()
    assert " ".join(header.split()) == (
        "NAME MODE TOTAL USED HELD FREE LARGEST WAITING PHASE"
        " RESOURCE UNHEALTHY CANDIDATES NODES STRATEGY WHY CONFLICT DELETED AGE"
    )
    current = "train Exclusive 8 3 1 4 3 5 Ready gpu.deckhouse.io/train 0 0 2 BinPack"
    assert row.split()[:-1] == current.split()


async def test_devices_are_shown_and_selected_by_node_and_state(api, kubectl, pools):
    example = load_device()
    name = example["metadata"]["name"]
    await api.create(DEVICES, example)
    await api.patch(f"{DEVICES}/{name}/status", {"status": example["status"]})
    try:
        current = (await kubectl("get", "gdev", "-o", "wide")).stdout
        here = await api.get(DEVICES, fieldSelector="status.nodeName=gpu-node-1")
        faulted = await api.get(DEVICES, fieldSelector="status.state=Faulted")
    finally:
        await api.delete(f"{DEVICES}/{name}")
    for value in ("gpu-node-1", "train", "Assigned", "NVIDIA-A100-SXM4-80GB", "0000:17:00.0"):
        assert value in current
    assert [device["metadata"]["name"] for device in here["items"]] == [name]
    assert faulted["items"] == []


async def test_category_lists_the_kinds_of_users(api, kubectl, pools):
    await api.create(pools, a_pool("train"))
    listed = (await kubectl("get", "gpu", "-o", "name")).stdout
    assert "gpupool.gpu.deckhouse.io/train" in listed
    found = await api.get("/apis/gpu.deckhouse.io/v1alpha1")
    in_category = {
        resource["kind"]
        for resource in found["resources"]
        if "gpu" in resource.get("categories", ())
    }
    assert in_category == {"GPUPool", "GPUDevice", "GPUNodeInventory"}


async def test_kubectl_explains_fields_in_the_words_of_the_models(kubectl, installed):
    reservation = (await kubectl("explain", "gpool.spec.reservation")).stdout
    assert "How long units are reserved for a pod that is not bound yet." in reservation
    mode = (await kubectl("explain", "gpool.spec.allocation.mode")).stdout
    assert "MIG: One MIG instance of the pool's profile." in mode


@pytest.mark.parametrize("kind", ["gpool", "gdev", "gni", "gterm"])
async def test_kubectl_explains_every_field(kind, kubectl, installed):
    """As plain text, of every level: a field is a line with its type, a description follows it."""
    text = (await kubectl("explain", kind, "--recursive=false")).stdout
    assert "<no description>" not in text
    found = await kubectl("get", "--raw", "/openapi/v3/apis/gpu.deckhouse.io/v1alpha1")
    schemas = json.loads(found.stdout)["components"]["schemas"]
    name = {"gpool": "GPUPool", "gdev": "GPUDevice", "gni": "GPUNodeInventory"}
    schema = schemas[f"io.deckhouse.gpu.v1alpha1.{name.get(kind, 'GPUControlPlaneTerm')}"]
    assert undescribed(schema) == []


def undescribed(schema: dict[str, Any], path: str = "") -> list[str]:
    found: list[str] = []
    for name, nested in schema.get("properties", {}).items():
        if not nested.get("description"):
            found.append(f"{path}.{name}")
        found += undescribed(nested, f"{path}.{name}")
    items = schema.get("items")
    return [*found, *(undescribed(items, f"{path}[]") if items else ())]
