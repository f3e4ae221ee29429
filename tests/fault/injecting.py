"""Steps into deeds: what each kind of step does to proxies, processes, pods and cluster."""

import asyncio
import secrets
import shutil
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from tests.fault.breaking import Breakage, Call, Fault
from tests.fault.fleet import API_TIMEOUT_S, BIND_TIMEOUT_S
from tests.fault.steps import Kind
from tests.fault.streams import Disturbance

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from pathlib import Path

    from tests.cluster.environment import control_plane as control_planes
    from tests.fault.arena import Arena
    from tests.fault.fleet import Fleet, Replica
    from tests.fault.steps import Arguments, Step, Value

_T = TypeVar("_T")

SERVES_WITHIN_S: Final = 20.0
_STOPS_WITHIN_S: Final = 120.0
_NO_WATCH_FOR_S: Final = 10.0
_A_MOMENT_S: Final = 0.3

_STATUS: "Final[Mapping[Kind, int]]" = {
    Kind.STATUS_409: 409,
    Kind.STATUS_422: 422,
    Kind.STATUS_429: 429,
    Kind.STATUS_500: 500,
    Kind.STATUS_503: 503,
}
_BREAKAGE: "Final[Mapping[Kind, Breakage]]" = {
    **dict.fromkeys(_STATUS, Breakage.STATUS),
    Kind.RESET_BEFORE: Breakage.RESET_BEFORE,
    Kind.RESET_AFTER: Breakage.RESET_AFTER,
    Kind.ERROR_AFTER: Breakage.ERROR_AFTER,
    Kind.LATE: Breakage.LATE,
    Kind.SWALLOWED: Breakage.SWALLOWED,
}
_DISTURBANCE: "Final[Mapping[Kind, Disturbance]]" = {
    Kind.WATCH_CUT: Disturbance.CUT,
    Kind.WATCH_SLOW: Disturbance.SLOW,
    Kind.WATCH_GONE_EVENT: Disturbance.GONE,
    Kind.WATCH_TWICE: Disturbance.TWICE,
    Kind.WATCH_REPLAY: Disturbance.REPLAY,
    Kind.WATCH_SWAP: Disturbance.SWAP,
}


@final
class Injecting:
    """Carries steps out; a step returns when its deed is done or under way."""

    group: asyncio.TaskGroup
    """Where deeds that take time go on; set by the run."""
    restarts: asyncio.TaskGroup
    """Where restarts of the control plane go on when the run ends amid one; set by the run."""
    go_back: "Callable[[Path], Awaitable[None]]"
    """Restores etcd and judges from there on; set by the run."""

    def __init__(
        self, arena: "Arena", control_plane: "control_planes.ControlPlane", fleet: "Fleet"
    ) -> None:
        self._arena = arena
        self._control_plane = control_plane
        self._fleet = fleet
        self._scheduler_is_busy = asyncio.Lock()
        self._backup: Path | None = None
        self._restart: asyncio.Task[Any] | None = None
        """The last one of the API server or the whole control plane."""
        self._traps = {
            Kind.KILL_AFTER_RESERVATION: ("mutate", Breakage.PASS_THEN_ACT, self._kill),
            Kind.KILL_BEFORE_BIND: ("binding", Breakage.RESET_BEFORE, self._kill),
            Kind.KILL_AFTER_BIND: ("binding", Breakage.RESET_AFTER, self._kill),
            Kind.KILL_LATE_BIND: ("binding", Breakage.LATE, self._kill),
            Kind.KILL_BEFORE_STATUS: ("status", Breakage.RESET_BEFORE, self._kill),
            Kind.KILL_BEFORE_NODE: ("node write", Breakage.RESET_BEFORE, self._kill),
            Kind.KILL_AFTER_NODE: ("node write", Breakage.RESET_AFTER, self._kill),
            Kind.STOP_AMID_BIND: ("binding", Breakage.LATE, self._begin_to_stop),
            Kind.DELETED_BEFORE_BIND: ("bind", Breakage.PASS, self._delete),
            Kind.DELETED_AMID_BIND: ("binding", Breakage.PASS, self._delete),
            Kind.DELETED_AFTER_BIND: ("binding", Breakage.PASS_THEN_ACT, self._delete),
            Kind.REPLACED_AMID_BIND: ("binding", Breakage.PASS, self._replace),
            Kind.DEVICES_SWAPPED_AMID_BIND: ("binding", Breakage.PASS, self._swap_devices),
        }

    async def carry_out(self, step: "Step") -> None:
        kind, given = step.kind, step.arguments
        if kind in _BREAKAGE:
            target, times = given
            self._fleet.armed.arm(_request_fault(kind, str(target)), int(times))
        elif kind in self._traps:
            self._set_trap(kind, given)
        elif kind is Kind.PAUSE_AMID_BIND:
            self._arm_pause(float(given[0]))
        elif kind is Kind.WATCH_GONE:
            resource = str(given[0])
            self._fleet.armed.arm(
                Fault(
                    name=kind.value,
                    target=f"watch {resource}",
                    breakage=Breakage.STATUS,
                    status=410,
                )
            )
            self._disturb(resource, Disturbance.CUT, "", 0)
        elif kind is Kind.NOT_SERVED:
            self.group.create_task(self._serve_not(str(given[0]), float(given[2])))
        elif kind in _DISTURBANCE:
            self.group.create_task(self._disturb_in_time(kind, str(given[0]), float(given[1])))
        else:
            await self._do(kind, given)

    async def restore(self) -> None:
        """Have everything running again that the steps ended."""
        if self._restart is not None:
            await self._restart
        async with self._scheduler_is_busy:
            if not self._fleet.scheduler.process.running:
                await self._fleet.scheduler.start()

    async def restore_etcd(self, backup: "Path") -> None:
        async with self._scheduler_is_busy:
            await self._to_its_end(self._control_plane.restore_with_clients(backup))
        await self._arena.growing.kill_karpenter()

    # --- what happens to passing requests and watches ----------------------------------------------

    def _set_trap(self, kind: Kind, given: "Arguments") -> None:
        target, breakage, action = self._traps[kind]
        held_s = float(given[0]) if given else _A_MOMENT_S
        self._fleet.armed.arm(
            Fault(
                name=kind.value,
                target=target,
                breakage=breakage,
                action=action,
                held_s=held_s,
                ends_a_server=action in {self._kill, self._begin_to_stop},
            )
        )

    def _arm_pause(self, for_s: float) -> None:
        async def pause(call: Call) -> None:
            process = self._replica(call).process
            if process.running:
                process.pause()
                self.group.create_task(self._resume_after(self._replica(call), for_s))

        self._fleet.armed.arm(
            Fault(
                name=Kind.PAUSE_AMID_BIND.value,
                target="binding",
                breakage=Breakage.LATE,
                held_s=for_s,
                action=pause,
                ends_a_server=True,
            )
        )

    async def _resume_after(self, replica: "Replica", for_s: float) -> None:
        await asyncio.sleep(for_s)
        if replica.process.running:
            replica.process.resume()

    async def _serve_not(self, resource: str, for_s: float) -> None:
        """Answer 404 to whatever lists or watches the resource."""
        self._fleet.armed.not_served.add(resource)
        self._disturb(resource, Disturbance.CUT, "", 0)
        await asyncio.sleep(for_s)
        self._fleet.armed.not_served.discard(resource)

    async def _disturb_in_time(self, kind: Kind, resource: str, amount: float) -> None:
        """Do it to the live watches, or to the next ones where there is none at this moment."""
        deadline = asyncio.get_running_loop().time() + _NO_WATCH_FOR_S
        while not self._disturb(resource, _DISTURBANCE[kind], kind.value, amount):
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(_A_MOMENT_S)

    def _disturb(self, resource: str, disturbance: Disturbance, name: str, amount: float) -> bool:
        reached = [
            proxy.disturb(resource, disturbance, name, amount) for proxy in self._fleet.proxies()
        ]
        return any(reached)

    def _replica(self, call: Call) -> "Replica":
        return self._fleet.replicas[call.replica]

    async def _kill(self, call: Call) -> None:
        self._replica(call).kill9()

    async def _begin_to_stop(self, call: Call) -> None:
        self.group.create_task(self._stop(self._replica(call)))

    async def _delete(self, call: Call) -> None:
        await self._arena.delete_pod(call.pod)

    async def _replace(self, call: Call) -> None:
        await self._arena.replace_pod(call.pod)

    async def _swap_devices(self, call: Call) -> None:
        await self._arena.swap_devices(call.node)

    # --- deeds -----------------------------------------------------------------------------------

    async def _do(self, kind: Kind, given: "Arguments") -> None:
        await self._deeds()[kind](given)
        self._fleet.armed.used[kind.value] += 1

    def _deeds(self) -> "Mapping[Kind, Callable[[Arguments], Awaitable[None]]]":
        arena, numbers = self._arena, _numbers
        return {
            Kind.CREATE: self._create,
            Kind.DELETE: self._delete_pods,
            Kind.FINISH: lambda given: arena.finish_pod(int(given[0]), str(given[1])),
            Kind.UNGATE: lambda given: arena.ungate_pod(int(given[0])),
            Kind.WAIT: self._wait,
            Kind.KILL: self._kill_leader,
            Kind.STOP: self._stop_leader,
            Kind.CLOCK: self._set_clock,
            Kind.SCHEDULER_KILLED: self._kill_scheduler,
            Kind.SCHEDULER_RESTARTED: self._restart_scheduler,
            Kind.API_SERVER_RESTARTED: self._restart_api_server,
            Kind.BACKED_UP: self._back_up,
            Kind.RESTORED: self._go_back,
            Kind.NEXT_VERSION: self._write_next_version,
            Kind.NODE_GONE: lambda given: arena.remove_node(*numbers(given)),
            Kind.NODE_BACK: lambda given: arena.bring_node_back(*numbers(given)),
            Kind.CORDON: lambda given: arena.set_cordon(*numbers(given), is_cordoned=True),
            Kind.UNCORDON: lambda given: arena.set_cordon(*numbers(given), is_cordoned=False),
            Kind.DEVICE_FAULTY: lambda given: arena.set_faulty(*numbers(given), is_faulty=True),
            Kind.DEVICE_HEALTHY: lambda given: arena.set_faulty(*numbers(given), is_faulty=False),
            Kind.DEVICE_MOVED: lambda given: arena.move_device(*numbers(given)),
            Kind.STRATEGY: lambda given: arena.set_strategy(int(given[0]), str(given[1])),
            Kind.TTL: lambda given: arena.set_ttl(int(given[0]), str(given[1])),
            Kind.POOL_REPLACED: self._replace_pool,
            Kind.KARPENTER_KILLED: lambda _given: arena.growing.kill_karpenter(),
            Kind.NODE_CLAIM_DELETED: lambda _given: arena.growing.take_node(),
            Kind.DRIVER_VERSION: lambda given: arena.drivers.set_version(
                arena.insist, *numbers(given)
            ),
            Kind.UPGRADE_LIMITS: lambda given: arena.drivers.set_limits(
                arena.insist, int(given[0]), _number_or_share(given[1])
            ),
            Kind.DRIVER_CRASHES: self._crash_driver,
        }

    async def _create(self, given: "Arguments") -> None:
        first, count, pool, shape, is_important, is_gated = given
        for number in range(int(first), int(first) + int(count)):
            self.group.create_task(
                self._arena.create_pod(
                    number,
                    int(pool),
                    str(shape),
                    is_important=bool(is_important),
                    is_gated=bool(is_gated),
                )
            )

    async def _delete_pods(self, given: "Arguments") -> None:
        last, count, grace_s = _numbers(given)
        for number in range(max(0, last + 1 - count), last + 1):
            await self._arena.delete_pod_number(number, grace_s=grace_s)

    async def _replace_pool(self, given: "Arguments") -> None:
        self.group.create_task(self._arena.replace_pool(*_numbers(given)))

    async def _crash_driver(self, given: "Arguments") -> None:
        node, for_s = _numbers(given)
        self.group.create_task(self._arena.crash_driver(node, for_s))

    async def _wait(self, given: "Arguments") -> None:
        await self._fleet.serving(SERVES_WITHIN_S)

    async def _kill_leader(self, given: "Arguments") -> None:
        self._fleet.leader().kill9()

    async def _stop_leader(self, given: "Arguments") -> None:
        self.group.create_task(self._stop(self._fleet.leader()))

    async def _stop(self, replica: "Replica") -> None:
        if replica.process.running:
            await replica.process.terminate(within=_STOPS_WITHIN_S)

    async def _set_clock(self, given: "Arguments") -> None:
        self._fleet.set_clock(float(given[0]))

    async def _kill_scheduler(self, given: "Arguments") -> None:
        self.group.create_task(self._start_scheduler(self._fleet.scheduler.kill9))

    async def _restart_scheduler(self, given: "Arguments") -> None:
        self.group.create_task(self._start_scheduler(lambda: None))

    async def _start_scheduler(self, end: "Callable[[], None]") -> None:
        async with self._scheduler_is_busy:
            end()
            if self._fleet.scheduler.process.running:
                await self._fleet.scheduler.stop()
            await self._fleet.scheduler.start()

    async def _restart_api_server(self, given: "Arguments") -> None:
        await self._to_its_end(self._control_plane.restart_apiserver())

    async def _back_up(self, given: "Arguments") -> None:
        if self._backup is not None:
            shutil.rmtree(self._backup)
        name = f"backup-{secrets.token_hex(3)}"
        self._backup = await self._to_its_end(self._control_plane.back_up(name))

    def _to_its_end(self, restart: "Coroutine[None, None, _T]") -> "asyncio.Future[_T]":
        """Return what can be cancelled while the restart goes on; `restore` waits for its end."""
        self._restart = task = self.restarts.create_task(restart)
        return asyncio.shield(task)

    async def _go_back(self, given: "Arguments") -> None:
        if self._backup is not None:
            await self.go_back(self._backup)

    async def _write_next_version(self, given: "Arguments") -> None:
        resource, number, for_s, ends_servers = given
        objects, insist = self._arena.unreadable, self._arena.insist
        name = await objects.write(insist, str(resource), int(number))
        if ends_servers:
            for replica in self._fleet.replicas:
                replica.kill9()
        self.group.create_task(objects.put_back_after(insist, str(resource), name, float(for_s)))


def _request_fault(kind: Kind, target: str) -> Fault:
    is_binding = target == "binding"
    return Fault(
        name=kind.value,
        target=target,
        breakage=_BREAKAGE[kind],
        status=_STATUS.get(kind, 500),
        retry_after_s=1 if kind is Kind.STATUS_429 else None,
        held_s=(BIND_TIMEOUT_S if is_binding else API_TIMEOUT_S) + 0.5,
    )


def _number_or_share(given: "Value") -> int | str:
    return given if isinstance(given, str) else int(given)


def _numbers(given: "Arguments") -> tuple[int, ...]:
    return tuple(int(item) for item in given)
