"""Which pool a device belongs to: every rule, and what people read when it is not the one they thought of."""

from typing import Any

import pytest

from api.kinds.gpudevice import GPUDevice
from api.names import DECIDED_BY_ANNOTATION
from inventory.assignment.candidates import PoolCandidates
from inventory.assignment.decide import Action
from inventory.assignment.eligibility import Reason
from inventory.pools.validation import VALID_POOL
from telemetry.conditions import DeviceAssigned
from tests.support.assignment import (
    MISCONFIGURED,
    UNSUPPORTED,
    a_device,
    a_gpupool,
    decided,
    decided_one,
    some_candidates,
    users,
)


def test_annotated_device_is_claimed_by_its_pool():
    found = decided_one(a_device(annotated="a"), some_candidates(a_gpupool("a"), a_gpupool("b")))

    assert (found.action, found.owner, found.reason) == (Action.CLAIM, "a", Reason.ASSIGNED)
    assert found.message == "in pool a, by its annotation gpu.deckhouse.io/assignment"


@pytest.mark.parametrize("owner", [None, "unread"])
def test_device_of_a_pool_that_cannot_be_read_is_held(owner: str | None):
    younger = a_gpupool("younger", by_itself=True)
    candidates = PoolCandidates([younger], lambda _: VALID_POOL, unread=["unread"])
    (decision,) = decided([a_device(annotated="unread", owner=owner)], candidates).values()
    assert (decision.action, decision.owner) == (Action.HOLD, owner)


def test_the_user_who_decided_is_named_beside_what_was_decided():
    device = a_device(annotated="a")
    assert device.metadata.annotations is not None
    device.metadata.annotations[DECIDED_BY_ANNOTATION] = "anna"

    joining = decided_one(device, some_candidates(a_gpupool("a"), a_gpupool("b")))

    assert joining.message.endswith(
        "by its annotation gpu.deckhouse.io/assignment (last decided by anna)"
    )


def test_device_that_no_pool_selects_stays_free():
    found = decided_one(a_device(), some_candidates())

    assert (found.action, found.reason) == (Action.NOTHING, Reason.NO_POOL_WANTS_IT)
    assert found.candidates == ()
    assert "no valid pool with room selects it" in found.message


def test_device_of_pools_that_take_annotated_ones_waits_for_a_decision_between_them():
    found = decided_one(
        a_device(), some_candidates(a_gpupool("b", created=1), a_gpupool("a", created=2))
    )

    assert (found.action, found.reason) == (Action.NOTHING, Reason.AWAITS_DECISION)
    assert found.candidates == ("b", "a")
    assert found.message == (
        "selected by a, b; waits for a decision: `kubectl gpu approve n1-0 b`, or annotate it with"
        " gpu.deckhouse.io/assignment=b"
    )


def test_full_pool_that_takes_devices_by_itself_leaves_the_device_to_a_decision():
    pools = [
        a_gpupool("full", by_itself=True, cap=1),
        a_gpupool("also-full", cap=1),
        a_gpupool("other"),
    ]
    owned = [a_device(0, owner="full"), a_device(1, owner="also-full", annotated="also-full")]

    found = decided([*owned, a_device(2)], some_candidates(*pools))

    assert found["n1-2"].candidates == ("other",)


@pytest.mark.parametrize(
    ("device", "pool", "view"),
    [
        pytest.param({"annotated": "no-such"}, {}, {}, id="annotated"),
        pytest.param({"is_ignored": True}, {}, {}, id="ignored"),
        pytest.param({"faulted": True}, {}, {}, id="faulted"),
        pytest.param({}, {}, {"unready": "DriverMissing"}, id="node not ready"),
        pytest.param({}, {"is_terminating": True}, {}, id="pool that ends"),
        pytest.param({}, {"nodeSelector": {"matchLabels": {"zone": "a"}}}, {}, id="other node"),
        pytest.param(
            {}, {"deviceSelector": {"include": {"products": ["T4"]}}}, {}, id="other model"
        ),
    ],
)
def test_device_that_no_annotation_would_bring_into_the_pool_is_no_candidate(device, pool, view):
    found = decided_one(a_device(**device), some_candidates(a_gpupool("a", **pool)), **view)

    assert (found.action, found.candidates) == (Action.NOTHING, ())


def test_pool_that_needs_no_annotation_takes_every_device_that_it_selects():
    candidates = some_candidates(a_gpupool("a", by_itself=True))

    assert decided_one(a_device(), candidates).action is Action.CLAIM


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"gpu.deckhouse.io/device.vendor": "10de"}, Action.CLAIM),
        ({"gpu.deckhouse.io/device.product": "NVIDIA-A100-SXM4-80GB"}, Action.CLAIM),
        ({"gpu.deckhouse.io/device.memoryMiB": "81920"}, Action.CLAIM),
        ({"gpu.deckhouse.io/device.mig.capable": "true"}, Action.CLAIM),
        ({"rack": "7"}, Action.CLAIM),
        ({"rack": "8"}, Action.NOTHING),
        ({"gpu.deckhouse.io/device.vendor": "1002"}, Action.NOTHING),
    ],
)
def test_approval_matches_labels_of_the_device_and_observed_facts(labels, expected):
    pool = a_gpupool(
        "a",
        by_itself=True,
        assignment={"autoApproveSelector": {"matchLabels": labels}},
    )

    assert decided_one(a_device(labels={"rack": "7"}), some_candidates(pool)).action is expected


def test_oldest_pool_that_approves_has_a_free_device():
    candidates = some_candidates(
        a_gpupool("a", by_itself=True, created=2),
        a_gpupool("z", by_itself=True, created=1),
        a_gpupool("b", by_itself=True, created=1, deviceSelector={"include": {"products": ["T4"]}}),
    )

    assert decided_one(a_device(), candidates).owner == "z"


def test_of_pools_made_at_once_the_first_by_name_has_a_free_device():
    candidates = some_candidates(a_gpupool("b", by_itself=True), a_gpupool("a", by_itself=True))

    assert decided_one(a_device(), candidates).owner == "a"


def test_annotation_wins_over_approval_by_an_older_pool():
    candidates = some_candidates(a_gpupool("old", by_itself=True), a_gpupool("new", created=5))

    found = decided_one(a_device(annotated="new"), candidates)

    assert (found.owner, found.contenders) == ("new", ())


def test_annotation_that_names_no_pool_is_not_overruled_by_a_pool_that_would_take_the_device():
    found = decided_one(a_device(annotated="gone"), some_candidates(a_gpupool("a", by_itself=True)))

    assert (found.action, found.reason) == (Action.NOTHING, Reason.POOL_NOT_FOUND)
    assert "create it, or correct the annotation" in found.message


def test_owner_that_approves_keeps_the_device_from_an_older_pool():
    """Lesson 7: a device that pool A owns is never taken by B; both are reported."""
    candidates = some_candidates(
        a_gpupool("old", by_itself=True), a_gpupool("new", by_itself=True, created=5)
    )

    found = decided_one(a_device(owner="new"), candidates)

    assert (found.action, found.owner, found.contenders) == (Action.KEEP, "new", ("old",))
    assert "also selected by old: let only one pool select it" in found.message


def test_device_of_one_pool_annotated_with_another_is_drained_first():
    """Lesson 7: the other pool has to wait until the owner has let go."""
    candidates = some_candidates(a_gpupool("a"), a_gpupool("b"))

    found = decided_one(a_device(annotated="b", owner="a"), candidates, users=users("n1-0"))

    assert (found.action, found.owner, found.meant_for) == (Action.DRAIN, "a", "b")
    assert (found.reason, found.contenders) == (Reason.OWNED_BY_OTHER_POOL, ("b",))
    assert found.message == (
        "leaves pool a once no pod uses it: its annotation assigns it to pool b"
    )


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        pytest.param({"annotated": "a", "is_ignored": True}, Reason.IGNORED, id="ignored"),
        pytest.param({"annotated": "a", "managed": False}, Reason.NOT_MANAGED, id="unmanaged"),
        pytest.param({}, Reason.NO_POOL_WANTS_IT, id="annotation taken away"),
        pytest.param({"annotated": "gone"}, Reason.POOL_NOT_FOUND, id="annotated with no pool"),
        pytest.param(
            {"annotated": "a", "product": "Tesla T4"}, Reason.SELECTOR_MISMATCH, id="selector"
        ),
    ],
)
def test_device_that_its_pool_no_longer_wants_leaves_once_unused(device, reason):
    """Lesson 7: no longer selected, ignored, or without its annotation: it goes, and not while it is used."""
    candidates = some_candidates(
        a_gpupool("a", deviceSelector={"include": {"products": ["A100 SXM4 80GB"]}})
    )

    first = decided_one(a_device(owner="a", **device), candidates)
    used = decided_one(
        a_device(owner="a", draining=True, **device), candidates, users=users("n1-0")
    )
    free = decided_one(a_device(owner="a", draining=True, **device), candidates)

    assert (first.action, first.owner, first.reason) == (Action.DRAIN, "a", reason)
    assert (used.action, used.owner) == (Action.DRAIN, "a")
    assert (free.action, free.owner, free.former_owner) == (Action.RELEASE, None, "a")


def test_device_is_released_only_while_its_object_says_that_it_drains():
    found = decided_one(a_device(owner="a"), some_candidates())

    assert (found.action, found.reason) == (Action.DRAIN, Reason.POOL_NOT_FOUND)


def test_device_of_a_pool_that_is_being_deleted_leaves():
    found = decided_one(
        a_device(owner="a", annotated="a"), some_candidates(a_gpupool(is_terminating=True))
    )

    assert (found.action, found.reason) == (Action.DRAIN, Reason.POOL_TERMINATING)


def test_device_that_is_wanted_again_stops_draining():
    found = decided_one(
        a_device(owner="a", annotated="a", draining=True), some_candidates(a_gpupool())
    )

    assert found.action is Action.KEEP


def test_device_leaves_a_node_that_the_pool_does_not_select_any_more():
    candidates = some_candidates(a_gpupool(nodeSelector={"matchLabels": {"zone": "a"}}))
    device = a_device(owner="a", annotated="a")

    assert (
        decided_one(device, candidates, labels={"zone": "b"}).reason
        is Reason.NODE_SELECTOR_MISMATCH
    )
    assert decided_one(device, candidates, labels={"zone": "a"}).action is Action.KEEP


def test_device_keeps_its_pool_while_its_node_is_not_known():
    candidates = some_candidates(a_gpupool(nodeSelector={"matchLabels": {"zone": "a"}}))

    assert (
        decided_one(a_device(owner="a", annotated="a"), candidates, labels=None).action
        is Action.KEEP
    )
    found = decided_one(a_device(annotated="a"), candidates, labels=None)
    assert "node n1 is unknown" in found.message


@pytest.mark.parametrize(
    ("result", "reason"),
    [(UNSUPPORTED, Reason.POOL_UNSUPPORTED), (MISCONFIGURED, Reason.POOL_MISCONFIGURED)],
)
def test_invalid_pool_takes_nothing_and_keeps_its_devices(result, reason):
    """Lesson 18: an unsupported pool touches no device."""
    candidates = some_candidates(a_gpupool(by_itself=True), validity={"a": result})

    assert decided_one(a_device(annotated="a"), candidates).reason is reason
    assert decided_one(a_device(), candidates).reason is Reason.NO_POOL_WANTS_IT
    assert decided_one(a_device(annotated="a", owner="a"), candidates).action is Action.KEEP


@pytest.mark.parametrize(
    ("device", "view", "reason"),
    [
        pytest.param({"uuid": ""}, {}, Reason.INVENTORY_INCOMPLETE, id="no uuid"),
        pytest.param({"faulted": True}, {}, Reason.FAULTED, id="faulted"),
        pytest.param({}, {"duplicates": {"n1-0"}}, Reason.AMBIGUOUS_UUID, id="two of one uuid"),
        pytest.param({}, {"unready": "GFDNotReady"}, Reason.NODE_NOT_READY_FOR_POOLING, id="gate"),
        pytest.param(
            {},
            {"users": users("n1-0", resource="gpu.deckhouse.io/b")},
            Reason.OWNED_BY_OTHER_POOL,
            id="pods of another pool",
        ),
    ],
)
def test_only_a_free_device_has_to_wait(device, view, reason):
    candidates = some_candidates(a_gpupool())

    free = decided_one(a_device(annotated="a", **device), candidates, **view)
    owned = decided_one(a_device(annotated="a", owner="a", **device), candidates, **view)

    assert (free.action, free.meant_for, free.reason) == (Action.NOTHING, "a", reason)
    assert owned.action is Action.KEEP


def test_device_that_pods_of_its_pool_use_comes_back_into_the_pool():
    found = decided_one(a_device(annotated="a"), some_candidates(a_gpupool()), users=users("n1-0"))

    assert found.action is Action.CLAIM


def test_first_reason_in_the_documented_order_is_shown():
    found = decided_one(
        a_device(annotated="gone", faulted=True, uuid=""),
        some_candidates(),
        unready="DriverMissing",
    )

    assert found.reason is Reason.INVENTORY_INCOMPLETE


# --- maxDevicesPerNode ---------------------------------------------------------------------------


def owners(
    devices: list[GPUDevice], candidates: PoolCandidates, **view: Any
) -> dict[str, str | None]:
    return {name: item.owner for name, item in decided(devices, candidates, **view).items()}


def test_pool_takes_as_many_devices_as_it_may_have_by_pci_address():
    """Lesson 6: the devices with poolRef are those that count and those that are exported."""
    candidates = some_candidates(a_gpupool(cap=2))
    devices = [a_device(number, annotated="a") for number in (3, 1, 2)]

    assert owners(devices, candidates) == {"n1-1": "a", "n1-2": "a", "n1-3": None}
    refused = decided(devices, candidates)["n1-3"]
    assert refused.reason is Reason.MAX_DEVICES_PER_NODE
    assert "pool a takes at most 2 devices per node" in refused.message


def test_pci_addresses_go_before_names():
    addresses = {0: "0000:90:00.0", 1: "0000:10:00.0"}
    devices = [
        a_device(number, annotated="a", pci={"vendor": "10de", "address": address})
        for number, address in addresses.items()
    ]

    assert owners(devices, some_candidates(a_gpupool(cap=1))) == {"n1-0": None, "n1-1": "a"}


def test_devices_that_the_pool_has_stay_before_others_with_a_lower_address():
    """Lesson 6."""
    devices = [a_device(0, annotated="a"), a_device(1, annotated="a", owner="a")]

    assert owners(devices, some_candidates(a_gpupool(cap=1))) == {"n1-0": None, "n1-1": "a"}


def test_lowering_the_maximum_drains_the_last_ones():
    """Lesson 6."""
    devices = [a_device(number, annotated="a", owner="a") for number in range(3)]

    found = decided(devices, some_candidates(a_gpupool(cap=1)))

    assert [item.action for item in found.values()] == [Action.KEEP, Action.DRAIN, Action.DRAIN]
    assert found["n1-1"].reason is Reason.MAX_DEVICES_PER_NODE


def test_device_on_its_way_out_counts_until_it_is_gone():
    """Lesson 6."""
    leaving = a_device(0, owner="a", draining=True)
    devices = [leaving, a_device(1, annotated="a")]
    candidates = some_candidates(a_gpupool(cap=1))

    assert decided(devices, candidates, users=users("n1-0"))["n1-1"].action is Action.NOTHING
    assert decided([devices[1]], candidates)["n1-1"].action is Action.CLAIM


def test_device_on_its_way_out_drives_no_other_out():
    devices = [a_device(0, owner="a"), a_device(1, annotated="a", owner="a")]

    found = decided(devices, some_candidates(a_gpupool(cap=1)), users=users("n1-0"))

    assert (found["n1-0"].action, found["n1-1"].action) == (Action.DRAIN, Action.KEEP)


def test_device_for_which_the_oldest_pool_has_no_room_goes_to_the_next_without_conflict():
    candidates = some_candidates(
        a_gpupool("a", by_itself=True, cap=1), a_gpupool("b", by_itself=True, created=1, cap=1)
    )
    devices = [a_device(number) for number in range(3)]

    found = decided(devices, candidates)

    assert [item.owner for item in found.values()] == ["a", "b", None]
    assert [item.contenders for item in found.values()] == [(), (), ()]
    assert found["n1-2"].reason is Reason.MAX_DEVICES_PER_NODE


def test_device_that_has_to_wait_takes_no_room():
    devices = [a_device(0, annotated="a", faulted=True), a_device(1, annotated="a")]

    assert owners(devices, some_candidates(a_gpupool(cap=1))) == {"n1-0": None, "n1-1": "a"}


# --- much at once --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criteria", "other"),
    [
        ({"inventoryIDs": ["n1-0000:00:00.0"]}, {"inventoryID": "n1-0000:07:00.0"}),
        ({"products": ["A100-SXM4-80GB"]}, {"product": "Tesla T4"}),
        ({"pciVendors": ["10de"]}, {"pci": {"vendor": "1002", "device": "20b2", "address": "a"}}),
        ({"pciDevices": ["20b2"]}, {"pci": {"vendor": "10de", "device": "2335", "address": "a"}}),
        ({"migCapable": True}, {"mig": {"capable": False}}),
        ({"migProfiles": ["1g.10gb"]}, {"mig": {"capable": True, "profiles": ["2g.20gb"]}}),
        ({"minMemoryMiB": 80000}, {"memoryMiB": 40960}),
        ({"computeCapability": "8.0"}, {"computeCapability": "7.5"}),
    ],
)
@pytest.mark.parametrize("is_fitting_first", [True, False])
def test_findings_on_one_device_are_not_used_for_another(criteria, other, is_fitting_first):
    """Boards remember what selectors say of a model: each category tells two models apart."""
    candidates = some_candidates(a_gpupool(by_itself=True, deviceSelector={"include": criteria}))
    fits = {"mig": {"capable": True, "profiles": ["1g.10gb"]}, "computeCapability": "8.0"}
    pair = [(fits, Action.CLAIM), ({**fits, **other}, Action.NOTHING)]

    for status, action in pair if is_fitting_first else pair[::-1]:
        assert decided_one(a_device(**status), candidates).action is action


def test_thousands_of_made_up_products_are_decided_on_as_any_other():
    candidates = some_candidates(
        a_gpupool(by_itself=True, deviceSelector={"include": {"products": ["X 2999"]}})
    )

    found = [decided_one(a_device(product=f"X {n}"), candidates).action for n in range(3000)]

    assert found.index(Action.CLAIM) == 2999


# --- words ---------------------------------------------------------------------------------------


def test_every_reason_has_its_condition_reason_in_the_same_order():
    assert [item.name for item in Reason] == [item.name for item in DeviceAssigned]


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "A B", "x" * 300, "pool", "ünï", "a\nb"])
def test_annotation_that_cannot_name_a_pool_is_reported(text):
    found = decided_one(a_device(annotated=text), some_candidates(a_gpupool()))

    assert (found.action, found.reason) == (Action.NOTHING, Reason.POOL_NOT_FOUND)
    assert "it is no valid pool name" in found.message


def test_hex_ids_match_whatever_their_case():
    """Lesson 16: 10DE and 10de select the same devices, at admission and here."""
    selector = {"include": {"pciVendors": ["10DE"], "pciDevices": ["20B2"]}}
    candidates = some_candidates(a_gpupool(deviceSelector=selector))

    assert decided_one(a_device(annotated="a"), candidates).action is Action.CLAIM


@pytest.mark.parametrize(
    ("exclude", "expected"),
    [
        ({"products": ["A100-SXM4-80GB"]}, Reason.SELECTOR_MISMATCH),
        ({"products": ["A100-SXM4-80GB"], "pciVendors": ["10DE"]}, Reason.SELECTOR_MISMATCH),
        ({"products": ["A100-SXM4-80GB"], "pciVendors": ["1002"]}, Reason.ASSIGNED),
        ({"products": ["T4", "A100-SXM4-80GB"]}, Reason.SELECTOR_MISMATCH),
    ],
)
def test_exclude_leaves_out_devices_that_meet_all_categories(exclude, expected):
    """As documented in the field: ANDed over categories, ORed within, and it wins over include."""
    selector = {"include": {"products": ["A100-SXM4-80GB"]}, "exclude": exclude}
    candidates = some_candidates(a_gpupool(deviceSelector=selector))

    assert decided_one(a_device(annotated="a"), candidates).reason is expected


def test_a_node_without_devices_has_nothing_to_decide():
    assert decided([], some_candidates(a_gpupool())) == {}
