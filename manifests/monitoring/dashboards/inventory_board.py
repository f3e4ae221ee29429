"""Pools, devices and nodes of the cluster."""

from typing import Final

from manifests.monitoring.dashboards import device_series as series
from manifests.monitoring.dashboards.board import (
    Dashboard,
    DashboardPanel,
    PanelRow,
    PanelUnit,
    Query,
    Shape,
    Variable,
    number_panel,
)

_POOLS: Final = 'pool=~"$pool"'
_OF_DEVICES: Final = "Needs dcgm-exporter, or metrics of devices from the node agents."
_BLOCKERS: Final = (
    'gpu_bootstrap_condition{condition!~"ReadyForPooling|GFDReady|ManagedDisabled", node=~"$node"}'
)
"""Conditions that are True on a fault; the others are True where all is well, or wanted."""


_OVERVIEW: Final = PanelRow(
    "Overview",
    (
        number_panel(
            "Nodes with devices",
            "Nodes whose inventory has a device.",
            'count(max by (node) (gpu_inventory_devices_total{node=~"$node"}) > 0) or vector(0)',
        ),
        number_panel(
            "Nodes ready",
            "Nodes whose devices may be given to pools.",
            'sum(max by (node) (gpu_bootstrap_ready{node=~"$node"}))',
        ),
        number_panel(
            "Devices",
            "Devices of these nodes.",
            'sum(max by (node) (gpu_inventory_devices_total{node=~"$node"}))',
        ),
        number_panel(
            "Faulted devices",
            "They accept no new pods; the event GPUDeviceFaulted names each.",
            "sum(max by (reason) (gpu_device_faulted_total)) or vector(0)",
            is_fault=True,
        ),
        number_panel(
            "Devices in no pool",
            "The condition Assigned of each GPUDevice has the reason.",
            "max(gpu_device_unassigned_total)",
        ),
        number_panel(
            "Waiting pods",
            "Pending pods that hold no unit and are not gated.",
            f"sum(max by (pool) (gpu_pods_waiting{{{_POOLS}}}))",
        ),
    ),
)


def _of_pool(metric: str, name: str, unit: PanelUnit = PanelUnit.COUNT) -> Query:
    return Query(f"max by (pool) ({metric}{{{_POOLS}}})", name, unit)


def _units_by_state() -> tuple[Query, ...]:
    return tuple(
        Query(f"sum(max by (pool) (gpupool_capacity_{state}{{{_POOLS}}}))", state)
        for state in ("used", "reserved", "available", "unhealthy")
    )


_POOL_PANELS: Final = PanelRow(
    "Pools",
    (
        DashboardPanel(
            title="Pools",
            description="Units of each pool, who waits for them, and the most whole devices that one pod could get now.",
            queries=(
                _of_pool("gpupool_capacity_total", "Units"),
                _of_pool("gpupool_capacity_used", "Used"),
                _of_pool("gpupool_capacity_reserved", "Reserved"),
                _of_pool("gpupool_capacity_available", "Free"),
                _of_pool("gpupool_capacity_unhealthy", "Withheld"),
                _of_pool("gpupool_assignments", "Devices"),
                _of_pool("gpupool_largest_free", "Largest on a node"),
                _of_pool("gpupool_largest_demand", "Largest request"),
                _of_pool("gpupool_fragmentation", "Fragmentation", PanelUnit.SHARE),
                _of_pool("gpu_pods_waiting", "Waiting pods"),
                _of_pool("gpu_pods_longest_wait_seconds", "Longest wait", PanelUnit.SECONDS),
            ),
            shape=Shape.TABLE,
            width=24,
        ),
        DashboardPanel(
            title="Units by state",
            description="Used by bound pods, reserved for pods that are not bound yet, free, and withheld.",
            queries=_units_by_state(),
            is_stacked=True,
        ),
        DashboardPanel(
            title="Units in use",
            description="Share of the pool's units that bound pods have.",
            queries=(
                Query(
                    f"max by (pool) (gpupool_capacity_used{{{_POOLS}}})"
                    f" / (max by (pool) (gpupool_capacity_total{{{_POOLS}}}) > 0)",
                    "{{pool}}",
                ),
            ),
            unit=PanelUnit.SHARE,
        ),
        DashboardPanel(
            title="Fragmentation",
            description="Share of the free devices that a pod of the pool's recent demand is expected not to be able to use.",
            queries=(_of_pool("gpupool_fragmentation", "{{pool}}"),),
            unit=PanelUnit.SHARE,
        ),
        DashboardPanel(
            title="Waiting pods by pool",
            description="Pending pods that hold no unit and are not gated.",
            queries=(_of_pool("gpu_pods_waiting", "{{pool}}"),),
            is_stacked=True,
        ),
        DashboardPanel(
            title="Largest request",
            description="Most whole devices that one pod could get now: any of a node, or an aligned set.",
            queries=(
                Query(
                    f"max by (pool, topology) (gpupool_largest_demand{{{_POOLS}}})",
                    "{{pool}} {{topology}}",
                ),
            ),
        ),
        DashboardPanel(
            title="Pool conditions",
            description="Conditions that are True besides Ready and Supported: maintenance, low capacity, conflicts, bad specifications.",
            queries=(
                Query(
                    "max by (pool, condition)"
                    f' (gpupool_condition{{condition!~"Ready|Supported", {_POOLS}}}) == 1',
                    "{{pool}} {{condition}}",
                ),
            ),
        ),
    ),
)

_DEVICES: Final = PanelRow(
    "Devices",
    (
        DashboardPanel(
            title="Devices by state",
            description="States of GPUDevices on these nodes.",
            queries=(
                Query(
                    "sum by (state) (max by (node, state)"
                    ' (gpu_inventory_devices_state{node=~"$node"}))',
                    "{{state}}",
                ),
            ),
            is_stacked=True,
        ),
        DashboardPanel(
            title="Devices by node and state",
            description="States without a device have no row.",
            queries=(
                Query(
                    'max by (node, state) (gpu_inventory_devices_state{node=~"$node"})', "Devices"
                ),
            ),
            shape=Shape.TABLE,
        ),
        DashboardPanel(
            title="Faults by reason",
            description="Faulted devices; GPUDevices name the cause in their condition Healthy.",
            queries=(Query("max by (reason) (gpu_device_faulted_total)", "{{reason}}"),),
            is_stacked=True,
        ),
    ),
)

_NODES: Final = PanelRow(
    "Nodes",
    (
        DashboardPanel(
            title="Nodes by phase",
            description="Progress of the nodes' GPU software.",
            queries=(
                Query(
                    'count by (phase) (max by (node, phase) (gpu_bootstrap_node_phase{node=~"$node"}))',
                    "{{phase}}",
                ),
            ),
            is_stacked=True,
        ),
        DashboardPanel(
            title="What keeps nodes from being ready",
            description="Nodes by condition that is True on a fault; a node may have several.",
            queries=(
                Query(
                    f"count by (condition) (max by (node, condition) ({_BLOCKERS}))",
                    "{{condition}}",
                ),
            ),
        ),
        DashboardPanel(
            title="Faults of nodes",
            description="`kubectl describe gni NODE` has the reason and the message of each condition.",
            queries=(Query(f"max by (node, condition) ({_BLOCKERS})", "True", PanelUnit.SWITCH),),
            shape=Shape.TABLE,
        ),
    ),
)

_BY_POOL: Final = PanelRow(
    "Use of devices",
    (
        DashboardPanel(
            title="Utilisation by pool",
            description=f"Mean of the devices that pods of the pool have; needs kube-state-metrics. {_OF_DEVICES}",
            queries=(
                Query(
                    f"avg by (resource) ({series.with_resource(series.of_pods(series.dcgm('GPU_UTIL')), series.requested_units())})",
                    "{{resource}}",
                ),
            ),
            unit=PanelUnit.PERCENT,
        ),
        DashboardPanel(
            title="Memory in use by node",
            description=f"Share of the devices' memory. {_OF_DEVICES}",
            queries=(
                Query(
                    f"sum by (Hostname) ({series.of_devices('FB_USED')})"
                    f" / (sum by (Hostname) ({series.of_devices('FB_USED')})"
                    f" + sum by (Hostname) ({series.of_devices('FB_FREE')}) > 0)",
                    "{{Hostname}}",
                ),
            ),
            unit=PanelUnit.SHARE,
        ),
        DashboardPanel(
            title="Power by node",
            description=_OF_DEVICES,
            queries=(
                Query(f"sum by (Hostname) ({series.of_devices('POWER_USAGE')})", "{{Hostname}}"),
            ),
            unit=PanelUnit.WATTS,
            is_stacked=True,
        ),
    ),
)


def _slowest(histogram: str, selector: str = "") -> str:
    rate = f"sum by (le) (rate({histogram}_bucket{selector}[$__rate_interval]))"
    return f"histogram_quantile(0.99, {rate})"


_CONTROL_PLANE: Final = PanelRow(
    "Control plane",
    (
        DashboardPanel(
            title="Leaders",
            description="Exactly one replica leads.",
            queries=(Query("sum(gpu_leading)"),),
            shape=Shape.NUMBER,
            width=4,
        ),
        DashboardPanel(
            title="Response times (p99)",
            description="Admission of pods and pools, and the calls of kube-scheduler.",
            queries=(
                Query(_slowest("gpu_admission_duration_seconds"), "admission"),
                Query(_slowest("gpu_extender_duration_seconds", '{verb="filter"}'), "filter"),
                Query(_slowest("gpu_extender_duration_seconds", '{verb="bind"}'), "bind"),
            ),
            unit=PanelUnit.SECONDS,
            width=10,
        ),
        DashboardPanel(
            title="Errors",
            description="Failed reconciles by controller, and objects of operands that the API server refused.",
            queries=(
                Query(
                    'sum by (controller) (rate(gpu_reconciles_total{outcome="failed"}[$__rate_interval]))',
                    "{{controller}}",
                ),
                Query(
                    "sum by (handler) (rate(gpu_bootstrap_handler_errors_total[$__rate_interval]))",
                    "{{handler}}",
                ),
            ),
            unit=PanelUnit.PER_SECOND,
            width=10,
        ),
    ),
)

INVENTORY_BOARD: Final = Dashboard(
    "gpu-inventory",
    "GPU / Inventory",
    "Pools, devices and nodes: capacity, readiness and faults.",
    (
        Variable("pool", "Pool", "gpupool_capacity_total", "pool"),
        Variable("node", "Node", "gpu_inventory_devices_total", "node"),
    ),
    (_OVERVIEW, _POOL_PANELS, _DEVICES, _NODES, _BY_POOL, _CONTROL_PLANE),
)
