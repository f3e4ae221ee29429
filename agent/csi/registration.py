"""The driver's sockets: that of the driver, and the one by which kubelet finds it.

kubelet watches its directory `plugins_registry`. Where a socket appears, it asks there who the plugin is, calls
NodeGetInfo at the endpoint, and reports the outcome; where the socket disappears, it forgets the plugin. A kubelet
that starts does the same with every socket that is there. So the driver is served before its registration, and
stops after it. Mounts stay without a driver; only new ones, and their removal, wait.

Where kubelet refuses, it asks again by itself, at most two minutes later.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, final

import grpc

from agent.served_socket import ServedSocket, SocketState
from agent.unary_calls import UnaryCalls
from api.csi.names import DRIVER_NAME, DRIVER_VERSION, REGISTRATION_SOCKET
from api.kubelet.pluginregistration import (
    CSI_PLUGIN,
    GET_INFO,
    NOTIFY_STATUS,
    PLUGIN_REGISTRATION_SERVICE,
)
from api.kubelet.proto.pluginregistration_pb2 import (
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from kube.errors import one_line
from telemetry.conditions import AgentDegraded
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock

RECONCILE_EVERY_S: Final = 1.0
REGISTERED_WITHIN_S: Final = 10.0
"""Seconds after serving; kubelet looks once a second."""
DRAIN_WITHIN_S: Final = 2.0
"""Seconds for open calls to end when the driver stops; a mount takes milliseconds."""
DIRECTORY_MODE: Final = 0o750

SOURCE: Final = f"csi {DRIVER_NAME}"


@final
class RegisteredDriver:
    """Keeps a driver served and known to kubelet."""

    def __init__(
        self,
        socket: "Path",
        registry: "Path",
        *,
        endpoint: str,
        handlers: "Sequence[grpc.GenericRpcHandler]",
        clock: "Clock",
        problems: "ProblemRegistry",
    ) -> None:
        """Serve nothing yet.

        Args:
            socket: of the driver; its directory is made.
            registry: kubelet's directory `plugins_registry`.
            endpoint: the driver's socket as kubelet finds it, which may have another view of the node's files.
            handlers: the driver's services.
            clock: of the process.
            problems: collects problems for the condition AgentDegraded.
        """
        self._endpoint = endpoint
        self._clock = clock
        self._problems = problems
        self._driver = ServedSocket(socket, handlers)
        self._registration = ServedSocket(registry / REGISTRATION_SOCKET, [self._handlers()])
        self._served_at = clock.monotonic()
        self._status: RegistrationStatus | None = None
        # As kubelet reported it last, since the registration is served.
        self._changed = asyncio.Event()

    @property
    def is_registered(self) -> bool:
        """Return whether kubelet has the driver, as far as it said."""
        return self._status is not None and self._status.plugin_registered

    @property
    def missing(self) -> list[str]:
        """Return the reasons why pods cannot mount caches yet; empty once they can."""
        return [] if self.is_registered else [f"{DRIVER_NAME} is not registered with kubelet"]

    async def run(self) -> NoReturn:
        """Reconcile until cancelled, and stop serving then."""
        try:
            while True:
                self._changed.clear()
                await self.reconcile()
                await self._wait_for_status()
        finally:
            await self.close()

    async def reconcile(self) -> None:
        """Serve where a socket is gone; report what keeps kubelet from using the driver."""
        try:
            problem = await self._serve()
        except (OSError, RuntimeError) as error:
            # grpc raises RuntimeError where it cannot bind.
            TASK_FAILURES.labels("csi.serve").inc()
            problem = f"cannot be served: {one_line(str(error))}"
        if problem:
            text = f"{DRIVER_NAME}: {problem}"
            self._problems.set(SOURCE, AgentDegraded.NOT_REGISTERED, text)
        else:
            self._problems.clear(SOURCE)

    async def close(self) -> None:
        """Stop: first the registration, so that kubelet makes no more calls."""
        self._status = None
        await self._registration.stop(0)
        await self._driver.stop(DRAIN_WITHIN_S)

    async def _wait_for_status(self) -> None:
        """Return once kubelet reports one, or after `RECONCILE_EVERY_S`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECONCILE_EVERY_S):
                await self._changed.wait()

    async def _serve(self) -> str:
        """Return a problem; empty where there is none.

        Raises:
            OSError, RuntimeError: a socket cannot be bound.
        """
        self._driver.path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        for socket in (self._driver, self._registration):
            match await socket.ensure():
                case SocketState.TAKEN:
                    return f"another process serves {socket.path}"
                case SocketState.OPENED if socket is self._registration:
                    self._status, self._served_at = None, self._clock.monotonic()
                case SocketState.OPENED | SocketState.KEPT:
                    pass
        if self._status is None:
            waited_s = self._clock.monotonic() - self._served_at
            return self._not_registered if waited_s >= REGISTERED_WITHIN_S else ""
        return "" if self._status.plugin_registered else f"kubelet refuses it: {self._status.error}"

    @property
    def _not_registered(self) -> str:
        directory = self._registration.path.parent
        return f"kubelet does not register it: is {directory} its directory plugins_registry?"

    def _handlers(self) -> grpc.GenericRpcHandler:
        calls = UnaryCalls(
            component="the CSI driver",
            api="kubelet's plugin registration API v1",
            task="csi.answer",
            clock=self._clock,
            log_keys={"driver": DRIVER_NAME},
        )
        return grpc.method_handlers_generic_handler(
            PLUGIN_REGISTRATION_SERVICE,
            {
                GET_INFO: calls.handler(GET_INFO, InfoRequest, self._info),
                NOTIFY_STATUS: calls.handler(NOTIFY_STATUS, RegistrationStatus, self._notify),
            },
        )

    async def _info(self, _request: InfoRequest) -> PluginInfo:
        return PluginInfo(
            type=CSI_PLUGIN,
            name=DRIVER_NAME,
            endpoint=self._endpoint,
            supported_versions=[DRIVER_VERSION],
        )

    async def _notify(self, status: RegistrationStatus) -> RegistrationStatusResponse:
        self._status = status
        self._changed.set()
        return RegistrationStatusResponse()
