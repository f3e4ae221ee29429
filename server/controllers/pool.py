"""A leader's controllers of pools: what runs for them, what they show, how they change and end."""

from typing import TYPE_CHECKING, Final, final

from api.names import DeviceName, NodeName, PoolName
from inventory.health.device import IGNORED_XIDS
from manifests.node.device_plugin import NodeAgentSettings, WorkloadSettings, names_registry
from reconciler.device.state import DeviceStatus
from reconciler.pool.lifecycle import LifecycleDependencies, PoolLifecycle
from reconciler.pool.node_labels import PoolNodeLabels
from reconciler.pool.plugin_config import COALESCE_S, NodePluginConfigs, PluginConfigFacts
from reconciler.pool.remains import PoolRemains
from reconciler.pool.status import PoolStatus
from reconciler.pool.workloads import ACTION as SERVE_ACTION
from reconciler.pool.workloads import ALL_POOLS, PoolWorkloads, naming_workloads
from reconciler.runtime.controller import STATUS_SHARE, Controller
from reconciler.runtime.events import Announcer
from server.settings import BadSettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from server.caches import Caches
    from server.controllers.manager import ControllerManager
    from server.settings import Settings

DEVICE_WORKERS: Final = 4
"""Status writes at a time; a quiet API server is through with 1,000 devices in seconds."""


def workload_settings(settings: "Settings") -> WorkloadSettings:
    """Return what pools run; the usual Xids are not named, so that nodes of an older form stay as they are."""
    plugin, ignored = settings.device_plugin, frozenset(settings.health.ignored_xids)
    return WorkloadSettings(
        image=plugin.image,
        namespace=settings.namespace,
        mode=plugin.mode,
        plugin=plugin.plugin,
        hand_out=plugin.hand_out,
        cdi_kind=plugin.cdi_kind,
        node_selector=plugin.node_selector,
        agent=NodeAgentSettings(
            is_enabled=settings.node_agent.enabled,
            image=settings.node_agent.image,
            ignored_xids=None if ignored == IGNORED_XIDS else ignored,
        ),
    )


def check_images(settings: "Settings") -> None:
    """Check that each image of our DaemonSets, some of them privileged, says where it is from.

    Raises:
        BadSettings: one does not; container runtimes would take it from docker.io.
    """
    unsaid = [one for one in workload_settings(settings).images if not names_registry(one)]
    if unsaid:
        raise BadSettingsError(
            f"device_plugin.image, node_agent.image: {', '.join(repr(one) for one in unsaid)} names no"
            " registry, and privileged DaemonSets are made of it: set them to what `make image` built, as"
            " registry.example.com/gpu-control-plane@sha256:..., or make no DaemonSets"
            " (device_plugin.mode None, node_agent.enabled false)"
        )


def add_workloads(term: "ControllerManager") -> None:
    """Add `pool.workloads` and `node.exports`; where we run no plugins, they delete earlier ones."""
    context, caches = term.context, term.context.caches
    exported = PluginConfigFacts(caches.devices, caches.catalog)
    workloads = PoolWorkloads(
        context.client,
        caches.catalog,
        exported,
        config_maps=caches.config_maps,
        daemon_sets=caches.daemon_sets,
        settings=workload_settings(context.settings),
        announcer=Announcer(context.recorder, SERVE_ACTION),
        now=context.clock.instant,
    )
    pools = term.controller("pool.workloads", workloads.reconcile)

    def enqueue(pool: str) -> None:
        pools.enqueue(PoolName(pool), delay_s=COALESCE_S)

    nodes = term.controller("node.exports", NodePluginConfigs(exported, pools.enqueue).reconcile)
    term.tell(caches.devices.changes, lambda node: nodes.enqueue(NodeName(node)))
    for live in (caches.config_maps, caches.daemon_sets):
        term.tell(live.changes, enqueue)
        pools.enqueue_all(live.pools())
    term.of_pools.append(enqueue)
    pools.enqueue_all([ALL_POOLS, *caches.catalog.pools])


def add_status(
    term: "ControllerManager",
) -> "tuple[Controller[PoolName], Controller[DeviceName], Controller[NodeName]]":
    """Add `pool.status`, `device.state` and `node.pool-marks`; return them, for the index's changes."""
    context, caches, now = term.context, term.context.caches, term.context.clock.instant
    status = PoolStatus(
        context.client,
        caches.index,
        caches.catalog,
        reader=caches.reader,
        now=now,
        verdict=term.rules.verdict,
        announcer=Announcer(context.recorder, "ReportPool"),
    )
    pools = term.controller("pool.status", status.reconcile, share=STATUS_SHARE)
    term.tell(term.rules.changes, lambda pool: pools.enqueue(PoolName(pool)))
    devices = term.controller(
        "device.state",
        DeviceStatus(context.client, caches.index, caches.devices, now=now).reconcile,
        workers=DEVICE_WORKERS,
        share=STATUS_SHARE,
    )
    marks = PoolNodeLabels(
        context.client, caches.index, caches.catalog, verdict=term.rules.verdict, now=now
    )
    nodes = term.controller("node.pool-marks", marks.reconcile)

    def mark_nodes_of(pool: str) -> None:
        state = caches.index.state(PoolName(pool))
        nodes.enqueue_all(list(state.devices_by_node))

    term.of_pools.append(_OnMarksChanged(caches, mark_nodes_of))
    term.tell(term.rules.changes, mark_nodes_of)
    return pools, devices, nodes


def add_life(term: "ControllerManager") -> None:
    """Add `pool.life`."""
    context, caches = term.context, term.context.caches
    life = PoolLifecycle(
        context.client,
        LifecycleDependencies(
            allocation_state=caches.allocation_state,
            index=caches.index,
            catalog=caches.catalog,
            verdict=term.rules.verdict,
            remains=PoolRemains(
                caches.index,
                naming_workloads(caches.config_maps, caches.daemon_sets),
            ).of,
            announcer=Announcer(context.recorder, "LeadPool"),
            now=context.clock.instant,
        ),
    )
    pools = term.controller("pool.life", life.reconcile)
    term.tell(term.rules.changes, lambda pool: pools.enqueue(PoolName(pool)))
    term.of_pools.append(pools.enqueue)
    pools.enqueue_all(list(caches.catalog.pools))


@final
class _OnMarksChanged:
    """Has the nodes of a pool looked at when what it marks them with changes."""

    def __init__(self, caches: "Caches", mark: "Callable[[str], None]") -> None:
        self._caches = caches
        self._mark = mark
        self._seen: dict[PoolName, Hashable] = {}

    def __call__(self, name: PoolName) -> None:
        """Take note of a pool that is new, changed or gone."""
        pool = self._caches.catalog.pools.get(name)
        now = None if pool is None else (pool.taints, pool.metadata.deletion_timestamp)
        if self._seen.pop(name, None) != now:
            self._mark(name)
        if now is not None:
            self._seen[name] = now
