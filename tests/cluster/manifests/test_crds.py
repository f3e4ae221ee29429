"""What the API server makes of our CRDs: which pools it takes, what it says about those it refuses."""

import json

import pytest
import yaml

from manifests.example_files import example_names, load_example
from tests.cluster.environment import client
from tests.cluster.manifests.objects import a_pool

DEVICES = "/apis/gpu.deckhouse.io/v1alpha1/gpudevices"
RESERVED = "assignment, devices, enabled, fenced, gpu, ignore, leader, managed, node, pool, present, reservation"


def test_every_manifest_is_accepted_strictly(installed):
    lines = installed.output.splitlines()
    assert len(lines) == len(installed.documents)
    assert all(line.endswith((" created", " unchanged")) for line in lines)


@pytest.mark.parametrize("name", example_names())
async def test_example_is_accepted_strictly(name, kubectl, namespace, pools):
    objects = load_example(name)
    for document in objects:
        if "namespace" in document["metadata"]:
            document["metadata"]["namespace"] = namespace
    await kubectl(
        "create",
        "--validate=strict",
        "--dry-run=server",
        "-f",
        "-",
        stdin=yaml.safe_dump_all(objects),
    )


async def test_defaults_are_filled_in_where_an_operator_sees_them(api, pools):
    """Defect 17, on the real server."""
    bare = {key: value for key, value in a_pool("plain").items() if key != "spec"}
    stored = await api.create(pools, bare)
    assert stored["spec"] == {
        "allocation": {"mode": "Exclusive"},
        "assignment": {"requireAnnotation": True},
        "maintenance": {"policy": "Wait", "deadline": "1h"},
        "reservation": {"ttl": "2m", "whenExhausted": "Pend"},
        "scheduling": {"topologyKey": "topology.kubernetes.io/zone"},
    }
    assert "status" not in stored


@pytest.mark.parametrize(
    "pool",
    [
        pytest.param(a_pool("a" * 46), id="longest name"),
        pytest.param(a_pool(reservation={"ttl": "5s"}), id="shortest ttl"),
        pytest.param(a_pool(reservation={"ttl": "1h"}), id="longest ttl"),
        pytest.param(a_pool(reservation={"ttl": None}), id="null is left out"),
        pytest.param(
            a_pool(deviceSelector={"include": {"pciVendors": ["10DE"], "pciDevices": ["20b5"]}}),
            id="hex of any case",
        ),
        pytest.param(
            a_pool(allocation={"mode": "MIG", "migProfile": "1g.10gb+me"}), id="profile with media"
        ),
        pytest.param(
            a_pool(allocation={"mode": "MIG", "migProfile": "1g.24gb-me"}), id="profile without"
        ),
        pytest.param(a_pool(resource={"name": "gpu.deckhouse.io/a100"}), id="resource name"),
    ],
)
async def test_pool_is_accepted(pool, api, pools):
    await api.create(pools, pool, fieldValidation="Strict")


@pytest.mark.parametrize(
    ("pool", "field", "message"),
    [
        pytest.param(
            a_pool("a" * 47),
            "<nil>",
            "metadata.name is longer than 46 characters, so that gpu.deckhouse.io/<name> would"
            " exceed the 63 that kubelet takes; choose a shorter name",
            id="name too long",
        ),
        pytest.param(
            a_pool("devices"),
            "<nil>",
            f"metadata.name is a reserved word ({RESERVED}, woken); choose another name",
            id="reserved name",
        ),
        pytest.param(
            a_pool("a.b"),
            "<nil>",
            "metadata.name must consist of lower-case letters, digits and '-', and start and end"
            " with a letter or digit, because it becomes part of a resource name;"
            " choose another name",
            id="name with a dot",
        ),
        pytest.param(
            a_pool(resource={"name": "gpu.deckhouse.io/pool"}),
            "spec.resource.name",
            f"name ends in a reserved word ({RESERVED}, woken); choose another name",
            id="reserved resource",
        ),
        pytest.param(
            a_pool(allocation={"mode": "TimeSlice"}),
            "spec.allocation.slicesPerDevice",
            "mode TimeSlice needs the number of slices of a card: set slicesPerDevice (2 to 64)",
            id="time slices without their number",
        ),
        pytest.param(
            a_pool(allocation={"slicesPerDevice": 4}),
            "spec.allocation.slicesPerDevice",
            "slicesPerDevice has a meaning in mode TimeSlice only:"
            " remove it, or set mode to TimeSlice",
            id="whole cards with slices",
        ),
        pytest.param(
            a_pool(allocation={"mode": "MIG"}),
            "spec.allocation.migProfile",
            "mode MIG needs a profile: set migProfile, for instance 1g.10gb",
            id="mig without a profile",
        ),
        pytest.param(
            a_pool(allocation={"mode": "Exclusive", "migProfile": "1g.10gb"}),
            "spec.allocation.migProfile",
            "migProfile has a meaning in mode MIG only: remove it, or set mode to MIG",
            id="whole cards with a profile",
        ),
        *(
            pytest.param(
                a_pool(reservation={"ttl": ttl}),
                "spec.reservation.ttl",
                "ttl must be a duration from 5s to 1h, such as 90s or 2m",
                id=f"ttl {ttl}",
            )
            for ttl in ("1s", "61m", "soon", "9999999999999h")
        ),
        pytest.param(
            a_pool(assignment={"autoApproveSelector": {"matchLabels": {"a": "b"}}}),
            "spec.assignment.autoApproveSelector",
            "autoApproveSelector contradicts requireAnnotation: true (the default): set"
            " requireAnnotation to false to take devices by label, or remove the selector",
            id="annotation and selector",
        ),
        pytest.param(
            a_pool(scheduling={"taints": [{"key": "a", "effect": "Never"}]}),
            "spec.scheduling.taints[0].effect",
            'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
            id="effect of a taint",
        ),
        pytest.param(
            a_pool(scheduling={"taints": [{"effect": "NoSchedule"}]}),
            "spec.scheduling.taints[0].key",
            "Required value",
            id="taint without a key",
        ),
        pytest.param(
            a_pool(nodeSelector={"matchExpressions": [{"key": "a", "operator": "Gt"}]}),
            "spec.nodeSelector.matchExpressions[0].operator",
            'supported values: "In", "NotIn", "Exists", "DoesNotExist"',
            id="operator of a node selector",
        ),
        pytest.param(
            a_pool(nodeSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "spec.nodeSelector.matchExpressions[0].values",
            "operators In and NotIn need at least one value",
            id="in nothing",
        ),
        pytest.param(
            a_pool(
                access={
                    "namespaceSelector": {
                        "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]
                    }
                }
            ),
            "spec.access.namespaceSelector.matchExpressions[0].values",
            "operators Exists and DoesNotExist take no values: remove them",
            id="exists with values",
        ),
        pytest.param(
            a_pool(access={"namespaces": ["a", "a"]}),
            "spec.access.namespaces[1]",
            'Duplicate value: "a"',
            id="namespace twice",
        ),
        pytest.param(
            a_pool(deviceSelector={"include": {"pciVendors": ["0x10de"]}}),
            "spec.deviceSelector.include.pciVendors[0]",
            "should match '^[0-9a-fA-F]{4}$'",
            id="hex with 0x",
        ),
    ],
)
async def test_bad_pool_is_refused_with_what_to_do(pool, field, message, api, pools):
    with pytest.raises(client.ApiRefusedError) as refused:
        await api.create(pools, pool)
    assert refused.value.status == 422
    assert f"{field}: " in refused.value.message
    assert message in refused.value.message


async def test_misspelt_field_is_refused_by_kubectl(kubectl, pools):
    pool = json.dumps(a_pool(reservation={"tll": "1m"}))
    done = await kubectl("create", "-f", "-", stdin=pool, check=False)
    assert 'unknown field "spec.reservation.tll"' in done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"name": "gpu.deckhouse.io/a"}, {"name": "gpu.deckhouse.io/b"}, id="changed"),
        pytest.param({"name": "gpu.deckhouse.io/a"}, None, id="removed"),
        pytest.param(None, {"name": "gpu.deckhouse.io/b"}, id="added"),
    ],
)
async def test_resource_name_cannot_change(before, after, api, pools):
    await api.create(pools, a_pool("train", resource=before))
    with pytest.raises(client.ApiRefusedError, match=r"resource\.name cannot change") as refused:
        await api.patch(f"{pools}/train", {"spec": {"resource": after}})
    assert refused.value.status == 422


async def test_what_an_allocation_is_may_change(api, pools):
    await api.create(pools, a_pool("train"))
    changed = {"mode": "TimeSlice", "slicesPerDevice": 4}
    stored = await api.patch(f"{pools}/train", {"spec": {"allocation": changed}})
    assert stored["spec"]["allocation"] == changed


async def test_kubectl_shows_capacity_of_pools(api, kubectl, pools):
    await api.create(pools, a_pool("train"))
    capacity = {"total": 8, "used": 3, "available": 4, "reserved": 1}
    status = {"phase": "Ready", "capacity": capacity, "nodes": 1}
    await api.patch(f"{pools}/train/status", {"status": status})
    header, row = (await kubectl("get", "gpool", "-o", "wide")).stdout.splitlines()
    assert " ".join(header.split()) == (
        "NAME MODE TOTAL USED AVAILABLE RESERVED PHASE REASON STRATEGY NODES UNHEALTHY READY WHY"
        " CONFLICT AGE"
    )
    assert row.split()[:-1] == ["train", "Exclusive", "8", "3", "4", "1", "Ready", "1", "0"]


async def test_devices_are_shown_and_selected_by_node_and_state(api, kubectl, pools):
    [example] = load_example("gpudevice")
    name = example["metadata"]["name"]
    await api.create(DEVICES, example)
    await api.patch(f"{DEVICES}/{name}/status", {"status": example["status"]})
    try:
        shown = (await kubectl("get", "gdev", "-o", "wide")).stdout
        here = await api.get(DEVICES, fieldSelector="status.nodeName=gpu-node-1")
        faulted = await api.get(DEVICES, fieldSelector="status.state=Faulted")
    finally:
        await api.delete(f"{DEVICES}/{name}")
    for value in ("gpu-node-1", "train", "Assigned", "NVIDIA A100-SXM4-80GB", "0000:17:00.0"):
        assert value in shown
    assert [device["metadata"]["name"] for device in here["items"]] == [name]
    assert faulted["items"] == []


@pytest.mark.parametrize(
    ("status", "field"),
    [
        pytest.param({"uuid": "GPU-1::0"}, "status.uuid", id="a slice for a UUID"),
        pytest.param({"uuid": "G" * 64}, "status.uuid", id="a long UUID"),
        pytest.param(
            {"mig": {"instances": [{"profile": "1g.10gb", "uuid": "MIG-1::0"}]}},
            "status.mig.instances[0].uuid",
            id="a slice for the UUID of an instance",
        ),
        pytest.param({"numaNode": -1}, "status.numaNode", id="no NUMA node"),
    ],
)
async def test_status_of_a_device_that_lays_out_no_unit_is_refused(status, field, api, pools):
    [example] = load_example("gpudevice")
    name = example["metadata"]["name"]
    await api.create(DEVICES, example)
    try:
        with pytest.raises(client.ApiRefusedError) as refused:
            await api.patch(f"{DEVICES}/{name}/status", {"status": status})
    finally:
        await api.delete(f"{DEVICES}/{name}")
    assert refused.value.status == 422
    assert f"{field}: " in refused.value.message


async def test_category_lists_all_kinds(api, kubectl, pools):
    await api.create(pools, a_pool("train"))
    assert "gpupool.gpu.deckhouse.io/train" in (await kubectl("get", "gpu", "-o", "name")).stdout


async def test_kubectl_explains_fields_in_the_words_of_the_models(kubectl, installed):
    reservation = (await kubectl("explain", "gpool.spec.reservation")).stdout
    assert "How long units are held for a pod that is not bound yet." in reservation
    mode = (await kubectl("explain", "gpool.spec.allocation.mode")).stdout
    assert "MIG: One MIG instance of the pool's profile." in mode
