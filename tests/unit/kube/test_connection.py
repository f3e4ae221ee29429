"""A connection with the credentials of another user."""

from dataclasses import fields

from kube.config.connection import StaticConnection, with_token


async def test_only_the_token_is_shown_beside_the_address_and_its_authorities():
    own = StaticConnection(
        host="https://api:6443",
        token="console",
        ssl_ca_cert="ca.crt",
        cert_file="console.crt",
        key_file="console.key",
        verify_ssl=False,
        disable_strict_ssl_verification=True,
        tls_server_name="api",
        proxy="http://proxy:3128",
        proxy_headers={"Proxy-Authorization": "Basic x"},
    )
    of_viewer = with_token(own, "viewer")
    differ = {
        field.name
        for field in fields(StaticConnection)
        if getattr(own, field.name) != getattr(of_viewer, field.name)
    }
    assert differ == {"token", "cert_file", "key_file"}
    assert (of_viewer.cert_file, of_viewer.key_file) == (None, None)
    assert await of_viewer.get_api_key_with_prefix("BearerToken") == "Bearer viewer"
