"""The fleet, for its operators: devices and nodes, what is wrong with them, and what the agents there do."""

from typing import Final

from dashboards.device_expressions import NEEDS_DEVICES, of_devices
from dashboards.expressions import (
    Vector,
    combined,
    count_by,
    counts,
    matching,
    max_by,
    or_zero,
    other_than,
    rate,
    select,
    sum_by,
)
from dashboards.foreign_series import FB_FREE, FB_USED, POWER_USAGE
from dashboards.layout import Board, Choice, PanelRow
from dashboards.panels import PanelUnit, Query, graph, number, rows, with_runbook
from telemetry import agent_metrics, metrics
from telemetry.conditions import InventoryCondition

_NODE: Final = matching("$node")
_DEVICES: Final = max_by(select(metrics.INVENTORY_DEVICES, node=_NODE), "node")
_STATES: Final = max_by(select(metrics.INVENTORY_DEVICES_STATE, node=_NODE), "node", "state")
_FINE: Final = (
    InventoryCondition.READY_FOR_POOLING.value,
    InventoryCondition.GFD_READY.value,
    InventoryCondition.MANAGED_DISABLED.value,
)
"""Conditions that are True where all is well, or wanted; the others are True on a fault."""
_BLOCKERS: Final = max_by(
    select(metrics.BOOTSTRAP_CONDITION, condition=other_than(*_FINE), node=_NODE),
    "node",
    "condition",
)

_FAILED_CALLS: Final = counts(agent_metrics.DRIVER_CALL_DURATION, outcome=other_than("ok"))


def _degraded_agents() -> Vector:
    degraded = InventoryCondition.AGENT_DEGRADED.value
    found = max_by(select(metrics.INVENTORY_CONDITION, condition=degraded, node=_NODE), "node")
    return combined(f"({found} == 1)", "node")


_OVERVIEW: Final = PanelRow(
    "Overview",
    (
        number(
            "Nodes with devices",
            "Nodes whose inventory has a device.",
            or_zero(f"count({_DEVICES} > 0)"),
        ),
        number(
            "Nodes ready",
            "Nodes whose devices may be given to pools.",
            sum_by(max_by(select(metrics.BOOTSTRAP_READY, node=_NODE), "node")),
        ),
        number("Devices", "Devices of these nodes.", sum_by(_DEVICES)),
        with_runbook(
            number(
                "Faulted devices",
                "They accept no new pods; the event GPUDeviceFaulted names each.",
                or_zero(sum_by(max_by(select(metrics.DEVICES_FAULTED), "reason"))),
                is_fault=True,
            ),
            "GPUDeviceFaulted",
        ),
        with_runbook(
            number(
                "Devices in no pool",
                "The condition Assigned of each GPUDevice has the reason.",
                max_by(select(metrics.DEVICES_UNASSIGNED)),
            ),
            "GPUUnassignedDevice",
        ),
        number(
            "Degraded agents",
            "Node agents that work with restrictions; the condition AgentDegraded of the GPUNodeInventory says which.",
            or_zero(count_by(_degraded_agents())),
            is_fault=True,
        ),
    ),
)

_DEVICE_ROW: Final = PanelRow(
    "Devices",
    (
        graph(
            "Devices by state",
            "States of the GPUDevices of these nodes.",
            Query(sum_by(_STATES, "state"), "{{state}}"),
            is_stacked=True,
        ),
        rows(
            "Devices by node and state",
            "States without a device have no row.",
            Query(_STATES, "Devices"),
        ),
        with_runbook(
            graph(
                "Faults by reason",
                "Faulted devices, and devices whose source of facts is silent; GPUDevices name the cause in their conditions"
                " Healthy and Stale.",
                Query(max_by(select(metrics.DEVICES_FAULTED), "reason"), "{{reason}}"),
                Query(max_by(select(metrics.DEVICES_STALE)), "silent"),
                is_stacked=True,
            ),
            "GPUDeviceFaulted",
        ),
    ),
)

_NODES: Final = PanelRow(
    "Nodes",
    (
        with_runbook(
            graph(
                "Nodes by phase",
                "Progress of the nodes' GPU software.",
                Query(
                    count_by(
                        max_by(select(metrics.BOOTSTRAP_PHASE, node=_NODE), "node", "phase"),
                        "phase",
                    ),
                    "{{phase}}",
                ),
                is_stacked=True,
            ),
            "GPUNodeNotReady",
        ),
        graph(
            "What keeps nodes from being ready",
            "Nodes by condition that is True on a fault; a node may have several.",
            Query(count_by(_BLOCKERS, "condition"), "{{condition}}"),
        ),
        rows(
            "Faults of nodes",
            "`kubectl describe gni NODE` has the reason and the message of each condition.",
            Query(_BLOCKERS, "True", PanelUnit.SWITCH),
        ),
    ),
)

_AGENTS: Final = PanelRow(
    "Node agents",
    (
        rows(
            "Which agents are degraded",
            "`kubectl describe gni NODE` has the reason.",
            Query(_degraded_agents(), "Degraded", PanelUnit.SWITCH),
        ),
        with_runbook(
            graph(
                "Plugins that kubelet does not know",
                "By resource: its units on those nodes are given to no pod.",
                Query(
                    f"count by (resource) ({max_by(select(agent_metrics.PLUGIN_REGISTERED), 'resource', 'instance')} == 0)",
                    "{{resource}}",
                ),
            ),
            "GPUPluginNotRegistered",
        ),
        graph(
            "Allocations by outcome",
            "promised: the devices that the pod was bound to; substituted: others of the pool; unpromised and unrecognised:"
            " pods without such devices; refused.",
            Query(sum_by(rate(select(agent_metrics.ALLOCATIONS)), "outcome"), "{{outcome}}"),
            unit=PanelUnit.PER_SECOND,
        ),
        graph(
            "MIG steps",
            "Steps of partitioning devices into MIG instances, by step and outcome.",
            Query(
                sum_by(rate(select(agent_metrics.PARTITIONINGS)), "step", "outcome"),
                "{{step}} {{outcome}}",
            ),
            unit=PanelUnit.PER_SECOND,
        ),
        graph(
            "Calls of the driver that fail",
            "failed, or hung: the driver did not answer in time.",
            Query(sum_by(rate(_FAILED_CALLS), "call", "outcome"), "{{call}} {{outcome}}"),
            unit=PanelUnit.PER_SECOND,
        ),
        graph(
            "Evictions by outcome",
            "Of pods for the maintenance of a pool: evicted, gone, refused (by a disruption budget), failed.",
            Query(sum_by(rate(select(metrics.EVICTIONS)), "outcome"), "{{outcome}}"),
            unit=PanelUnit.PER_SECOND,
        ),
    ),
)

_USE: Final = PanelRow(
    "Use of devices",
    (
        graph(
            "Memory in use by node",
            f"Share of the devices' memory. {NEEDS_DEVICES}",
            Query(
                f"{sum_by(of_devices(FB_USED), 'Hostname')} / ({sum_by(of_devices(FB_USED), 'Hostname')}"
                f" + {sum_by(of_devices(FB_FREE), 'Hostname')} > 0)",
                "{{Hostname}}",
            ),
            unit=PanelUnit.SHARE,
        ).span(12),
        graph(
            "Power by node",
            f"Drawn by the devices of each node. {NEEDS_DEVICES}",
            Query(sum_by(of_devices(POWER_USAGE), "Hostname"), "{{Hostname}}"),
            unit=PanelUnit.WATTS,
            is_stacked=True,
        ).span(12),
    ),
)

FLEET_BOARD: Final = Board(
    uid="gpu-fleet",
    title="GPU / Fleet",
    description="Devices and nodes: states, faults, readiness, and what the node agents do.",
    choices=(Choice("node", "Node", select(metrics.INVENTORY_DEVICES)),),
    rows=(_OVERVIEW, _DEVICE_ROW, _NODES, _AGENTS, _USE),
)
