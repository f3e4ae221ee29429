"""One call of an admission webhook: address, TLS, time-out, and validation of the response.

Error texts follow Go's, because users and tests read them.
"""

import base64
import binascii
import errno
import ssl
from typing import TYPE_CHECKING, Any, Final, final

import aiohttp
import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

_CONTENT_TYPE: Final = {"Content-Type": "application/json"}


class WebhookCallError(Exception):
    """The webhook could not be called, or sent an invalid response."""


@final
class WebhookCaller:
    """Calls webhooks. `open` before the first call, `close` after the last one."""

    def __init__(self, services: "Mapping[str, str]") -> None:
        self._services = services
        self._session: aiohttp.ClientSession | None = None
        # CA bundle, base64 as configured -> context that trusts it
        self._contexts: dict[str, ssl.SSLContext] = {}

    def open(self) -> None:
        self._session = aiohttp.ClientSession()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, webhook: Json, request: Json) -> Json:
        """Return the response of an AdmissionReview.

        Raises:
            CallFailed: there is none that is valid.
        """
        assert self._session is not None, "the caller is not open"
        client = webhook["clientConfig"]
        timeout_s = webhook.get("timeoutSeconds", 10)
        url, server_name = self._address(client)
        failure = f'failed to call webhook: Post "{url}?timeout={timeout_s}s"'
        review = {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": request,
        }
        try:
            async with self._session.post(
                f"{url}?timeout={timeout_s}s",
                data=msgspec.json.encode(review),
                headers=_CONTENT_TYPE,
                ssl=self._context(client.get("caBundle", "")),
                server_hostname=server_name,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as answer:
                status, text = answer.status, await answer.read()
        except TimeoutError as error:
            raise WebhookCallError(f"{failure}: context deadline exceeded") from error
        except aiohttp.ClientError as error:
            raise WebhookCallError(f"{failure}: {_go_text(error)}") from error
        if status != 200:
            raise WebhookCallError(
                f"failed to call webhook: an error on the server ({text[:256]!r}) has prevented the "
                f"request from succeeding, code {status}"
            )
        return _checked_response(text, request["uid"])

    def _address(self, client: Json) -> tuple[str, str | None]:
        """Return the URL to call and the server name that its certificate must carry."""
        if "url" in client:
            return client["url"], None
        service = client["service"]
        key = f"{service['namespace']}/{service['name']}"
        base = self._services.get(key)
        if base is None:
            raise WebhookCallError(f'failed to call webhook: service "{service["name"]}" not found')
        path = service.get("path", "")
        return base.rstrip("/") + path, f"{service['name']}.{service['namespace']}.svc"

    def _context(self, bundle: str) -> ssl.SSLContext:
        found = self._contexts.get(bundle)
        if found is None:
            try:
                pem = base64.b64decode(bundle, validate=True).decode()
                found = ssl.create_default_context(cadata=pem or None)
            except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
                raise WebhookCallError(f"unable to load root certificates: {error}") from error
            self._contexts[bundle] = found
        return found


def _checked_response(text: bytes, uid: str) -> Json:
    try:
        review = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise WebhookCallError(f"could not get REST client response: {error}") from error
    response = review.get("response")
    if not isinstance(response, dict):
        raise WebhookCallError("webhook response was absent")
    if response.get("uid") != uid:
        raise WebhookCallError(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    if not isinstance(response.get("allowed"), bool):
        raise WebhookCallError("webhook response has no `allowed`")
    return response


def _go_text(error: aiohttp.ClientError) -> str:
    """Return the text of Go's client for the same failure."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: x509: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        address = f"dial tcp {error.host}:{error.port}: connect"
        if error.os_error.errno == errno.ECONNREFUSED:
            return f"{address}: connection refused"
        return f"{address}: {error.os_error.strerror or error}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error)
