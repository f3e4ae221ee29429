"""The composition root of what the console knows of a cluster."""

from typing import TYPE_CHECKING, NoReturn, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Clock
    from console.console_data import EventStream, PodTrial
    from console.data.read_scope import ReadScope
    from console.rows import DeviceDetail, PodDetail, ViewerRow, WhatIfAnswer
    from console.visibility import Visibility
    from kube.client import KubeClient


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
        raise NotImplementedError

    @property
    def is_ready(self) -> bool:
        """Say whether all lists have been read, and a snapshot can be made."""
        raise NotImplementedError

    async def run(self) -> NoReturn:
        """Read and watch the cluster, and feed the streams, until cancelled; raises a fault of ours."""
        raise NotImplementedError

    @property
    def open_streams(self) -> int:
        raise NotImplementedError

    def open_stream(
        self, viewer: "ViewerRow", visibility: "Visibility", *, drop: "Callable[[], None]"
    ) -> "EventStream":
        raise NotImplementedError

    def device(self, name: str, visibility: "Visibility") -> "DeviceDetail | None":
        raise NotImplementedError

    def pod(self, namespace: str, name: str, visibility: "Visibility") -> "PodDetail | None":
        raise NotImplementedError

    def try_pods(self, trial: "PodTrial", visibility: "Visibility") -> "WhatIfAnswer":
        raise NotImplementedError
