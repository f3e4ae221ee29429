"""Values: the Secret's form, requirements, and that nothing shows a key."""

import pytest

from certs.bundle import Bundle, Requirements
from tests.unit.certs.builders import a_bundle, decoded


def test_bundle_survives_the_secret():
    bundle = a_bundle()
    assert Bundle.from_secret(bundle.as_secret()) == bundle


def test_foreign_keys_of_the_secret_are_ignored():
    bundle = a_bundle()
    assert Bundle.from_secret({**bundle.as_secret(), "note": b"mine"}) == bundle


def test_secret_without_data_is_an_empty_bundle():
    assert Bundle.from_secret({}) == Bundle()


def test_secret_has_the_keys_of_a_tls_secret_and_the_schedulers():
    assert set(a_bundle().as_secret()) == {
        *("ca.crt", "ca.key", "tls.crt", "tls.key", "scheduler.crt", "scheduler.key")
    }


def test_no_repr_shows_key_material():
    bundle = a_bundle()
    current = "".join(
        repr(value)
        for value in (
            bundle,
            bundle.serving,
            bundle.to_serve,
            bundle.authority,
            decoded(bundle.serving),
        )
    )
    assert "BEGIN" not in current
    for pem in bundle.as_secret().values():
        assert pem.splitlines()[1].decode() not in current


def test_service_is_reachable_by_each_of_its_names():
    required = Requirements.for_service("gpu", "gpu-system")
    assert required.dns_names == (
        "gpu.gpu-system.svc",
        "gpu.gpu-system.svc.cluster.local",
        "gpu.gpu-system",
    )


def test_names_given_twice_or_in_capitals_stand_once():
    required = Requirements.for_service(
        "gpu",
        "ns",
        cluster_domain="example.org",
        extra_dns_names=["GPU.ns.svc", "*.example.org"],
        extra_ip_addresses=["::1", "0:0:0:0:0:0:0:1"],
    )
    assert required.dns_names == (
        "gpu.ns.svc",
        "gpu.ns.svc.example.org",
        "gpu.ns",
        "*.example.org",
    )
    assert [str(address) for address in required.ip_addresses] == ["::1"]


@pytest.mark.parametrize("name", ["", "a b", "-a", "a..b", "a.", "ä.de", "a" * 64, "a.*", "a\n"])
def test_what_is_no_dns_name_is_refused_with_its_name(name: str):
    with pytest.raises(ValueError, match="is no lower-case DNS name"):
        Requirements.for_service("gpu", "ns", extra_dns_names=[name])


def test_dns_name_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="is no lower-case DNS name"):
        Requirements.for_service("gpu", "ns", extra_dns_names=[".".join(["a" * 60] * 5)])


def test_what_is_no_address_is_refused():
    with pytest.raises(ValueError, match=r"127\.0\.0"):
        Requirements.for_service("gpu", "ns", extra_ip_addresses=["127.0.0"])


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_client_name_that_is_no_common_name_is_refused(name: str):
    with pytest.raises(ValueError, match=f"has {len(name)} characters"):
        Requirements.for_service("gpu", "ns", client_name=name)


def test_certificate_for_nobody_is_refused():
    with pytest.raises(ValueError, match="needs a DNS name or an IP address"):
        Requirements(dns_names=())
