"""Names of devices: the same any caller that tells the address, valid, and of one device each."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.names import NodeName
from inventory.identity import canonical_address, device_name, inventory_id, node_digest

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LETTERS = "abc019-."

NODES = (
    st.text(alphabet=LETTERS, min_size=1, max_size=253)
    .filter(lambda text: SUBDOMAIN.fullmatch(text) is not None)
    .map(NodeName)
)
LONG_NODES = st.tuples(st.text(alphabet="ab", min_size=1, max_size=4), st.integers(190, 253)).map(
    lambda drawn: NodeName("n" * (drawn[1] - len(drawn[0])) + drawn[0])
)
ADDRESSES = st.builds(
    "{:04x}:{:02x}:{:02x}.{:x}".format,
    st.integers(0, 0xFFFFF),
    st.integers(0, 0xFF),
    st.integers(0, 0x1F),
    st.integers(0, 7),
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0000:17:00.0", "0000:17:00.0"),
        ("00000000:17:00.0", "0000:17:00.0"),
        ("0000:3B:00.0", "0000:3b:00.0"),
        ("3b:00.0", "0000:3b:00.0"),
        (" 0001:3b:1f.7 ", "0001:3b:1f.7"),
        ("00010000:e1:00.0", "10000:e1:00.0"),
        ("10000:e1:00.0", "10000:e1:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("47505500:00:00.0", "47505500:00:00.0"),
        ("0000:3b:20.0", None),
        ("0000:3b:00.8", None),
        ("0000:3b:00", None),
        ("000:3b:00.0", None),
        ("123456789:3b:00.0", None),
        ("", None),
        ("0000-3b-00.0", None),
    ],
)
def test_every_spelling_of_an_address_is_one(text: str, want: str | None):
    assert canonical_address(text) == want


@given(ADDRESSES)
def test_a_canonical_address_is_its_own(address: str):
    once = canonical_address(address)
    assert once is not None
    assert canonical_address(once) == once
    assert canonical_address(once.upper()) == once


def test_the_inventory_id_is_node_and_address():
    assert inventory_id(NodeName("n1"), "0000:17:00.0") == "n1-0000:17:00.0"
    assert device_name(NodeName("n1"), "0000:17:00.0") == "n1-0000-17-00.0"


@given(NODES | LONG_NODES, ADDRESSES)
def test_a_name_is_one_that_kubernetes_takes(node: NodeName, address: str):
    """Lesson 9: of 253 characters at most, whatever the node is called."""
    name = device_name(node, address)
    assert len(name) <= 253
    assert SUBDOMAIN.fullmatch(name)


@given(st.lists(st.tuples(NODES | LONG_NODES, ADDRESSES), unique=True, max_size=20))
def test_no_two_devices_have_one_name(devices: list[tuple[NodeName, str]]):
    """Lesson 9: a cut name keeps devices apart by a digest of the whole."""
    assert len({device_name(node, address) for node, address in devices}) == len(devices)


def test_names_of_200_characters_are_not_truncated():
    node = NodeName("n" * 200)
    assert device_name(node, "0000:17:00.0") == f"{node}-0000-17-00.0"


@given(NODES | LONG_NODES)
def test_a_digest_fits_a_label(node: NodeName):
    assert re.fullmatch("[0-9a-f]{32}", node_digest(node))
