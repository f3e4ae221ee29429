"""Which NVIDIADriver owns which node: selectors before the default, and no choice between two."""

from hypothesis import given
from hypothesis import strategies as st

from operands.nvidia.driver_owners import (
    DriverOwners,
    OwnerConflict,
    driver_owners,
    idle_text,
    owner_value,
    survey_drivers,
)
from tests.unit.operands.nvidia.label_cases import a_driver

NODES = {"n1": {"pool": "gold", "zone": "a"}, "n2": {"pool": "blue"}, "n3": {}}


def test_a_selector_goes_before_the_default():
    found = driver_owners(
        [a_driver("rest", default=True), a_driver("gold", nodeSelector={"pool": "gold"})]
    )
    assert [found.owner_of(labels) for labels in NODES.values()] == ["gold", "rest", "rest"]


def test_all_labels_of_a_selector_must_be_there():
    found = driver_owners([a_driver("one", nodeSelector={"pool": "gold", "zone": "b"})])
    assert found.owner_of(NODES["n1"]) is None


def test_a_driver_without_a_selector_owns_every_node():
    assert driver_owners([a_driver("all")]).owner_of({}) == "all"
    assert driver_owners([a_driver("all", nodeSelector={})]).owner_of({"x": "y"}) == "all"


def test_without_drivers_no_node_has_an_owner():
    assert driver_owners([]).owner_of({"pool": "gold"}) is None


def test_a_node_waits_for_the_label_of_its_owner_unless_it_takes_no_operand():
    owner = {"nvidia.com/gpu-operator.driver.owner": "other"}
    nodes = {
        "new": {"pool": "gold"},
        "of another still": {"pool": "gold"} | owner,
        "without operands": {"pool": "gold", "nvidia.com/gpu.deploy.operands": "false"},
        "of nobody": {"pool": "blue"},
    }
    found = driver_owners([a_driver("gold", nodeSelector={"pool": "gold"})])
    assert found.unlabelled_nodes("gold", nodes) == ["new"]
    assert found.unlabelled_nodes("none", nodes) == []


def test_two_that_select_a_node_are_named_with_their_field():
    drivers = [
        a_driver("b", nodeSelector={"zone": "a"}),
        a_driver("a", nodeSelector={"pool": "gold"}),
    ]
    found = survey_drivers(driver_owners(drivers), NODES)
    conflict = found.conflicts["n1"]
    assert conflict.drivers == ("a", "b")
    assert "spec.nodeSelector of NVIDIADrivers a, b" in conflict.text
    assert found.conflict_of("b") == conflict
    assert not found.is_idle("b")
    assert not any(found.nodes_by_driver.values())


def test_two_defaults_concern_only_the_nodes_that_no_other_selects():
    drivers = [
        a_driver("x", default=True),
        a_driver("y", default=True),
        a_driver("gold", nodeSelector={"pool": "gold"}),
    ]
    found = survey_drivers(driver_owners(drivers), NODES)
    assert found.nodes_by_driver == {"gold": ("n1",), "x": (), "y": ()}
    assert found.conflicts.keys() == {"n2", "n3"}
    assert "spec.default is true of NVIDIADrivers x, y" in found.conflicts["n2"].text
    assert found.conflict_of("gold") is None


def test_a_driver_that_is_being_deleted_settles_a_conflict():
    drivers = [a_driver("a"), a_driver("b", is_going=True)]
    assert driver_owners(drivers).owner_of({}) == "a"


def test_a_selector_that_selects_nothing_is_told():
    owners = driver_owners([a_driver("gold", nodeSelector={"pool": "silver"})])
    assert survey_drivers(owners, NODES).is_idle("gold")
    claim = owners.claim("gold")
    assert claim is not None
    assert "spec.nodeSelector of NVIDIADriver gold selects no node" in idle_text(claim)
    assert "pool=silver" in idle_text(claim)
    remaining = driver_owners([a_driver("rest", default=True)]).claim("rest")
    assert remaining is not None
    assert "no node with a GPU is left" in idle_text(remaining)


def test_a_name_that_no_label_can_hold_is_shortened():
    assert owner_value("gold") == "gold"
    long, other = "a" * 200, "a" * 199 + "b"
    assert len(owner_value(long)) == 63
    assert owner_value(long) != owner_value(other)


TEXTS = st.sampled_from(["", "a", "b", "pool", "nvidia.com/x", "feature.node.kubernetes.io/y"])
SELECTORS = st.none() | st.dictionaries(TEXTS, TEXTS, max_size=3)
DRIVERS = st.lists(
    st.builds(
        lambda name, selector, is_default, is_going: a_driver(
            name, nodeSelector=selector, default=is_default, is_going=is_going
        ),
        TEXTS,
        SELECTORS,
        st.booleans(),
        st.booleans(),
    ),
    max_size=5,
)


@given(DRIVERS, st.dictionaries(TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=4), max_size=4))
def test_every_node_is_owned_contested_or_free_whatever_the_order(drivers, nodes):
    owners = driver_owners(drivers)
    assert owners == driver_owners(reversed(drivers))
    assert hash(owners) == hash(DriverOwners(reversed(owners.claims)))
    found = survey_drivers(owners, nodes)
    owned = [node for item in found.nodes_by_driver.values() for node in item]
    free = [node for node, labels in nodes.items() if owners.owner_of(labels) is None]
    assert sorted([*owned, *found.conflicts, *free]) == sorted(nodes)
    for labels in nodes.values():
        owner = owners.owner_of(labels)
        if isinstance(owner, OwnerConflict):
            assert len(owner.drivers) > 1
            assert owner.text
        for claim in owners.claims:
            assert idle_text(claim)
            if claim.selects(labels):
                assert claim.may_select(labels)
            if owners.may_keep(claim.name, labels):
                assert claim.name != owner


def test_a_driver_that_cannot_be_read_may_own_any_node():
    found = driver_owners([a_driver("gold", nodeSelector={"pool": "gold"})], unread=["next"])
    unknown = OwnerConflict(drivers=("next",), is_unread=True)
    assert [found.owner_of(labels) for labels in NODES.values()] == [unknown] * 3
