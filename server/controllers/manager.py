"""Controllers of one leadership term: all are built and subscribed before the first one runs, and end together."""

from typing import TYPE_CHECKING, final

from telemetry.tasks import start_all

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from reconciler.controller_spec import ControllerContext, ControllerSpec, TaskSpec


@final
class ControllerManager:
    """Starts the enabled specs; `context.ending` and the task group stop them."""

    def __init__(
        self, context: "ControllerContext", specs: "Iterable[ControllerSpec | TaskSpec]"
    ) -> None:
        self._context = context
        self._specs = [spec for spec in specs if spec.is_enabled(context.settings)]

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self._specs]

    async def start(self, group: "asyncio.TaskGroup") -> None:
        """Run each spec as a task of its name; all subscribe before anything is awaited."""
        runs = {spec.name: spec.start(self._context) for spec in self._specs}
        for opening in self._context.openings:
            await self._context.ending.enter_async_context(opening)
        start_all(group, {name: run() for name, run in runs.items()})
