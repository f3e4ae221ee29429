"""Handshakes with a server whose certificates change under it."""

import asyncio
import ssl
from dataclasses import replace

import pytest
import structlog.testing
import uvloop

from certs.bundle import Bundle, KeyPair
from certs.errors import UnusableBundleError
from certs.issuance import new_key
from certs.tls import ServingContext, client_context, peer_common_name
from telemetry.metrics import REGISTRY
from tests.component.certs.handshakes import ask, connected, served, shake_hands
from tests.unit.certs import builders

# OpenSSL verifies against the machine's clock, whatever it is.
LONG = builders.requirements(
    authority_lifetime=36500 * builders.DAY, leaf_lifetime=36500 * builders.DAY
)
BUNDLE = builders.a_bundle(LONG)
OTHER = builders.a_bundle(LONG)
TLS_VERSIONS = pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"]
)


def serving(bundle: Bundle = BUNDLE) -> ServingContext:
    context = ServingContext()
    context.load(bundle.to_serve)
    return context


def serial(bundle: Bundle) -> int:
    return builders.certificate(bundle.serving.certificate_pem).parsed.serial_number


def reload_errors() -> float:
    return REGISTRY.get_sample_value("gpu_certificate_errors_total", {"step": "reload"}) or 0.0


def with_new_leaf(bundle: Bundle) -> Bundle:
    return builders.renewed(replace(bundle, serving=KeyPair()), LONG)


@TLS_VERSIONS
async def test_client_without_a_certificate_is_served_and_nameless(version: ssl.TLSVersion):
    async with served(serving()) as port:
        seen = await shake_hands(port, BUNDLE.trust_pem, version=version)
    assert seen.server_serial == serial(BUNDLE)
    assert seen.client_name is None


@TLS_VERSIONS
async def test_client_with_our_certificate_is_known_by_its_name(version: ssl.TLSVersion):
    async with served(serving()) as port:
        seen = await shake_hands(port, BUNDLE.trust_pem, BUNDLE.client, version=version)
    assert seen.client_name == "gpu-scheduler"


@TLS_VERSIONS
@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(OTHER.client, id="by another CA"),
        pytest.param(BUNDLE.serving, id="made for a server"),
    ],
)
async def test_client_with_a_bad_certificate_is_refused(pair: KeyPair, version: ssl.TLSVersion):
    async with served(serving()) as port:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await shake_hands(port, BUNDLE.trust_pem, pair, version=version)


async def test_service_name_is_verified():
    async with served(serving()) as port:
        seen = await shake_hands(port, BUNDLE.trust_pem, server_name="gpu.gpu-system.svc")
        assert seen.server_serial == serial(BUNDLE)
        with pytest.raises(ssl.SSLCertVerificationError, match="other"):
            await shake_hands(port, BUNDLE.trust_pem, server_name="other.svc")


async def test_client_that_trusts_another_ca_refuses_the_server():
    async with served(serving()) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await shake_hands(port, OTHER.trust_pem)


async def test_nothing_is_served_before_the_first_load():
    context = ServingContext()
    async with served(context) as port:
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await shake_hands(port, BUNDLE.trust_pem)
        context.load(BUNDLE.to_serve)
        assert (await shake_hands(port, BUNDLE.trust_pem)).server_serial == serial(BUNDLE)


@TLS_VERSIONS
async def test_new_handshakes_see_the_reload_and_open_connections_live_on(
    version: ssl.TLSVersion,
):
    context = serving()
    newer = with_new_leaf(BUNDLE)
    async with (
        served(context) as port,
        connected(port, BUNDLE.trust_pem, BUNDLE.client, version=version) as old,
    ):
        before = await ask(*old)
        assert context.load(newer.to_serve)
        assert await ask(*old) == before
        assert (await shake_hands(port, BUNDLE.trust_pem, version=version)).server_serial == (
            serial(newer)
        )


def test_reload_and_client_names_work_the_same_on_uvloop():
    async def reload() -> None:
        context = serving(OTHER)
        async with served(context) as port:
            context.load(BUNDLE.to_serve)
            seen = await shake_hands(port, BUNDLE.trust_pem, BUNDLE.client)
        assert seen.server_serial == serial(BUNDLE)
        assert seen.client_name == "gpu-scheduler"

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(reload())


@TLS_VERSIONS
async def test_ca_that_is_dropped_is_trusted_no_longer(version: ssl.TLSVersion):
    context = serving(replace(BUNDLE, trust_pem=BUNDLE.trust_pem + OTHER.trust_pem))
    async with served(context) as port:
        seen = await shake_hands(port, BUNDLE.trust_pem, OTHER.client, version=version)
        assert seen.client_name == "gpu-scheduler"
        context.load(BUNDLE.to_serve)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await shake_hands(port, BUNDLE.trust_pem, OTHER.client, version=version)


async def test_ca_that_is_added_is_trusted_and_so_is_the_old_one():
    context = serving()
    both = replace(BUNDLE, trust_pem=OTHER.trust_pem + BUNDLE.trust_pem)
    context.load(both.to_serve)
    async with served(context) as port:
        for client in (BUNDLE.client, OTHER.client):
            seen = await shake_hands(port, BUNDLE.trust_pem, client)
            assert seen.client_name == "gpu-scheduler"


@pytest.mark.parametrize(
    ("bundle", "text"),
    [
        pytest.param(
            replace(BUNDLE, serving=builders.a_pair_by(BUNDLE.authority, builders.rsa_key())),
            r"tls\.crt and tls\.key: the key is RSA; it must be ECDSA P-256",
            id="RSA pair",
        ),
        pytest.param(
            replace(BUNDLE, serving=replace(BUNDLE.serving, key_pem=builders.pem_of(new_key()))),
            r"tls\.crt and tls\.key: the key belongs to another certificate",
            id="another's key",
        ),
        pytest.param(
            replace(BUNDLE, trust_pem=b"junk"), r"ca\.crt: the certificate is no PEM", id="junk CA"
        ),
        pytest.param(replace(BUNDLE, trust_pem=b""), r"ca\.crt: there is no", id="no CA"),
    ],
)
async def test_unusable_bundle_is_refused_counted_and_the_old_one_stays(bundle: Bundle, text: str):
    context = serving()
    before = reload_errors()
    with pytest.raises(UnusableBundleError, match=text):
        context.load(bundle.to_serve)
    assert reload_errors() == before + 1
    assert context.loaded == BUNDLE.to_serve
    async with served(context) as port:
        seen = await shake_hands(port, BUNDLE.trust_pem, BUNDLE.client)
    assert seen.server_serial == serial(BUNDLE)
    assert seen.client_name == "gpu-scheduler"


def test_same_content_is_no_reload():
    context = ServingContext()
    assert context.load(BUNDLE.to_serve)
    assert not context.load(Bundle.from_secret(BUNDLE.as_secret()).to_serve)


def test_ends_of_leaf_and_ca_are_shown():
    required = builders.requirements(leaf_lifetime=30 * builders.DAY)
    bundle = builders.a_bundle(required)
    # another CA before it must not be taken for the leaf's own
    serving(replace(bundle, trust_pem=OTHER.trust_pem + bundle.trust_pem))
    for label, pem in (("leaf", bundle.serving.certificate_pem), ("ca", bundle.trust_pem)):
        current = REGISTRY.get_sample_value(
            "gpu_certificate_not_after_timestamp_seconds", {"certificate": label}
        )
        assert current == builders.certificate(pem).not_after.timestamp()


def test_no_log_line_of_a_load_shows_key_material():
    context = ServingContext()
    with structlog.testing.capture_logs() as lines:
        context.load(BUNDLE.to_serve)
    assert [line["event"] for line in lines] == ["serving certificate loaded"]
    assert "BEGIN" not in repr(lines)


def test_client_with_an_unusable_pair_is_told_why():
    with pytest.raises(UnusableBundleError, match="client's certificate: there is no key"):
        client_context(BUNDLE.trust_pem, replace(BUNDLE.client, key_pem=b""))
    with pytest.raises(UnusableBundleError, match=r"ca\.crt"):
        client_context(b"")


class Transport:
    """What a TLS transport tells of its peer."""

    def __init__(self, peercert: object) -> None:
        self._peercert = peercert

    def get_extra_info(self, name: str) -> object:
        return self._peercert if name == "peercert" else None


@pytest.mark.parametrize(
    ("peercert", "want"),
    [
        pytest.param(None, None, id="plain HTTP"),
        pytest.param({}, None, id="no certificate"),
        pytest.param({"subject": ()}, None, id="no subject"),
        pytest.param({"subject": ((("commonName", "a"),),)}, "a", id="one name"),
        pytest.param(
            {"subject": ((("organizationName", "o"),), (("commonName", "a"),))}, "a", id="with more"
        ),
        pytest.param(
            {"subject": ((("commonName", "a"),), (("commonName", "b"),))}, None, id="two names"
        ),
    ],
)
def test_peer_is_named_only_by_its_one_common_name(peercert: object, want: str | None):
    transport: object = Transport(peercert)
    assert peer_common_name(transport) == want  # type: ignore[arg-type]  # a double


def test_closed_connection_has_no_peer():
    assert peer_common_name(None) is None
