"""Pools: everything that is wrong in one message, each fault with its field."""

from typing import Any

import pytest

from admission.webhooks import validate_gpupool
from telemetry.reasons import RefusalReason
from tests.support.reviews import GPUPOOL, AdmissionSetup, Reply, a_pool_object


def ask(
    spec: Any = None, setup: AdmissionSetup | None = None, name: str = "whole", **review: Any
) -> Reply:
    pool = a_pool_object(name)
    pool["spec"] = {} if spec is None else spec
    return (setup or AdmissionSetup()).ask(validate_gpupool, pool, kind=GPUPOOL, **review)


def faults(spec: dict[str, Any]) -> list[str]:
    reply = ask(spec)
    if reply.allowed:
        return []
    assert reply.answer.reason is RefusalReason.INVALID_POOL
    return reply.message.removeprefix("InvalidPool: ").split("; ")


FULL: dict[str, Any] = {
    "resource": {"name": "gpu.deckhouse.io/big"},
    "deviceSelector": {
        "include": {
            "inventoryIDs": ["n1-0000:17:00.0"],
            "products": ["NVIDIA A100-SXM4-80GB"],
            "pciVendors": ["10DE", "10de"],
            "pciDevices": ["20b2"],
            "migCapable": True,
            "migProfiles": ["1g.10gb"],
            "minMemoryMiB": 1,
            "computeCapability": "8.0",
        },
        "exclude": {"products": ["T4"]},
    },
    "nodeSelector": {
        "matchLabels": {"zone": "a", "example.com/x": ""},
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["b"]},
            {"key": "a", "operator": "DoesNotExist"},
        ],
    },
    "allocation": {"mode": "MIG", "migProfile": "1g.10gb", "maxDevicesPerNode": 8},
    "assignment": {"requireAnnotation": False, "autoApproveSelector": {}},
    "access": {
        "namespaces": ["team-a"],
        "namespaceSelector": {},
        "serviceAccounts": ["team-a/trainer"],
        "groups": ["system:masters"],
    },
    "scheduling": {
        "strategy": "Spread",
        "topologyKey": "topology.kubernetes.io/zone",
        "taints": [
            {"key": "gpu", "value": "a", "effect": "NoSchedule"},
            {"key": "gpu", "effect": "NoExecute"},
        ],
    },
    "reservation": {"ttl": "1h", "whenExhausted": "Reject"},
}


def test_a_pool_that_uses_every_field_is_admitted():
    assert ask(FULL).allowed


FRACTIONS = {"mode": "TimeSlice", "slicesPerDevice": 100, "slicePlacement": "SameDevice"}


def test_a_pool_of_fractions_is_admitted_without_a_warning():
    reply = ask({"allocation": FRACTIONS, "scheduling": {"deviceTopology": "Required"}})
    assert reply.allowed
    assert reply.warnings == []


def test_a_topology_that_is_required_of_one_device_has_no_effect():
    reply = ask(
        {
            "allocation": {**FRACTIONS, "maxDevicesPerNode": 1},
            "scheduling": {"deviceTopology": "Required"},
        }
    )
    assert reply.allowed
    (warning,) = reply.warnings
    assert warning.endswith("with maxDevicesPerNode 1 every pod has one device")


def test_another_placement_of_slices_is_for_pods_to_come():
    spread = {"mode": "TimeSlice", "slicesPerDevice": 8}
    same = {**spread, "slicePlacement": "SameDevice"}
    for before, after in ((spread, same), (same, spread)):
        old = a_pool_object(allocation=before)
        reply = ask({"allocation": after}, operation="UPDATE", old=old)
        assert reply.allowed
        (warning,) = reply.warnings
        assert warning.endswith("applies to new pods; running pods keep their slices")
    old = a_pool_object(allocation=spread)
    changed = {"allocation": {**spread, "slicePlacement": "DistinctDevices"}}
    assert ask(changed, operation="UPDATE", old=old).warnings == [], "that is the default"


@pytest.mark.parametrize("spec", [{}, None])
def test_a_pool_needs_no_field_at_all(spec):
    assert ask(spec).allowed


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"resource": {"name": "gpu.deckhouse.io/ignore"}},
            'spec.resource.name: "ignore" is a reserved word',
        ),
        (
            {"resource": {"name": "nvidia.com/gpu"}},
            'spec.resource.name: "nvidia.com/gpu" is not text like',
        ),
        (
            {"resource": {"name": "gpu.deckhouse.io/" + "x" * 60}},
            "spec.resource.name: has 77 characters, at most 63 are possible",
        ),
        ({"allocation": {"mode": "MIG"}}, "spec.allocation.migProfile: is required in mode MIG"),
        (
            {"allocation": {"mode": "MIG", "mig": []}},
            "spec.allocation.mig: is empty: name a profile, or remove it",
        ),
        (
            {"allocation": {"mig": [{"profile": "1g.10gb"}]}},
            "spec.allocation.mig: has a meaning in mode MIG only, the mode is Exclusive",
        ),
        (
            {
                "allocation": {
                    "mode": "MIG",
                    "migProfile": "1g.10gb",
                    "mig": [{"profile": "1g.10gb"}],
                }
            },
            "spec.allocation.mig: and migProfile exclude each other: remove one of them",
        ),
        (
            {"allocation": {"mode": "MIG", "mig": [{"profile": "1g.10gb", "count": 1}] * 2}},
            "spec.allocation.mig: has 1g.10gb more than once: add up its counts",
        ),
        (
            {
                "allocation": {
                    "mode": "MIG",
                    "mig": [{"profile": "1g.10gb"}, {"profile": "3g.40gb"}],
                }
            },
            "spec.allocation.mig: only one profile can have as many instances as fit: give the others a count",
        ),
        (
            {"allocation": {"mode": "MIG", "mig": [{"profile": "small"}]}},
            'spec.allocation.mig[0].profile: "small" is not a MIG profile such as 1g.10gb',
        ),
        (
            {
                "resource": {"name": "gpu.deckhouse.io/" + "x" * 45},
                "allocation": {"mode": "MIG", "mig": [{"profile": "1g.10gb"}]},
            },
            f"spec.allocation.mig: resource gpu.deckhouse.io/{'x' * 45}.1g.10gb has more than 63 characters",
        ),
        (
            {"allocation": {"migProfile": "1g.10gb"}},
            "spec.allocation.migProfile: has a meaning in mode MIG only, the mode is Exclusive",
        ),
        (
            {"allocation": {"mode": "TimeSlice"}},
            "spec.allocation.slicesPerDevice: is required in mode TimeSlice",
        ),
        (
            {"allocation": {"slicesPerDevice": 4}},
            "spec.allocation.slicesPerDevice: has a meaning in mode TimeSlice only",
        ),
        (
            {"allocation": {"mode": "TimeSlice", "slicesPerDevice": 65}},
            "spec.allocation.slicesPerDevice: is above 64, which needs slicePlacement SameDevice",
        ),
        (
            {"allocation": {**FRACTIONS, "slicesPerDevice": 101}},
            "spec.allocation.slicesPerDevice: 101 is more than 100",
        ),
        (
            {"allocation": {"slicePlacement": "SameDevice"}},
            "spec.allocation.slicePlacement: has a meaning in mode TimeSlice only, the mode is Exclusive",
        ),
        (
            {"allocation": {**FRACTIONS, "slicePlacement": "OneDevice"}},
            'spec.allocation.slicePlacement: "OneDevice" is none of DistinctDevices, SameDevice',
        ),
        (
            {"scheduling": {"deviceTopology": "Strict"}},
            'spec.scheduling.deviceTopology: "Strict" is none of None, Preferred, Required',
        ),
        (
            {"allocation": {"mode": "TimeSlice", "slicesPerDevice": 1}},
            "spec.allocation.slicesPerDevice: 1 is less than 2",
        ),
        (
            {"allocation": {"mode": "Half"}},
            'spec.allocation.mode: "Half" is none of Exclusive, MIG, TimeSlice',
        ),
        (
            {"allocation": {"mode": "MIG", "migProfile": "small"}},
            'spec.allocation.migProfile: "small" is not a MIG profile such as 1g.10gb',
        ),
        (
            {"allocation": {"maxDevicesPerNode": "2"}},
            'spec.allocation.maxDevicesPerNode: "2" is not a whole number',
        ),
        (
            {"allocation": {"maxDevicesPerNode": True}},
            "spec.allocation.maxDevicesPerNode: true is not a whole number",
        ),
        (
            {"deviceSelector": {"include": {"pciVendors": ["10de", "0x10de"]}}},
            'spec.deviceSelector.include.pciVendors[1]: "0x10de" is not four hex digits without 0x',
        ),
        (
            {"deviceSelector": {"include": {"migCapable": "yes"}}},
            'spec.deviceSelector.include.migCapable: "yes" is not true or false',
        ),
        (
            {"deviceSelector": {"include": {"computeCapability": "8"}}},
            'spec.deviceSelector.include.computeCapability: "8" is not a version such as 8.0',
        ),
        (
            {"deviceSelector": {"include": {"products": [""]}}},
            "spec.deviceSelector.include.products[0]: must not be empty",
        ),
        (
            {"deviceSelector": {"include": {"products": ["x"] * 257}}},
            "spec.deviceSelector.include.products: has 257 items, at most 256 are possible",
        ),
        ({"deviceSelector": {"exclude": {}}}, "spec.deviceSelector.exclude: is empty"),
        ({"deviceSelector": []}, "spec.deviceSelector: [] is not an object"),
        (
            {"deviceSelector": {"include": {"products": "T4"}}},
            'spec.deviceSelector.include.products: "T4" is not a list',
        ),
        (
            {"assignment": {"autoApproveSelector": {}}},
            "spec.assignment.autoApproveSelector: contradicts requireAnnotation: true",
        ),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.nodeSelector.matchExpressions[0].values: operator In needs at least one value",
        ),
        (
            {
                "nodeSelector": {
                    "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]
                }
            },
            "spec.nodeSelector.matchExpressions[0].values: operator Exists takes no values",
        ),
        (
            {
                "nodeSelector": {
                    "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]
                }
            },
            "spec.nodeSelector.matchExpressions[0].operator: Gt compares in node affinity only",
        ),
        (
            {"nodeSelector": {"matchExpressions": [{"operator": "Exists"}]}},
            "spec.nodeSelector.matchExpressions[0].key: is required",
        ),
        (
            {"nodeSelector": {"matchLabels": {"a b": "c"}}},
            'spec.nodeSelector.matchLabels[a b]: "a b" is no label key',
        ),
        (
            {"nodeSelector": {"matchLabels": {"a": "NVIDIA A100"}}},
            'spec.nodeSelector.matchLabels[a]: "NVIDIA A100" is no label value',
        ),
        (
            {"nodeSelector": {"matchLabels": {"a": 1}}},
            "spec.nodeSelector.matchLabels[a]: 1 is not text",
        ),
        (
            {"access": {"namespaceSelector": {"matchLabels": {"x": "-"}}}},
            'spec.access.namespaceSelector.matchLabels[x]: "-" is no label value',
        ),
        (
            {"access": {"namespaces": ["Team A"]}},
            'spec.access.namespaces[0]: "Team A" is no valid namespace name',
        ),
        (
            {"access": {"serviceAccounts": ["trainer"]}},
            'spec.access.serviceAccounts[0]: "trainer" is not <namespace>/<name>',
        ),
        (
            {"access": {"serviceAccounts": ["Team A/trainer"]}},
            'spec.access.serviceAccounts[0]: "Team A" is no valid namespace name',
        ),
        (
            {"scheduling": {"topologyKey": "a/b/c"}},
            'spec.scheduling.topologyKey: "a/b/c" is no label key',
        ),
        (
            {"scheduling": {"taints": [{"key": "a", "effect": "No"}]}},
            'spec.scheduling.taints[0].effect: "No" is none of NoSchedule, PreferNoSchedule, NoExecute',
        ),
        (
            {"scheduling": {"taints": [{"effect": "NoSchedule"}]}},
            "spec.scheduling.taints[0].key: is required",
        ),
        (
            {
                "scheduling": {
                    "taints": [
                        {"key": "a", "value": "1", "effect": "NoSchedule"},
                        {"key": "a", "value": "2", "effect": "NoSchedule"},
                    ]
                }
            },
            "spec.scheduling.taints[1]: a node can carry one taint of this key and effect only",
        ),
        ({"reservation": {"ttl": "4s"}}, "spec.reservation.ttl: 4s is not between 5s and 1h"),
        ({"reservation": {"ttl": "1h1s"}}, "spec.reservation.ttl: 1h1s is not between 5s and 1h"),
        (
            {"reservation": {"ttl": "soon"}},
            'spec.reservation.ttl: "soon" is not a duration such as 90s, 2m or 1h30m',
        ),
        ({"reservation": {"ttl": None}}, "spec.reservation.ttl: null is not text"),
        (
            {"maintenance": {"deadline": "59s"}},
            "spec.maintenance.deadline: 59s is not between 1m and 168h",
        ),
        (
            {"maintenance": {"deadline": "168h1s"}},
            "spec.maintenance.deadline: 168h1s is not between 1m and 168h",
        ),
    ],
)
def test_a_fault_is_told_with_its_field(spec, expected):
    assert faults(spec)[0].startswith(expected)


@pytest.mark.parametrize("ttl", ["5s", "1h", "59m60s"])
def test_the_bounds_of_the_ttl_are_possible(ttl):
    assert faults({"reservation": {"ttl": ttl}}) == []


@pytest.mark.parametrize("field", ["nodeSelector", "deviceSelector"])
def test_null_is_as_left_out_where_that_is_possible(field):
    spec = {"deviceSelector": {"include": None}} if field == "deviceSelector" else {field: None}

    assert faults(spec) == []


def test_all_faults_are_told_at_once():
    spec = {
        "resource": {"name": "gpu.deckhouse.io/ignore"},
        "deviceSelector": {"include": {"pciVendors": ["0x10de"], "pciDevices": ["?"]}},
        "allocation": {"mode": "TimeSlice"},
        "reservation": {"ttl": "1s"},
        "access": {"namespaces": ["Team A"]},
    }

    reply = ask(spec, name="Bad_Name")

    assert [fault.partition(": ")[0] for fault in reply.message.split("; ") if ": " in fault] == [
        "InvalidPool",
        "spec.access.namespaces[0]",
        "spec.allocation.slicesPerDevice",
        "spec.deviceSelector.include.pciDevices[0]",
        "spec.deviceSelector.include.pciVendors[0]",
        "spec.reservation.ttl",
        "spec.resource.name",
    ]
    assert "metadata.name: only lower-case letters" in reply.message


def test_nothing_is_guessed_about_what_could_not_be_read():
    """With an unreadable mode nobody knows whether a profile is needed."""
    assert len(faults({"allocation": {"mode": "Half", "migProfile": "1g.10gb"}})) == 1


def test_items_after_an_unreadable_one_are_not_counted_wrong():
    taints = [{"key": 1, "effect": "NoSchedule"}, {"key": "a", "effect": "No"}]

    assert [fault.partition(":")[0] for fault in faults({"scheduling": {"taints": taints}})] == [
        "spec.scheduling.taints[0].key"
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ignore", '"ignore" is a reserved word'),
        ("x" * 47, "the name has 47 characters; at most 46 are possible"),
        ("-a", "no '-' at either end"),
    ],
)
def test_a_name_that_cannot_be_a_resource_is_refused(name, expected):
    """Lesson 14."""
    reply = ask(name=name)

    assert reply.answer.reason is RefusalReason.INVALID_POOL
    assert "metadata.name: " in reply.message
    assert expected in reply.message


def test_a_resource_is_served_by_one_pool():
    setup = AdmissionSetup()
    setup.add_pool("first", resource={"name": "gpu.deckhouse.io/whole"})

    reply = ask(setup=setup)

    assert reply.answer.reason is RefusalReason.POOL_NAME_TAKEN
    assert reply.message == (
        "PoolNameTaken: spec.resource.name: gpu.deckhouse.io/whole is served by another pool:"
        " choose another name"
    )


def test_a_pool_does_not_compete_with_itself():
    setup = AdmissionSetup()
    setup.add_pool()

    assert ask(setup=setup).allowed


class TestChanging:
    def test_the_resource_name_stays(self):
        reply = ask(
            {"resource": {"name": "gpu.deckhouse.io/new"}},
            operation="UPDATE",
            old=a_pool_object(),
        )

        assert reply.answer.reason is RefusalReason.INVALID_POOL
        assert (
            "spec.resource.name: cannot change from gpu.deckhouse.io/whole to gpu.deckhouse.io/new"
            in reply.message
        )

    def test_the_default_resource_name_may_be_written_out(self):
        spec = {"resource": {"name": "gpu.deckhouse.io/whole"}}

        assert ask(spec, operation="UPDATE", old=a_pool_object()).allowed

    def test_the_allocation_may_change(self):
        spec = {"allocation": {"mode": "TimeSlice", "slicesPerDevice": 2}}

        assert ask(spec, operation="UPDATE", old=a_pool_object()).allowed

    def test_a_changed_spec_is_judged(self):
        assert not ask(
            {"reservation": {"ttl": "1s"}}, operation="UPDATE", old=a_pool_object()
        ).allowed

    def test_a_pool_with_an_old_name_stays_changeable(self):
        assert ask(
            {"reservation": {"ttl": "1m"}},
            operation="UPDATE",
            old=a_pool_object("ignore"),
            name="ignore",
        ).allowed

    def test_an_unchanged_spec_passes_whatever_it_says(self):
        spec: dict[str, Any] = {"reservation": {"ttl": "1s"}}
        old = a_pool_object(**spec)

        assert ask(spec, AdmissionSetup(is_ready=False), operation="UPDATE", old=old).allowed

    def test_a_pool_that_is_being_deleted_can_lose_its_finalizer(self):
        pool = a_pool_object(reservation={"ttl": "1s"})
        pool["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

        reply = AdmissionSetup().ask(
            validate_gpupool, pool, kind=GPUPOOL, operation="UPDATE", old=a_pool_object()
        )

        assert reply.allowed

    def test_an_old_object_that_cannot_be_read_hides_nothing(self):
        assert not ask({"reservation": {"ttl": "1s"}}, operation="UPDATE", old=7).allowed

    def test_deleting_is_always_possible(self):
        reply = AdmissionSetup(is_ready=False).ask(
            validate_gpupool, None, kind=GPUPOOL, operation="DELETE", old=a_pool_object()
        )

        assert reply.allowed


def test_a_new_pool_waits_for_the_caches_that_know_its_rivals():
    assert ask(setup=AdmissionSetup(is_ready=False)).answer.reason is RefusalReason.NOT_READY


def test_a_spec_that_is_no_object_is_denied():
    assert ask([]).answer.reason is RefusalReason.MALFORMED_REQUEST
