"""The rules of our own kinds: schemas, limits, and CEL as it is rendered into the definitions."""

from typing import Any

import pytest

from tests.support.api_servers import Api
from tests.support.conformance import GROUP_PATH
from tests.support.examples import load_device

Json = dict[str, Any]

DEVICES = f"{GROUP_PATH}/gpudevices"
TERMS = f"{GROUP_PATH}/gpucontrolplaneterms"
RESERVED = "access, assignment, devices, enabled, fenced, gpu, ignore, leader, managed, node, pool, present, reservation"


def a_pool(name: str = "train", **spec: Any) -> Json:
    return {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": name},
        "spec": spec,
    }


async def test_defaults_are_filled_in_where_an_operator_sees_them(api: Api, pools: str) -> None:
    bare = {key: value for key, value in a_pool("plain").items() if key != "spec"}
    stored = (await api.created(pools, bare)).body
    assert stored["spec"] == {
        "allocation": {"mode": "Exclusive"},
        "assignment": {"requireAnnotation": True},
        "maintenance": {"policy": "Wait", "deadline": "1h"},
        "repair": "Off",
        "podBaseline": "Off",
        "maxRepairsPerHour": 4,
        "reservation": {"ttl": "2m", "whenExhausted": "Pend"},
        "scheduling": {
            "topologyKey": "topology.kubernetes.io/zone",
            "deviceTopology": "Preferred",
            "reserve": "Node",
        },
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
        pytest.param(
            a_pool(
                allocation={
                    "mode": "MIG",
                    "mig": [{"profile": "3g.40gb", "count": 1}, {"profile": "1g.10gb"}],
                }
            ),
            id="two profiles",
        ),
        pytest.param(a_pool(resource={"name": "gpu.deckhouse.io/a100"}), id="resource name"),
    ],
)
async def test_pool_is_accepted(pool: Json, api: Api, pools: str) -> None:
    await api.created(pools, pool, fieldValidation="Strict")


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
            "mode TimeSlice needs the number of slices of a device: set slicesPerDevice (2 to 64,"
            " with slicePlacement SameDevice to 100)",
            id="time slices without their number",
        ),
        pytest.param(
            a_pool(allocation={"slicesPerDevice": 4}),
            "spec.allocation.slicesPerDevice",
            "slicesPerDevice has a meaning in mode TimeSlice only:"
            " remove it, or set mode to TimeSlice",
            id="whole devices with slices",
        ),
        pytest.param(
            a_pool(allocation={"mode": "MIG"}),
            "spec.allocation.migProfile",
            "mode MIG needs a profile: set migProfile, for instance 1g.10gb, or mig for several",
            id="mig without a profile",
        ),
        pytest.param(
            a_pool(allocation={"mode": "MIG", "mig": []}),
            "spec.allocation.migProfile",
            "mode MIG needs a profile: set migProfile, for instance 1g.10gb, or mig for several",
            id="mig with an empty list",
        ),
        *(
            pytest.param(a_pool(allocation=allocation), "spec.allocation.mig", message, id=message)
            for allocation, message in (
                (
                    {"mode": "MIG", "migProfile": "1g.10gb", "mig": [{"profile": "1g.10gb"}]},
                    "migProfile and mig exclude each other: remove one of them",
                ),
                (
                    {"mig": [{"profile": "1g.10gb"}]},
                    "mig has a meaning in mode MIG only: remove it, or set mode to MIG",
                ),
                (
                    {"mode": "MIG", "mig": [{"profile": "1g.10gb", "count": 1}] * 2},
                    "a profile is in mig once: add up its counts",
                ),
                (
                    {"mode": "MIG", "mig": [{"profile": "1g.10gb"}, {"profile": "3g.40gb"}]},
                    "only one profile of mig can have as many instances as fit: give the others a count",
                ),
            )
        ),
        pytest.param(
            a_pool(allocation={"mode": "Exclusive", "migProfile": "1g.10gb"}),
            "spec.allocation.migProfile",
            "migProfile has a meaning in mode MIG only: remove it, or set mode to MIG",
            id="whole devices with a profile",
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
async def test_bad_pool_is_refused_with_what_to_do(
    pool: Json, field: str, message: str, api: Api, pools: str
) -> None:
    answer = await api.post(pools, pool)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert f"{field}: " in answer.message
    assert message in answer.message


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"name": "gpu.deckhouse.io/a"}, {"name": "gpu.deckhouse.io/b"}, id="changed"),
        pytest.param({"name": "gpu.deckhouse.io/a"}, None, id="removed"),
        pytest.param(None, {"name": "gpu.deckhouse.io/b"}, id="added"),
    ],
)
async def test_resource_name_cannot_change(
    before: Json | None, after: Json | None, api: Api, pools: str
) -> None:
    await api.created(pools, a_pool("train", resource=before))
    answer = await api.merge(f"{pools}/train", {"spec": {"resource": after}})
    assert answer.status == 422
    assert "resource.name cannot change" in answer.message


async def test_what_an_allocation_is_may_change(api: Api, pools: str) -> None:
    await api.created(pools, a_pool("train"))
    changed = {"mode": "TimeSlice", "slicesPerDevice": 4}
    stored = (await api.merge(f"{pools}/train", {"spec": {"allocation": changed}})).body
    assert stored["spec"]["allocation"] == changed


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
async def test_status_of_a_device_without_units_is_refused(
    status: Json, field: str, api: Api, pools: str
) -> None:
    example = load_device()
    device = f"{DEVICES}/{example['metadata']['name']}"
    await api.created(DEVICES, example)
    try:
        answer = await api.merge(f"{device}/status", {"status": status})
    finally:
        await api.delete(device)
    assert answer.status == 422
    assert f"{field}: " in answer.message


@pytest.mark.parametrize(
    ("number", "holder", "is_accepted"),
    [
        pytest.param(6, "b", True, id="a higher number"),
        pytest.param(5, "a", True, id="the same term"),
        pytest.param(5, "b", False, id="another holder"),
        pytest.param(4, "a", False, id="a lower number"),
    ],
)
async def test_the_number_of_a_term_only_goes_up(
    number: int, holder: str, is_accepted: bool, api: Api, pools: str
) -> None:
    term = {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUControlPlaneTerm",
        "metadata": {"name": "gpu-control-plane"},
        "spec": {"holder": "a", "number": 5},
    }
    path = f"{TERMS}/gpu-control-plane"
    await api.created(TERMS, term)
    try:
        answer = await api.merge(path, {"spec": {"number": number, "holder": holder}})
    finally:
        await api.delete(path)
    assert answer.status == (200 if is_accepted else 422)
    assert is_accepted or "number only goes up" in answer.message


async def test_no_rule_is_checked_for_an_object_that_breaks_its_schema(
    api: Api, pools: str
) -> None:
    pool = a_pool(allocation={"mode": "MIG"}, scheduling={"taints": [{"effect": "NoSchedule"}]})
    answer = await api.post(pools, pool)
    assert answer.status == 422
    assert "some validation rules were not checked because the object was invalid" in answer.message
    assert "migProfile" not in answer.message
