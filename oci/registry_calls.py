"""One request to a registry until it is answered: authorized, repeated while that helps, its refusal an error."""

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, final

from oci.errors import RegistryError, RegistryRefusal, RegistryTimedOut
from oci.registry_authorization import AccessScope, RegistryAuthorization
from oci.registry_connections import RegistryConnections, RegistryRequest, is_same_host, refusal_of
from oci.retry_delays import retry_delay_s

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection
    from contextlib import AbstractAsyncContextManager

    import aiohttp

    from api.clock import Clock
    from oci.docker_config import DockerConfig


@final
class Repetition:
    """The failures of one request, until they are too many."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._failures = 0

    def progress(self) -> None:
        """Forget the failures: the request has come further than before."""
        self._failures = 0

    async def wait_or_raise(self, error: RegistryError) -> None:
        """Wait before the next attempt.

        Raises:
            RegistryError: the one given; no further attempt helps.
        """
        self._failures += 1
        asked_for_s = error.retry_after_s if isinstance(error, RegistryRefusal) else None
        delay_s = retry_delay_s(self._failures, asked_for_s)
        if not error.is_transient or self._failures >= self._attempts or delay_s is None:
            raise error
        await asyncio.sleep(delay_s)


@final
class RegistryCalls:
    """The calls of one set of credentials, over connections that others share."""

    def __init__(
        self, connections: RegistryConnections, credentials: "DockerConfig", clock: "Clock"
    ) -> None:
        self.connections = connections
        self.clock = clock
        self._authorization = RegistryAuthorization(credentials, clock, self._ask_for_token)

    def repetition(self) -> Repetition:
        return Repetition(self.connections.settings.attempts)

    async def send(
        self,
        request: RegistryRequest,
        scope: AccessScope,
        *,
        accepted: "Collection[int]" = (200,),
    ) -> "aiohttp.ClientResponse":
        """Return the answer, repeating the request while that helps; the caller releases it.

        Raises:
            RegistryError: there is none, or its status is not one of those accepted.
        """
        repetition = self.repetition()
        while True:
            try:
                return await self.send_once(request, scope, accepted=accepted)
            except RegistryError as error:
                await repetition.wait_or_raise(error)

    async def send_once(
        self,
        request: RegistryRequest,
        scope: AccessScope,
        *,
        accepted: "Collection[int]" = (200,),
    ) -> "aiohttp.ClientResponse":
        """Return the answer to one attempt, which may need a token first; the caller releases it.

        Raises:
            RegistryError: there is none, or its status is not one of those accepted.
        """
        registry = self.connections.registry_url(scope.reference.registry)
        # A registry may name another host for uploads; our credentials are none of its business.
        is_registry = is_same_host(request.url, registry)
        header = self._authorization.current(scope) if is_registry else None
        response = await self.connections.send(request, header)
        if response.status == 401 and is_same_host(response.url, registry):
            challenges = response.headers.getall("WWW-Authenticate", [])
            response.release()
            headers = self._authorization.authorization_headers(scope, challenges, refused=header)
            response = await self._answered(request, headers)
        return await self._accepted(response, request, accepted)

    def deadline(self, name: str) -> "AbstractAsyncContextManager[None]":
        """Bound an operation that is not the content of a blob; RegistryTimedOut when the time is over."""
        return _deadline(name, self.connections.settings.operation_timeout_s)

    def transfer_deadline(self, name: str) -> "AbstractAsyncContextManager[None]":
        """Bound the upload of one blob; RegistryTimedOut when the time is over."""
        return _deadline(name, self.connections.settings.transfer_timeout_s)

    async def _answered(
        self, request: RegistryRequest, headers: "AsyncGenerator[str, None]"
    ) -> "aiohttp.ClientResponse":
        """Send the request with each header in turn, until one is not refused."""
        refusal: RegistryRefusal | None = None
        async with aclosing(headers):
            async for header in headers:
                response = await self.connections.send(request, header)
                if response.status not in {401, 403}:
                    return response
                refusal = await refusal_of(response, request.name, self.clock.utc_now())
        assert refusal is not None, "there is an answer, or an error"
        raise refusal

    async def _ask_for_token(
        self, request: RegistryRequest, header: str | None
    ) -> "aiohttp.ClientResponse":
        response = await self.connections.send(request, header)
        return await self._accepted(response, request, (200,))

    async def _accepted(
        self,
        response: "aiohttp.ClientResponse",
        request: RegistryRequest,
        accepted: "Collection[int]",
    ) -> "aiohttp.ClientResponse":
        if response.status in accepted:
            return response
        raise await refusal_of(response, request.name, self.clock.utc_now())


@asynccontextmanager
async def _deadline(name: str, seconds: float) -> "AsyncIterator[None]":
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RegistryTimedOut(
            name, f"the registry was not done within {seconds:g} s", "check registry and network"
        ) from error
