"""What a run leaves of the control plane, whenever it ends."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.fault.injecting import Injecting
from tests.fault.steps import Kind, Step


class _ControlPlane:
    """Stands for the processes: a restart ends when the test says so."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ready = asyncio.Event()
        self.running = True

    async def restart_apiserver(self) -> None:
        self.running = False
        self.begun.set()
        await self.ready.wait()
        self.running = True


async def test_a_run_that_ends_amid_a_restart_leaves_a_control_plane_that_runs():
    control_plane: Any = _ControlPlane()
    scheduler = SimpleNamespace(process=SimpleNamespace(running=True))
    fleet: Any = SimpleNamespace(scheduler=scheduler)
    arena: Any = None
    injecting = Injecting(arena, control_plane, fleet)
    async with asyncio.TaskGroup() as group:
        injecting.restarts = group
        step = group.create_task(injecting.carry_out(Step(Kind.API_SERVER_RESTARTED, ())))
        await control_plane.begun.wait()
        step.cancel()
        restoring = group.create_task(injecting.restore())
        await asyncio.wait({step})
        assert not restoring.done()
        control_plane.ready.set()
        await restoring
    assert control_plane.running
