"""A client of kubelet's PodResources API: the units of each container.

`list_` must be called inside GetPreferredAllocation only. Where a List comes during an Allocate and a pod has
just ended, kubelet drops the units of that Allocate and allocates them twice; `get` has no such effect.
kubelet serves 100 calls a second for all of its clients together, with bursts of 10, and refuses the rest.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, final

import grpc
from google.protobuf.message import DecodeError

from agent.errors import KubeletUnavailableError
from agent.files import FileIdentity, file_identity
from agent.running_timeout import running_timeout
from api.kubelet.podresources import (
    GET,
    GET_ALLOCATABLE,
    LIST,
    SERVICE,
    SOCKET,
    PodUnits,
    pod_units,
)
from api.kubelet.proto.podresources_pb2 import (
    AllocatableResourcesResponse,
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
"""kubelet needs a millisecond; the admission of all pods waits meanwhile."""
GET_WITHIN_S: Final = 2.0
RETRY_AFTER_S: Final = 0.015
"""The rate limit admits a refused call again 10 ms later."""
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
    """A channel to one kubelet process, and the number of open calls."""

    def __init__(self, target: str, identity: FileIdentity) -> None:
        self.channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self.identity = identity
        self.calls = 0


@final
class PodResources:
    """Calls the kubelet whose socket is in the directory; follows a restart without delay."""

    def __init__(self, directory: "Path", clock: "Clock") -> None:
        """Take the directory; the first call opens the connection."""
        self._clock = clock
        self._socket = directory / SOCKET
        self._connection: _Connection | None = None

    async def list_(self, within_s: float = LIST_WITHIN_S) -> tuple[PodUnits, ...]:
        """Return all pods that kubelet has admitted or is admitting, and that have not ended.

        Raises:
            KubeletUnavailableError: no valid response within the time.
        """
        content = await self._call(LIST, b"", within_s)
        try:
            listing = ListPodResourcesResponse.FromString(content)
        except DecodeError as error:
            raise self._malformed(LIST) from error
        return tuple(map(pod_units, listing.pod_resources))

    async def get(
        self, namespace: str, name: str, within_s: float = GET_WITHIN_S
    ) -> PodUnits | None:
        """Return a pod; None where kubelet does not know it: not admitted yet, rejected, or ended.

        Raises:
            KubeletUnavailableError: no valid response within the time.
        """
        try:
            request = GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
            content = await self._call(GET, request.SerializeToString(), within_s)
            return pod_units(GetPodResourcesResponse.FromString(content).pod_resources)
        except _PodUnknownError:
            return None
        except DecodeError as error:
            raise self._malformed(GET) from error

    async def numa_resources(self, within_s: float = GET_WITHIN_S) -> frozenset[str]:
        """Return what kubelet knows the NUMA nodes of: `cpu`, `memory`, and resources of device plugins.

        CPUs and memory are among them where their managers allocate them, with the policies static and Static.

        Raises:
            KubeletUnavailableError: no valid response within the time.
        """
        content = await self._call(GET_ALLOCATABLE, b"", within_s)
        try:
            found = AllocatableResourcesResponse.FromString(content)
        except DecodeError as error:
            raise self._malformed(GET_ALLOCATABLE) from error
        resources = {device.resource_name for device in found.devices if device.topology.nodes}
        if found.cpu_ids:
            resources.add("cpu")
        if found.memory:
            resources.add("memory")
        return frozenset(resources)

    async def close(self) -> None:
        """Close the connection; a later call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.calls:
            await connection.channel.close()

    async def _call(self, call: str, request: bytes, within_s: float) -> bytes:
        problems: list[str] = []
        try:
            async with running_timeout(within_s):
                return await self._repeat(call, request, problems)
        except TimeoutError as error:
            raise KubeletUnavailableError(
                f"kubelet's PodResources at {self._socket} did not answer {call} within"
                f" {within_s:g} s: {problems[-1]}"
            ) from error

    async def _repeat(self, call: str, request: bytes, problems: list[str]) -> bytes:
        while True:
            problems.append("no answer")
            try:
                return await self._try(call, request)
            except _TryAgainError as error:
                problems[-1] = str(error)
            await asyncio.sleep(RETRY_AFTER_S)

    async def _try(self, call: str, request: bytes) -> bytes:
        connection = await self._connected()
        connection.calls += 1
        started, outcome = self._clock.monotonic(), "failed"
        try:
            method: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = connection.channel.unary_unary(
                f"/{SERVICE}/{call}"
            )
            answer = bytes(await method(request))
            outcome = "ok"
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                outcome = "limited"
            raise self._translate(call, error, connection) from error
        except asyncio.CancelledError as error:
            # grpc raises this also where kubelet cancelled the call and this task is not cancelled.
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

    def _translate(
        self, call: str, error: grpc.aio.AioRpcError, connection: _Connection
    ) -> Exception:
        code, text = error.code(), one_line(error.details() or "")
        if code is grpc.StatusCode.UNKNOWN and call == GET and text.endswith("not found"):
            return _PodUnknownError()
        if code is grpc.StatusCode.UNAVAILABLE and self._connection is connection:
            # The next attempt opens a new channel rather than wait for this one to reconnect.
            self._connection = None
        if code in _PASSING:
            return _TryAgainError(f"{code.name}: {text}")
        return KubeletUnavailableError(
            f"kubelet's PodResources at {self._socket} refused {call}: {code.name}: {text}"
        )

    def _malformed(self, call: str) -> KubeletUnavailableError:
        return KubeletUnavailableError(
            f"kubelet's PodResources at {self._socket} sent a malformed response to {call}"
        )


class _TryAgainError(Exception):
    pass


class _PodUnknownError(Exception):
    pass
