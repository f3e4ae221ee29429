"""Bytes of kubelet's device plugin API, against bytes made by hand from upstream's field numbers."""

from api.kubelet import deviceplugin as wire


def tagged(number: int, content: bytes) -> bytes:
    """A length-delimited field: text, or a message."""
    return bytes([number << 3 | 2, len(content)]) + content


def test_a_registration_has_upstreams_numbers():
    request = wire.Registration(
        endpoint="gpu.sock",
        resource="gpu.deckhouse.io/a",
        options=wire.PluginOptions(
            pre_start_required=True, get_preferred_allocation_available=True
        ),
    )
    assert wire.encode_registration(request) == (
        tagged(1, b"v1beta1")
        + tagged(2, b"gpu.sock")
        + tagged(3, b"gpu.deckhouse.io/a")
        + tagged(4, b"\x08\x01\x10\x01")
    )


def test_devices_have_upstreams_numbers():
    devices = (
        wire.OfferedDevice(id="GPU-1", numa_node=1),
        wire.OfferedDevice(id="GPU-2", is_healthy=False),
    )
    content = wire.encode_devices(devices)
    assert content == (
        tagged(
            1,
            tagged(1, b"GPU-1") + tagged(2, b"Healthy") + tagged(3, tagged(1, b"\x08\x01")),
        )
        + tagged(1, tagged(1, b"GPU-2") + tagged(2, b"Unhealthy"))
    )
    assert wire.decode_devices(content) == devices


def test_an_allocation_has_upstreams_numbers():
    content = tagged(1, tagged(1, b"GPU-1") + tagged(1, b"GPU-2")) + tagged(1, tagged(1, b"GPU-3"))
    assert wire.decode_allocation(content) == (("GPU-1", "GPU-2"), ("GPU-3",))
    assert wire.encode_allocation((("GPU-1", "GPU-2"), ("GPU-3",))) == content


def test_a_grant_has_upstreams_numbers():
    grants = (
        wire.ContainerGrant(environment={"A": "1"}),
        wire.ContainerGrant(cdi_devices=("nvidia.com/gpu=GPU-1",)),
    )
    content = wire.encode_grants(grants)
    assert content == (
        tagged(1, tagged(1, tagged(1, b"A") + tagged(2, b"1")))
        + tagged(1, tagged(5, tagged(1, b"nvidia.com/gpu=GPU-1")))
    )
    assert wire.decode_grants(content) == grants


def test_fields_that_a_newer_kubelet_adds_are_skipped():
    content = tagged(1, tagged(1, b"GPU-1") + tagged(9, b"news")) + tagged(12, b"news")
    assert wire.decode_allocation(content) == (("GPU-1",),)


def test_options_come_back_as_they_were():
    options = wire.PluginOptions(get_preferred_allocation_available=True)
    assert wire.decode_options(wire.encode_options(options)) == options
    assert wire.encode_options(wire.PluginOptions()) == wire.encode_empty(None) == b""
