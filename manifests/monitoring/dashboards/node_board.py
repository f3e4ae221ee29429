"""The devices of chosen nodes."""

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

_NODES: Final = 'node=~"$node"'
_EXTRA: Final = (
    "Empty where dcgm-exporter does not collect the field: it is not in its default list."
)


def _of_field(
    title: str, description: str, field: str, *, unit: PanelUnit = PanelUnit.COUNT
) -> DashboardPanel:
    query = Query(series.of_devices(field), series.DEVICE_LEGEND)
    return DashboardPanel(title=title, description=description, queries=(query,), unit=unit)


_STATE: Final = PanelRow(
    "State",
    (
        number_panel(
            "Devices", "Devices in the inventory.", f"sum(gpu_inventory_devices_total{{{_NODES}}})"
        ),
        number_panel(
            "Nodes not ready",
            "Nodes whose devices cannot be given to pools.",
            f"count(max by (node) (gpu_bootstrap_ready{{{_NODES}}}) == 0) or vector(0)",
            is_fault=True,
        ),
        DashboardPanel(
            title="Phase",
            description="Progress of the node's GPU software.",
            queries=(
                Query(
                    f"max by (node, phase) (gpu_bootstrap_node_phase{{{_NODES}}})",
                    "Is",
                    PanelUnit.SWITCH,
                ),
            ),
            shape=Shape.TABLE,
        ),
        DashboardPanel(
            title="Units by pool",
            description="Units of each pool on the node.",
            queries=(Query(f"max by (node, pool) (gpupool_node_slots{{{_NODES}}})", "Units"),),
            shape=Shape.TABLE,
        ),
        DashboardPanel(
            title="Conditions that are True",
            description="`kubectl describe gni NODE` has their reasons and messages.",
            queries=(
                Query(
                    f"max by (node, condition) (gpu_bootstrap_condition{{{_NODES}}})",
                    "True",
                    PanelUnit.SWITCH,
                ),
            ),
            shape=Shape.TABLE,
            width=12,
        ),
        DashboardPanel(
            title="Devices by state",
            description="States of GPUDevices.",
            queries=(
                Query(
                    f"sum by (state) (gpu_inventory_devices_state{{{_NODES}}})",
                    "{{state}}",
                ),
            ),
            is_stacked=True,
            width=12,
        ),
    ),
)

_USE: Final = PanelRow(
    "Use",
    (
        _of_field(
            "Utilisation",
            "Share of time in which a kernel ran. MIG instances have no value of their own.",
            "GPU_UTIL",
            unit=PanelUnit.PERCENT,
        ),
        _of_field(
            "Memory in use", "Of the device, or MIG instance.", "FB_USED", unit=PanelUnit.MEBIBYTES
        ),
        _of_field(
            "Free memory", "Of the device, or MIG instance.", "FB_FREE", unit=PanelUnit.MEBIBYTES
        ),
        _of_field(
            "Memory copies",
            "Share of time in which memory was read or written.",
            "MEM_COPY_UTIL",
            unit=PanelUnit.PERCENT,
        ),
        _of_field("Clock of multiprocessors", "SM clock.", "SM_CLOCK", unit=PanelUnit.MEGAHERTZ),
        _of_field("Clock of memory", "Memory clock.", "MEM_CLOCK", unit=PanelUnit.MEGAHERTZ),
        DashboardPanel(
            title="Utilisation by pod",
            description="A device that several pods share shows its own utilisation for each of them.",
            queries=(
                Query(
                    series.of_pods(series.dcgm("GPU_UTIL", series.OF_PODS)),
                    "{{namespace}}/{{pod}} {{UUID}}",
                ),
            ),
            unit=PanelUnit.PERCENT,
            width=12,
        ),
        DashboardPanel(
            title="Memory in use by pod",
            description="A device that several pods share shows its own memory for each of them.",
            queries=(
                Query(
                    series.of_pods(series.dcgm("FB_USED", series.OF_PODS)),
                    "{{namespace}}/{{pod}} {{UUID}}",
                ),
            ),
            unit=PanelUnit.MEBIBYTES,
            width=12,
        ),
        DashboardPanel(
            title="Processes without a device",
            description="Processes on devices of pools that kubelet did not give to their pods; without a pod, of the node"
            " itself. See GPUProcessUnaccounted in docs/operations.md.",
            queries=(
                Query(
                    series.of_pods(f"gpu_process_unaccounted{{{series.NODES}}}"),
                    "{{Hostname}} {{UUID}} {{namespace}}/{{pod}}",
                ),
            ),
            width=12,
        ),
    ),
)

_HEAT: Final = PanelRow(
    "Temperature and power",
    (
        _of_field("Temperature", "Of the GPU.", "GPU_TEMP", unit=PanelUnit.CELSIUS),
        _of_field("Temperature of memory", "Of HBM.", "MEMORY_TEMP", unit=PanelUnit.CELSIUS),
        _of_field("Power", "Drawn now.", "POWER_USAGE", unit=PanelUnit.WATTS),
        DashboardPanel(
            title="Energy in the time range",
            description="Used by the devices of the nodes.",
            queries=(
                Query(
                    "sum(max by (Hostname, UUID)"
                    f" (increase({series.dcgm('TOTAL_ENERGY_CONSUMPTION', series.NODES)}[$__range]))) / 1000"
                ),
            ),
            shape=Shape.NUMBER,
            unit=PanelUnit.JOULES,
        ),
        _of_field(
            "Throttle reasons",
            "Bits of why clocks are below the requested ones: 1 idle, 4 power cap, 8 hardware slow-down,"
            f" 32 software and 64 hardware thermal slow-down. {_EXTRA}",
            "CLOCK_THROTTLE_REASONS",
        ),
    ),
)

_FAULTS: Final = PanelRow(
    "Faults",
    (
        _of_field("Last Xid", "0 where the driver reported none.", "XID_ERRORS"),
        _of_field(
            "ECC errors, corrected",
            f"Single-bit errors since the driver was loaded. {_EXTRA}",
            "ECC_SBE_VOL_TOTAL",
        ),
        _of_field(
            "ECC errors, uncorrected",
            f"Double-bit errors since the driver was loaded. {_EXTRA}",
            "ECC_DBE_VOL_TOTAL",
        ),
        _of_field(
            "Remapped rows, uncorrected",
            "Rows of memory that were replaced after uncorrectable errors.",
            "UNCORRECTABLE_REMAPPED_ROWS",
        ),
        _of_field(
            "Remapped rows, corrected",
            "Rows of memory that were replaced after correctable errors.",
            "CORRECTABLE_REMAPPED_ROWS",
        ),
        _of_field(
            "Failed row remapping",
            "1 where a row could not be replaced: the device needs service.",
            "ROW_REMAP_FAILURE",
        ),
    ),
)

_LINKS: Final = PanelRow(
    "Links",
    (
        DashboardPanel(
            title="NVLink",
            description="Data sent and received over all links, in MB/s.",
            queries=(Query(series.of_devices("NVLINK_BANDWIDTH_TOTAL"), series.DEVICE_LEGEND),),
            unit=PanelUnit.MEGABYTES_PER_SECOND,
        ),
        DashboardPanel(
            title="NVLink errors",
            description=f"Flow control packets with a wrong checksum. {_EXTRA}",
            queries=(
                Query(
                    series.rate_of_devices("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"),
                    series.DEVICE_LEGEND,
                ),
            ),
            unit=PanelUnit.PER_SECOND,
        ),
        DashboardPanel(
            title="PCIe replays",
            description="Retransmissions on the PCI bus.",
            queries=(Query(series.rate_of_devices("PCIE_REPLAY_COUNTER"), series.DEVICE_LEGEND),),
            unit=PanelUnit.PER_SECOND,
        ),
    ),
)

NODE_BOARD: Final = Dashboard(
    "gpu-node",
    "GPU / Node",
    "Devices of a node: use, temperature, power and faults. Needs dcgm-exporter, or metrics of devices from the"
    " node agents.",
    (Variable("node", "Node", "gpu_inventory_devices_total", "node"),),
    (_STATE, _USE, _HEAT, _FAULTS, _LINKS),
)
