"""Settings that follow their objects while a server runs: decided at each change, reported by the leader.

Controllers read settings by value. A change of what only they read ends them and starts them again, as at the begin
of a leadership term, which takes less than a second; `ControlPlane` does so on `changed`.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, final

import msgspec
import structlog

from api.foreign.deckhouse import ModuleConfig
from api.kinds.gpucontrolplaneconfig import GPUControlPlaneConfig, GPUControlPlaneConfigStatus
from api.status_conditions import new_condition
from kube.errors import KubeError
from kube.event_recorder import ObjectReference
from kube.informer import Informer, Selection
from kube.resources import GPU_CONTROL_PLANE_CONFIGS, MODULE_CONFIGS
from manifests import constants
from server.configuration.config_source import merged
from server.configuration.config_state import StoredConfig, next_state
from telemetry import metrics
from telemetry.conditions import ConfigCondition, ConfigReason
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from api.clock import Clock, Instant
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from kube.sink import KubeObject
    from server.configuration.config_state import ConfigState
    from server.configuration.config_store import PreparedConfig
    from server.settings import Settings

FIELD_MANAGER: Final = "gpu-control-plane/configuration"
ACTION: Final = "ApplySettings"
"""Action of events."""
RETRY_S: Final = 1.0

T = TypeVar("T", bound="KubeObject")

_log = structlog.get_logger()


@final
class _OnlyObject(Generic[T]):
    """Sink of a selection that has one object at most."""

    def __init__(self, item: T | None, on_change: "Callable[[], None]") -> None:
        self.item = item
        self._on_change = on_change

    def replace_all(self, items: "Sequence[T]") -> None:
        self._take(items[0] if items else None)

    def upsert(self, item: T) -> None:
        self._take(item)

    def discard(self, item: T) -> None:
        self._take(None)

    def _take(self, item: T | None) -> None:
        self.item = item
        self._on_change()


@final
class ConfigFollower:
    """The settings in force, and what became of those that objects have."""

    def __init__(
        self, prepared: "PreparedConfig", client: "KubeClient", recorder: "EventRecorder"
    ) -> None:
        self.state = prepared.state
        self.changed = asyncio.Event()
        """Set when the state changes; the next change sets the event that is here then."""
        self._source = prepared.source
        self._started = prepared.state.settings
        self._client = client
        self._recorder = recorder
        self._reported_refusal = ""
        self._config = _OnlyObject(prepared.stored.config, self._decide)
        self._module = _OnlyObject(prepared.stored.module, self._decide)
        self._export()

    def informers(self, clock: "Clock") -> "dict[str, Informer[Any]]":
        selection = Selection(field_selector=f"metadata.name={constants.NAME}")
        parts: tuple[Any, ...] = (
            (GPU_CONTROL_PLANE_CONFIGS, GPUControlPlaneConfig, self._config),
            (MODULE_CONFIGS, ModuleConfig, self._module),
        )
        return {
            resource.plural: Informer(
                self._client,
                resource,
                kind,
                sink=sink,
                clock=clock,
                selection=selection,
                is_optional=True,
            )
            for resource, kind, sink in parts
        }

    async def until_other_than(self, settings: "Settings") -> None:
        """Return once other settings are in force than these."""
        while self.state.settings == settings:
            await self.changed.wait()

    async def report(self, now: "Callable[[], Instant]") -> NoReturn:
        """Write the status of the GPUControlPlaneConfig at each change, as the leader does."""
        while True:
            changed = self.changed
            try:
                await self._write_status(now)
            except KubeError as error:
                _log.warning("status of the settings not written", error=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                await changed.wait()

    @property
    def _stored(self) -> StoredConfig:
        return StoredConfig(config=self._config.item, module=self._module.item)

    def _decide(self) -> None:
        before = self.state
        self.state = next_state(before, self._source, self._stored, started=self._started)
        self._log_change(before)
        self._export()
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def _log_change(self, before: "ConfigState") -> None:
        state = self.state
        if state.is_missing and not before.is_missing:
            _log.warning("GPUControlPlaneConfig deleted: its last settings stay in force")
        if state.refusal and state.refusal != before.refusal:
            _log.warning("settings refused: the last ones stay in force", error=state.refusal)
        if state.settings != before.settings:
            _log.info("settings in force changed")

    def _export(self) -> None:
        for condition, holds in (
            ("Missing", self.state.is_missing),
            (ConfigCondition.RESTART_NEEDED.value, bool(self.state.restart_needed)),
            (ConfigCondition.REFUSED.value, bool(self.state.refusal)),
        ):
            metrics.CONFIG_PROBLEM.labels(condition).set(holds)

    async def _write_status(self, now: "Callable[[], Instant]") -> None:
        config, state = self._config.item, self.state
        if config is None:
            return
        status = status_of(config, state, merged(self._stored.layers), now=now().utc)
        if status == config.status:
            return
        body = {
            "apiVersion": GPU_CONTROL_PLANE_CONFIGS.api_version,
            "kind": GPU_CONTROL_PLANE_CONFIGS.kind,
            "metadata": {"name": constants.NAME, "uid": config.metadata.uid},
            "status": msgspec.to_builtins(status),
        }
        await self._client.apply(
            GPU_CONTROL_PLANE_CONFIGS, body, field_manager=FIELD_MANAGER, subresource="status"
        )
        if state.refusal != self._reported_refusal and state.refusal:
            self._recorder.warning(
                ObjectReference.to(GPU_CONTROL_PLANE_CONFIGS, config.metadata),
                EventReason.CONFIGURATION_REFUSED,
                state.refusal,
                action=ACTION,
            )
        self._reported_refusal = state.refusal


def status_of(
    config: GPUControlPlaneConfig,
    state: "ConfigState",
    given: "Mapping[str, Any]",
    *,
    now: "dt.datetime",
) -> GPUControlPlaneConfigStatus:
    """Return the status of the object that led to the state, with the settings that all objects gave."""
    before = config.status or GPUControlPlaneConfigStatus()
    restart = (
        f"{', '.join(state.restart_needed)}: servers read it when they start; kubectl -n"
        f" {state.settings.namespace} rollout restart deployment {constants.NAME}"
    )
    if state.refusal:
        reason, message = ConfigReason.INVALID, state.refusal
    elif state.restart_needed:
        reason, message = ConfigReason.READ_AT_START, restart
    else:
        reason, message = ConfigReason.IN_FORCE, "all settings are in force"
    refused = bool(state.refusal)
    rows = (
        (ConfigCondition.APPLIED, reason is ConfigReason.IN_FORCE, reason, message),
        (
            ConfigCondition.RESTART_NEEDED,
            bool(state.restart_needed),
            ConfigReason.READ_AT_START if state.restart_needed else ConfigReason.IN_FORCE,
            restart if state.restart_needed else "",
        ),
        (
            ConfigCondition.REFUSED,
            refused,
            ConfigReason.INVALID if refused else ConfigReason.IN_FORCE,
            state.refusal,
        ),
    )
    return GPUControlPlaneConfigStatus(
        observed_generation=config.metadata.generation,
        applied=before.applied if refused else dict(given),
        conditions=[
            new_condition(
                type_,
                cause,
                text,
                status=holds,
                current=before.conditions,
                generation=config.metadata.generation,
                now=now,
            )
            for type_, holds, cause, text in rows
        ],
    )
