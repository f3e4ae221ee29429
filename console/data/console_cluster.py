"""What the console knows of a cluster, put together: informers, rows, streams and answers."""

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, final

from console.data.answers.device_details import device_detail
from console.data.answers.pod_details import pod_detail
from console.data.answers.pod_trials import try_pods
from console.data.state.cluster import ClusterState
from console.data.state.cluster_informers import ClusterInformers
from console.data.streams.hub import StreamHub
from console.data.tables.cluster_rows import ClusterRows
from console.data.tables.visible_rows import RowViewer
from console.data.viewer_decisions import ViewerDecisions
from telemetry.tasks import start_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Clock
    from console.console_data import EventStream, PodTrial
    from console.data.read_scope import ReadScope
    from console.data.viewer_decisions import ViewerClients
    from console.rows import DeviceDetail, PodDetail, ViewerRow, WhatIfAnswer
    from console.visibility import Visibility
    from kube.client import KubeClient

TICK_S: Final = 0.25
"""Seconds between two events, unless more has changed than one step makes rows of."""
BUSY_TICK_S: Final = 0.05


@final
class ConsoleCluster:
    """A cluster, read and watched; implements `console.console_data.ConsoleData`."""

    def __init__(
        self, client: "KubeClient", clock: "Clock", *, scope: "ReadScope", origin: str
    ) -> None:
        """Put the parts together; nothing is read before `run`.

        Args:
            client: open, and closed by the caller after `run`.
            clock: of the process.
            scope: which lists may be read (`console.data.read_scope.find_scope`, or `ReadScope.whole`).
            origin: what is read, in words, for the page.
        """
        self._state = ClusterState(clock, scope)
        self._informers = ClusterInformers(client, clock, self._state)
        self._rows = ClusterRows(self._state)
        self._hub = StreamHub(self._state, self._rows, origin=origin)
        self._is_ready = False

    @property
    def is_ready(self) -> bool:
        """Say whether all lists have been read, and a snapshot can be made."""
        return self._is_ready

    @property
    def unread(self) -> "list[str]":
        """Return the resources whose lists have not been read yet."""
        return self._informers.unread()

    async def run(self) -> NoReturn:
        """Read and watch the cluster, and feed the streams, until cancelled; raises a fault of ours."""
        async with asyncio.TaskGroup() as group:
            tasks = {
                "informers": self._informers.run(),
                "rows": self._feed(),
                "explanations": self._explain(),
            }
            start_all(group, tasks)
        raise AssertionError("tasks do not return")

    def open_stream(
        self, viewer: "ViewerRow", visibility: "Visibility", *, drop: "Callable[[], None]"
    ) -> "EventStream":
        return self._hub.open(viewer, visibility, drop=drop)

    def device(self, name: str, visibility: "Visibility") -> "DeviceDetail | None":
        return device_detail(self._state, name, self._viewer(visibility))

    def pod(self, namespace: str, name: str, visibility: "Visibility") -> "PodDetail | None":
        return pod_detail(
            self._state,
            self._rows,
            f"{namespace}/{name}",
            viewer=self._viewer(visibility),
        )

    def try_pods(self, trial: "PodTrial", visibility: "Visibility") -> "WhatIfAnswer":
        return try_pods(
            self._state, self._rows.explanations, trial, viewer=self._viewer(visibility)
        )

    def decisions(self, clients: "ViewerClients") -> ViewerDecisions:
        """Return what writes viewers' decisions, with clients that have their rights."""
        return ViewerDecisions(self._state.devices, clients)

    def _viewer(self, visibility: "Visibility") -> RowViewer:
        return RowViewer(visibility, self._state.moments)

    async def _feed(self) -> NoReturn:
        await self._informers.wait_until_synced()
        self._rows.step()
        while self._rows.is_behind:
            await asyncio.sleep(0)
            self._rows.step()
        self._is_ready = True
        while True:
            self.tick()
            await asyncio.sleep(BUSY_TICK_S if self._rows.is_behind else TICK_S)

    def tick(self) -> None:
        """Make rows of what has changed, and send them."""
        self._rows.step(self._informers.interrupted(), self._informers.unreadable())
        self._hub.publish()

    async def _explain(self) -> NoReturn:
        while True:
            pause_s = self._rows.explain(self._hub.sees)
            await asyncio.sleep(pause_s)
