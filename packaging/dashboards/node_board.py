"""The devices of chosen nodes."""

from typing import Final

from dashboards.device_expressions import (
    DEVICE_LEGEND,
    OF_PODS,
    ON_NODES,
    of_devices,
    of_pods,
    rate_of_devices,
)
from dashboards.expressions import increase, matching, max_by, or_zero, select, sum_by
from dashboards.foreign_series import (
    CLOCK_THROTTLE_REASONS,
    CORRECTABLE_REMAPPED_ROWS,
    ECC_DBE_VOL_TOTAL,
    ECC_SBE_VOL_TOTAL,
    FB_FREE,
    FB_USED,
    GPU_TEMP,
    GPU_UTIL,
    MEM_CLOCK,
    MEM_COPY_UTIL,
    MEMORY_TEMP,
    NVLINK_BANDWIDTH_TOTAL,
    NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    PCIE_REPLAY_COUNTER,
    POWER_USAGE,
    ROW_REMAP_FAILURE,
    SM_CLOCK,
    TOTAL_ENERGY_CONSUMPTION,
    UNCORRECTABLE_REMAPPED_ROWS,
    XID_ERRORS,
    ForeignSeries,
)
from dashboards.layout import Board, Choice, PanelRow
from dashboards.panels import PanelBuilder, PanelUnit, Query, graph, number, rows, with_runbook
from telemetry import metrics
from telemetry.device_page import PROCESS_UNACCOUNTED

_NODE: Final = matching("$node")
_EXTRA: Final = (
    "Empty where dcgm-exporter does not collect the field: it is not in its default list."
)


def _of_fields(
    title: str,
    description: str,
    *fields: tuple[ForeignSeries, str],
    unit: PanelUnit = PanelUnit.COUNT,
) -> PanelBuilder:
    """Return a graph with a line for each device and field; what the field is follows the device's name."""
    queries = (
        Query(of_devices(field), f"{DEVICE_LEGEND} {name}".rstrip()) for field, name in fields
    )
    return graph(title, description, *queries, unit=unit)


def _by_pod(field: ForeignSeries) -> Query:
    series = select(field, Hostname=ON_NODES, pod=OF_PODS)
    return Query(of_pods(series), "{{namespace}}/{{pod}} {{UUID}}")


def _energy() -> str:
    used = max_by(increase(select(TOTAL_ENERGY_CONSUMPTION, Hostname=ON_NODES)), "Hostname", "UUID")
    return f"{sum_by(used)} / 1000"


_READY: Final = max_by(select(metrics.BOOTSTRAP_READY, node=_NODE), "node")

_STATE: Final = PanelRow(
    "State",
    (
        rows(
            "Phase",
            "Progress of the node's GPU software.",
            Query(
                max_by(select(metrics.BOOTSTRAP_PHASE, node=_NODE), "node", "phase"),
                "Is",
                PanelUnit.SWITCH,
            ),
        ),
        rows(
            "Units by pool",
            "Units of each pool on the node.",
            Query(max_by(select(metrics.POOL_NODE_SLOTS, node=_NODE), "node", "pool"), "Units"),
        ),
        rows(
            "Conditions that are True",
            "`kubectl describe gni NODE` has their reasons and messages.",
            Query(
                max_by(select(metrics.BOOTSTRAP_CONDITION, node=_NODE), "node", "condition"),
                "True",
                PanelUnit.SWITCH,
            ),
        ),
        number(
            "Nodes not ready",
            "Nodes whose devices cannot be given to pools.",
            or_zero(f"count({_READY} == 0)"),
            is_fault=True,
        ).span(8),
        number(
            "Energy in the time range",
            "Used by the devices of the nodes.",
            _energy(),
            unit=PanelUnit.JOULES,
        ).span(8),
        with_runbook(
            number(
                "Processes without a device",
                "Processes on devices of pools that kubelet did not give to their pods.",
                or_zero(sum_by(select(PROCESS_UNACCOUNTED, Hostname=ON_NODES))),
                is_fault=True,
            ).span(8),
            "GPUProcessUnaccounted",
        ),
    ),
)

_USE: Final = PanelRow(
    "Use",
    (
        _of_fields(
            "Utilisation",
            "Share of time in which a kernel ran. MIG instances have no value of their own.",
            (GPU_UTIL, ""),
            unit=PanelUnit.PERCENT,
        ),
        _of_fields(
            "Memory",
            "Of the device, or MIG instance.",
            (FB_USED, "used"),
            (FB_FREE, "free"),
            unit=PanelUnit.MEBIBYTES,
        ),
        _of_fields(
            "Memory copies",
            "Share of time in which memory was read or written.",
            (MEM_COPY_UTIL, ""),
            unit=PanelUnit.PERCENT,
        ),
        graph(
            "Utilisation by pod",
            "A device that several pods share shows its own utilisation for each of them.",
            _by_pod(GPU_UTIL),
            unit=PanelUnit.PERCENT,
        ).span(12),
        graph(
            "Memory in use by pod",
            "A device that several pods share shows its own memory for each of them.",
            _by_pod(FB_USED),
            unit=PanelUnit.MEBIBYTES,
        ).span(12),
    ),
)

_HEAT: Final = PanelRow(
    "Temperature, power and clocks",
    (
        _of_fields(
            "Temperature",
            "Of the GPU, and of HBM.",
            (GPU_TEMP, ""),
            (MEMORY_TEMP, "memory"),
            unit=PanelUnit.CELSIUS,
        ),
        _of_fields("Power", "Drawn now.", (POWER_USAGE, ""), unit=PanelUnit.WATTS),
        _of_fields(
            "Clocks",
            "Of multiprocessors, and of memory.",
            (SM_CLOCK, "SM"),
            (MEM_CLOCK, "memory"),
            unit=PanelUnit.MEGAHERTZ,
        ),
    ),
)

_FAULTS: Final = PanelRow(
    "Faults and links",
    (
        _of_fields("Last Xid", "0 where the driver reported none.", (XID_ERRORS, "")),
        _of_fields(
            "Throttle reasons",
            "Bits of why clocks are below the requested ones: 1 idle, 4 power cap, 8 hardware slow-down,"
            f" 32 software and 64 hardware thermal slow-down. {_EXTRA}",
            (CLOCK_THROTTLE_REASONS, ""),
        ),
        _of_fields(
            "ECC errors",
            f"Single-bit errors, which are corrected, and double-bit errors since the driver was loaded. {_EXTRA}",
            (ECC_SBE_VOL_TOTAL, "corrected"),
            (ECC_DBE_VOL_TOTAL, "uncorrected"),
        ),
        _of_fields(
            "Remapped rows",
            "Rows of memory that were replaced after errors; 1 of `failed`: a row could not be replaced, and the device needs"
            " service.",
            (CORRECTABLE_REMAPPED_ROWS, "corrected"),
            (UNCORRECTABLE_REMAPPED_ROWS, "uncorrected"),
            (ROW_REMAP_FAILURE, "failed"),
        ),
        _of_fields(
            "NVLink",
            "Data sent and received over all links, in MB/s.",
            (NVLINK_BANDWIDTH_TOTAL, ""),
            unit=PanelUnit.MEGABYTES_PER_SECOND,
        ),
        graph(
            "Errors of links",
            f"NVLink's flow control packets with a wrong checksum, and retransmissions on the PCI bus. {_EXTRA}",
            Query(rate_of_devices(NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL), f"{DEVICE_LEGEND} NVLink"),
            Query(rate_of_devices(PCIE_REPLAY_COUNTER), f"{DEVICE_LEGEND} PCIe"),
            unit=PanelUnit.PER_SECOND,
        ),
    ),
)

NODE_BOARD: Final = Board(
    uid="gpu-node",
    title="GPU / Node",
    description="Devices of a node: use, temperature, power and faults. Needs dcgm-exporter, or metrics of devices from the"
    " node agents.",
    choices=(Choice("node", "Node", select(metrics.INVENTORY_DEVICES)),),
    rows=(_STATE, _USE, _HEAT, _FAULTS),
)
