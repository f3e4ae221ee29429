"""kubelet's own books: which units each container has.

`list_` is to be called inside GetPreferredAllocation and nowhere else. Where a List comes while an Allocate
is open and a pod has just ended, kubelet forgets the units of that Allocate and gives them out twice; `get`
has no such effect.
kubelet serves 100 calls a second for all of its clients together, with bursts of 10, and refuses the rest.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, final

import grpc
from google.protobuf.message import DecodeError

from agent.errors import KubeletUnavailableError
from agent.files import FileIdentity, file_identity
from api.kubelet.podresources import GET, LIST, SERVICE, SOCKET, PodUnits, pod_units
from api.kubelet.proto.podresources_pb2 import (
    GetPodResourcesRequest,
    GetPodResourcesResponse,
    ListPodResourcesResponse,
)
from kube.errors import one_line
from telemetry.agent_metrics import KUBELET_CALL_DURATION

if TYPE_CHECKING:
    from pathlib import Path

    from api.clock import Clock

LIST_WITHIN_S: Final = 0.3
"""kubelet needs a millisecond; all admission of pods waits while we do."""
GET_WITHIN_S: Final = 2.0
RETRY_AFTER_S: Final = 0.015
"""A call that is refused by the rate limit is free to come again 10 ms later."""
MAX_BYTES: Final = 64 * 1024 * 1024

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_BYTES),
    # Channels of one target share connections and their backoff, so that a fresh one would wait for nothing.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_http_proxy", 0),
)
_PASSING: Final = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE})


@final
class _Connection:
    """A channel to one incarnation of kubelet, and how many calls are under way on it."""

    def __init__(self, target: str, identity: FileIdentity) -> None:
        self.channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self.identity = identity
        self.calls = 0


@final
class PodResources:
    """Asks the kubelet whose socket is in the directory; one that restarted is asked without delay."""

    def __init__(self, directory: "Path", clock: "Clock") -> None:
        """Take the directory; nothing is opened before the first call."""
        self._clock = clock
        self._socket = directory / SOCKET
        self._connection: _Connection | None = None

    async def list_(self, within_s: float = LIST_WITHIN_S) -> tuple[PodUnits, ...]:
        """Return all pods that kubelet has admitted, or is admitting, and that have not ended.

        Raises:
            KubeletUnavailable: no answer that makes sense within the time.
        """
        content = await self._ask(LIST, b"", within_s)
        try:
            listing = ListPodResourcesResponse.FromString(content)
        except DecodeError as error:
            raise self._garbled(LIST) from error
        return tuple(map(pod_units, listing.pod_resources))

    async def get(
        self, namespace: str, name: str, within_s: float = GET_WITHIN_S
    ) -> PodUnits | None:
        """Return a pod; None where kubelet does not know it: not admitted yet, refused, or ended.

        Raises:
            KubeletUnavailable: no answer that makes sense within the time.
        """
        try:
            request = GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
            content = await self._ask(GET, request.SerializeToString(), within_s)
            return pod_units(GetPodResourcesResponse.FromString(content).pod_resources)
        except _PodUnknownError:
            return None
        except DecodeError as error:
            raise self._garbled(GET) from error

    async def close(self) -> None:
        """Close the connection; a later call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.calls:
            await connection.channel.close()

    async def _ask(self, call: str, request: bytes, within_s: float) -> bytes:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._try(call, request)
            except TimeoutError:
                trouble = "no answer"
            except _TryAgainError as error:
                trouble = str(error)
            if loop.time() + RETRY_AFTER_S >= deadline:
                raise KubeletUnavailableError(
                    f"kubelet's PodResources at {self._socket} did not answer {call} within"
                    f" {within_s:g} s: {trouble}"
                )
            await asyncio.sleep(RETRY_AFTER_S)

    async def _try(self, call: str, request: bytes) -> bytes:
        connection = await self._connected()
        connection.calls += 1
        started, outcome = self._clock.monotonic(), "failed"
        try:
            asking: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = connection.channel.unary_unary(
                f"/{SERVICE}/{call}"
            )
            answer = bytes(await asking(request))
            outcome = "ok"
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                outcome = "limited"
            raise self._meaning_of(call, error, connection) from error
        except asyncio.CancelledError as error:
            # grpc says this also where the other side cancelled, and nobody asked this task to end.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _TryAgainError("kubelet cancelled it") from error
        else:
            return answer
        finally:
            KUBELET_CALL_DURATION.labels(call, outcome).observe(self._clock.monotonic() - started)
            connection.calls -= 1
            if connection is not self._connection and not connection.calls:
                await connection.channel.close()

    async def _connected(self) -> _Connection:
        identity = file_identity(self._socket)
        if identity is None:
            raise _TryAgainError("there is no socket")
        before = self._connection
        if before is not None and before.identity == identity:
            return before
        connection = self._connection = _Connection(f"unix:{self._socket}", identity)
        if before is not None and not before.calls:
            await before.channel.close()
        return connection

    def _meaning_of(
        self, call: str, error: grpc.aio.AioRpcError, connection: _Connection
    ) -> Exception:
        code, text = error.code(), one_line(error.details() or "")
        if code is grpc.StatusCode.UNKNOWN and call == GET and text.endswith("not found"):
            return _PodUnknownError()
        if code is grpc.StatusCode.UNAVAILABLE and self._connection is connection:
            # The next attempt dials anew rather than wait for this channel to try again.
            self._connection = None
        if code in _PASSING:
            return _TryAgainError(f"{code.name}: {text}")
        return KubeletUnavailableError(
            f"kubelet's PodResources at {self._socket} refused {call}: {code.name}: {text}"
        )

    def _garbled(self, call: str) -> KubeletUnavailableError:
        return KubeletUnavailableError(
            f"kubelet's PodResources at {self._socket} answered {call} with what is no message"
        )


class _TryAgainError(Exception):
    pass


class _PodUnknownError(Exception):
    pass
