"""`pool.workloads`: the device plugin's configuration of a pool, and its DaemonSet, in our namespace.

What is desired is pure (`manifests.node.device_plugin`); it is written when what we set is not what is there,
or when its digest is another. Fields that the API server or others added are no difference.
A pool that is empty, being deleted, unsupported or misconfigured has no workloads: running pods keep
their devices without a plugin. The key `ALL_POOLS` stands for the workloads that serve all pools of a node.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.foreign.workload_kinds import ConfigMap, DaemonSet
from kube.errors import NotFound
from kube.event_recorder import ObjectReference
from kube.resources import CONFIG_MAPS, DAEMON_SETS, GPU_POOLS
from manifests.install.rbac import PolicyRule
from manifests.node.agent_daemonset import build_node_agent
from manifests.node.detector_daemonset import build_node_detector
from manifests.node.device_plugin import (
    UnservablePoolError,
    build_pool_workloads,
    digest_of,
    pool_config,
    unserved,
)
from reconciler.controller_spec import ControllerContext, ControllerSpec, Trigger
from reconciler.pool.plugin_config import COALESCE_S, plugin_config_facts
from reconciler.pool.validation_cache import validity_cache
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.object_applier import ObjectApplier
from reconciler.runtime.rolling_update import Rollouts, allowing_for_unready_nodes
from reconciler.sinks.live_workloads import ALL_POOLS
from telemetry.conditions import PoolCondition
from telemetry.metrics import DAEMON_SET_OUTDATED
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from api.clock import Instant
    from api.kinds.gpupool import GPUPool
    from api.meta import ObjectMeta
    from api.names import NodeName, PoolName
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from kube.resources import Resource
    from kube.store import IndexedStore
    from manifests.node.device_plugin import WorkloadSettings
    from pool.catalog import Catalog
    from pool.model import NodeFacts
    from reconciler.controller_spec import Reconcile
    from reconciler.pool.plugin_config import Devices, PluginConfigFacts

_VERBS: Final = ("create", "delete", "list", "patch", "watch")
NAMESPACED_RBAC: Final = (
    PolicyRule(resources=("configmaps",), verbs=_VERBS),
    PolicyRule(group="apps", resources=("daemonsets",), verbs=_VERBS),
)
FIELD_MANAGER: Final = "gpu-control-plane/pool-workloads"
ACTION: Final = "ServePool"
"""Action of events."""
MANY_NODES: Final = 200
"""A list of fewer is built in 2 ms."""
SEEN_WITHIN_S: Final = 10.0
"""A write that the watch does not show by then is done again."""

Json = dict[str, Any]


def naming_workloads(
    config_maps: "IndexedStore[str, PoolName, ConfigMap]",
    daemon_sets: "IndexedStore[str, PoolName, DaemonSet]",
) -> "Callable[[PoolName], list[str]]":
    """Return a function that names the objects of a pool, as `DaemonSet gpu-device-plugin-x`."""
    kinds = ((CONFIG_MAPS.kind, config_maps), (DAEMON_SETS.kind, daemon_sets))
    return lambda pool: [f"{kind} {name}" for kind, live in kinds for name in live.of(pool)]


@final
@dataclass(frozen=True, slots=True)
class _Found:
    """An object by name, and its live form."""

    name: str
    live: ConfigMap | DaemonSet | None

    @property
    def metadata(self) -> "ObjectMeta | None":
        return None if self.live is None else self.live.metadata


@final
@dataclass(frozen=True, slots=True)
class _Desired:
    form: object
    """The part of the pool that its workloads depend on."""
    revision: int
    """Revision of its devices."""
    objects: list[Json]


@final
class PoolWorkloads:
    """Reconciles the workloads of one pool."""

    def __init__(  # noqa: PLR0913  # stores and services
        self,
        client: "KubeClient",
        catalog: "Catalog",
        exported: "PluginConfigFacts",
        *,
        config_maps: "IndexedStore[str, PoolName, ConfigMap]",
        daemon_sets: "IndexedStore[str, PoolName, DaemonSet]",
        settings: "WorkloadSettings",
        recorder: "EventRecorder",
        now: "Callable[[], Instant]",
        nodes: "Mapping[NodeName, NodeFacts]",
    ) -> None:
        self._client = client
        self._applier = ObjectApplier(
            client,
            {item.kind: item for item in (CONFIG_MAPS, DAEMON_SETS)},
            field_manager=FIELD_MANAGER,
            recorder=recorder,
            now=now,
            source="the GPUPool or the settings of the server",
        )
        self._catalog = catalog
        self._exported = exported
        self._config_maps = config_maps
        self._daemon_sets = daemon_sets
        self._settings = settings
        self._nodes = nodes
        self._recorder = recorder
        self._rollouts = Rollouts(recorder)
        self._expected: Expectations[tuple[str, str], str] = Expectations(
            now, seen_within_s=SEEN_WITHIN_S
        )
        # kind and name -> digest, empty of a deletion
        self._desired_by_pool: dict[PoolName, _Desired] = {}
        self._recorded: dict[PoolName, str] = {}

    async def reconcile(self, name: "PoolName") -> float | None:
        """Write differences and delete surplus objects; reconcile again while the watch has not delivered them.

        The objects of a pool that cannot be read stay as they are.
        """
        if name in self._catalog.unread_pools:
            return None
        for _ in self._exported.hydrating():
            await asyncio.sleep(0)
        try:
            desired = await self._desired(name)
        except UnservablePoolError as error:
            self._record(name, str(error))
            return None
        is_waiting = name == ALL_POOLS  # for nodes that die
        for resource, live in (
            (CONFIG_MAPS, self._config_maps.of(name)),
            (DAEMON_SETS, self._daemon_sets.of(name)),
        ):
            desired_objects = {
                item["metadata"]["name"]: item for item in desired if item["kind"] == resource.kind
            }
            for key in sorted(desired_objects.keys() | live.keys()):
                found = _Found(key, live.get(key))
                is_waiting |= await self._make(resource, found, desired_objects.get(key))
        return SEEN_WITHIN_S if is_waiting else None

    async def _desired(self, name: "PoolName") -> list[Json]:
        """Return the pool's objects; the same ones as long as nothing changes."""
        if name == ALL_POOLS:
            objects = [*build_node_agent(self._settings), *build_node_detector(self._settings)]
            live = {
                key: msgspec.to_builtins(item) for key, item in self._daemon_sets.of(name).items()
            }
            return allowing_for_unready_nodes(objects, list(self._nodes.values()), live=live)
        pool = self._catalog.pools.get(name)
        if pool is None or not _may_run(pool):
            self._desired_by_pool.pop(name, None)
            self._recorded.pop(name, None)
            return []
        before = self._desired_by_pool.get(name)
        form = (pool.metadata.uid, pool.spec, pool.allocation)
        if before is None or before.form != form:
            for _ in self._exported.rereading_pool(name):
                await asyncio.sleep(0)
        revision = self._exported.revision(name)
        if before is not None and (before.form, before.revision) == (form, revision):
            return before.objects
        objects = await self._build(pool)
        self._desired_by_pool[name] = _Desired(form, revision, objects)
        return objects

    async def _build(self, pool: "GPUPool") -> list[Json]:
        """Build, a long list in a thread: packing one of 20,000 devices takes a tenth of a second."""
        devices = self._exported.of_pool(pool.name)
        if not devices:
            return []
        self._record(pool.name, unserved(pool, self._settings))
        if len(devices) < MANY_NODES:
            return _build_all(pool, devices, self._settings)
        return await asyncio.to_thread(_build_all, pool, devices, self._settings)

    async def _make(self, resource: "Resource", found: _Found, body: Json | None) -> bool:
        """Reconcile one object; say whether the watch has yet to show a write."""
        live = None if found.live is None else msgspec.to_builtins(found.live)
        if live is not None and resource is DAEMON_SETS:
            self._rollouts.report(live, list(self._nodes.values()))
        if body is not None and not self._applier.differs(body, live):
            return False
        key, digest = (
            (resource.kind, found.name),
            "" if body is None else digest_of(body),
        )
        if self._expected.unseen(key, found.metadata) == digest:
            return True
        if body is not None:
            if (written := await self._applier.put(body, live)) is not None:
                self._expected.expect(key, digest, written)
        elif found.live is not None:
            meta = found.live.metadata
            with contextlib.suppress(NotFound):
                await self._client.delete(
                    resource, meta.name, namespace=meta.namespace, uid=meta.uid
                )
            self._expected.expect_deletion(key, digest, meta.uid)
            self._rollouts.forget(found.name)
        return True

    def _record(self, name: "PoolName", text: str) -> None:
        """Record once on the pool why it cannot be served."""
        if self._recorded.get(name, "") == text:
            return
        self._recorded[name] = text
        pool = self._catalog.pools.get(name)
        if text and pool is not None:
            self._recorder.warning(
                ObjectReference.to(GPU_POOLS, pool.metadata),
                EventReason.MISCONFIGURED,
                text,
                action=ACTION,
            )


def _build_all(
    pool: "GPUPool",
    devices: "Mapping[NodeName, Devices]",
    settings: "WorkloadSettings",
) -> list[Json]:
    return build_pool_workloads(pool, pool_config(pool, devices), settings)


def _may_run(pool: "GPUPool") -> bool:
    if pool.metadata.deletion_timestamp is not None:
        return False
    against = {PoolCondition.SUPPORTED.value: "False", PoolCondition.MISCONFIGURED.value: "True"}
    return not any(
        against.get(condition.type) == condition.status
        for condition in pool.status.conditions or ()
    )


def _build(context: ControllerContext) -> "Reconcile":
    # Those of operands, too.
    context.ending.callback(DAEMON_SET_OUTDATED.clear)
    return PoolWorkloads(
        context.client,
        context.catalog,
        context.shared(plugin_config_facts),
        config_maps=context.stores.config_maps,
        daemon_sets=context.stores.daemon_sets,
        settings=context.settings.workloads,
        recorder=context.recorder,
        now=context.now,
        nodes=context.index.nodes,
    ).reconcile


def _initial(context: ControllerContext) -> "list[PoolName]":
    stores = context.stores
    return [
        *stores.config_maps.groups(),
        *stores.daemon_sets.groups(),
        ALL_POOLS,
        *context.catalog.pools,
    ]


SPEC: Final = ControllerSpec(
    name="pool.workloads",
    namespaced_rbac=NAMESPACED_RBAC,
    triggers=(
        Trigger(source=lambda context: context.stores.config_maps.changes, delay_s=COALESCE_S),
        Trigger(source=lambda context: context.stores.daemon_sets.changes, delay_s=COALESCE_S),
        Trigger(source=lambda context: context.shared(validity_cache).pools, delay_s=COALESCE_S),
        Trigger(
            source=lambda context: context.shared(plugin_config_facts).changes,
            delay_s=lambda context, pool: context.shared(plugin_config_facts).coalesce_s(pool),
        ),
    ),
    initial=_initial,
    build=_build,
)
