"""The bytes that kubelet and we exchange, written down by hand from upstream's field numbers."""

import pytest
from google.protobuf.message import DecodeError

from api.kubelet import deviceplugin as plugin
from api.kubelet import podresources
from api.kubelet.podresources import ContainerUnits, PodUnits


def field(number: int, content: bytes | str) -> bytes:
    """A length-delimited field."""
    data = content.encode() if isinstance(content, str) else content
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def number(of: int, value: int) -> bytes:
    assert value < 128
    return bytes([of << 3, value])


PREFERENCE = field(1, field(1, "a") + field(1, "b") + field(2, "a") + number(3, 2))
GRANT = field(
    1,
    field(1, field(1, "K") + field(2, "v"))
    + field(2, field(1, "/in") + field(2, "/out") + number(3, 1))
    + field(3, field(1, "/dev/in") + field(2, "/dev/out") + field(3, "rw"))
    + field(5, field(1, "k/c=d")),
)
POD = (
    field(1, "p")
    + field(2, "ns")
    + field(
        3,
        field(1, "main")
        + field(2, field(1, "r/x") + field(2, "u1"))
        + field(2, field(1, "r/x") + field(2, "u2")),
    )
)
UNITS = PodUnits("ns", "p", (ContainerUnits("main", {"r/x": ("u1", "u2")}),))


def test_a_preference_is_asked_and_answered():
    request = plugin.PreferenceRequest(available=("a", "b"), must_include=("a",), size=2)
    assert plugin.encode_preference_requests((request,)) == PREFERENCE
    assert plugin.decode_preference_requests(PREFERENCE) == (request,)
    answer = field(1, field(1, "b") + field(1, "a"))
    assert plugin.encode_preferences((("b", "a"),)) == answer
    assert plugin.decode_preferences(answer) == (("b", "a"),)
    assert plugin.encode_pre_start(("a",)) == field(1, "a")


def test_a_grant_names_all_that_a_container_gets():
    grant = plugin.ContainerGrant(
        environment={"K": "v"},
        mounts=(plugin.Mount("/in", "/out", read_only=True),),
        devices=(plugin.DeviceSpec("/dev/in", "/dev/out", "rw"),),
        cdi_devices=("k/c=d",),
    )
    assert plugin.encode_grants((grant,)) == GRANT
    assert plugin.decode_grants(GRANT) == (grant,)


def test_what_is_offered_says_that_preferences_are_wanted():
    options = plugin.PluginOptions(get_preferred_allocation_available=True)
    assert plugin.encode_options(options) == number(2, 1)
    assert plugin.decode_options(number(2, 1)) == options
    sick = plugin.OfferedDevice(id="a", is_healthy=False, numa_node=1)
    assert plugin.encode_devices((sick,)) == field(
        1, field(1, "a") + field(2, "Unhealthy") + field(3, field(1, number(1, 1)))
    )


def test_pods_are_listed_with_an_entry_for_each_unit():
    assert podresources.encode_pods((UNITS,)) == field(1, POD)
    assert podresources.decode_pods(field(1, POD)) == (UNITS,)
    assert podresources.encode_pod(UNITS) == field(1, POD)
    assert podresources.decode_pod(field(1, POD)) == UNITS
    request = field(1, "p") + field(2, "ns")
    assert podresources.encode_pod_name("ns", "p") == request
    assert podresources.decode_pod_name(request) == ("ns", "p")
    allocatable = field(1, field(1, "r/x") + field(2, "u"))
    assert podresources.encode_allocatable({"r/x": ("u",)}) == allocatable
    assert podresources.decode_allocatable(allocatable) == {"r/x": ("u",)}


def test_fields_of_a_newer_kubelet_are_skipped():
    newer = POD + field(9, "new") + number(10, 1)
    assert podresources.decode_pod(field(1, newer)) == UNITS
    several = (
        field(1, "p")
        + field(2, "ns")
        + field(3, field(1, "main") + field(2, field(1, "r/x") + field(2, "u2") + field(2, "u1")))
    )
    assert podresources.decode_pod(field(1, several)) == UNITS


@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x05ab"])
def test_what_is_no_message_is_an_error(content: bytes):
    with pytest.raises(DecodeError):
        podresources.decode_pods(content)
    with pytest.raises(DecodeError):
        plugin.decode_allocation(content)
